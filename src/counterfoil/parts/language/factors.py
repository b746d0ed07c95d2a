"""The factors of a caption that can be rewritten, and the reasons for which a caption or a proposal is not used."""

from __future__ import annotations

from typing import Final

from counterfoil.core.errors import BadSpec

FACTORS: Final = ("subject", "object", "background", "adjective", "domain", "weather")

REASONS: Final[dict[str, str]] = {
    "caption-empty": "the caption has no words",
    "caption-too-long": "the caption has more tokens than the editor reads",
    "no-idea": "the rewriter had nothing to propose",
    "refusal": "the language model declined to answer",
    "nonsense": "the answer is not a caption",
    "looping": "the answer repeats itself",
    "endpoint": "the endpoint did not answer",
    "no-op": "the proposal says the same as the caption",
    "duplicate": "the same edit was proposed before",
    "too-long": "the edited caption has more tokens than the editor reads",
    "rewritten": "the proposal shares too little with the caption to be an edit of it",
    "other-factor": "another factor was changed than the one asked for",
    "several-factors": "more than one factor was changed",
    "class-word": "the words that were taken out name the class itself",
}
"""Why a proposal is rejected, in the order of the checks, with a sentence for people."""


def check_factor(factor: str) -> str:
    """The factor, or an error that lists those there are."""
    if factor not in FACTORS:
        raise BadSpec(f"no factor named {factor!r}; factors are {', '.join(FACTORS)}")
    return factor
