"""Which edit of a sweep is kept, from similarities alone. No torch here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from counterfoil.core.spec.lance import QualitySpec

CHECKS = {
    "picture changed too much": "the edited picture is too unlike the source picture",
    "caption does not fit": "the source picture is too unlike its own caption",
    "edit does not fit": "the edited picture is too unlike the edited caption",
    "wrong direction": "the picture did not change the way the caption did",
    "still the old words": "the edited picture is nearer to the old caption than to the new one",
}
"""The checks in their order, with a sentence for people."""


@dataclass(frozen=True)
class Similarities:
    """Cosine similarities of one edited picture."""

    image_image: float  # source picture and edited picture
    source_text: float  # source picture and caption
    edited_text: float  # edited picture and edited caption
    old_text: float  # edited picture and the caption before the edit
    directional: float  # change of the picture and change of the caption

    def failed(self, bars: QualitySpec) -> tuple[str, str] | None:
        """The first check it fails and by how much, or None."""
        checks = (
            (self.image_image, bars.image_image),
            (self.source_text, bars.image_text),
            (self.edited_text, bars.image_text),
            (self.directional, bars.directional),
        )
        for name, (value, bar) in zip(CHECKS, checks, strict=False):
            if not value >= bar:
                return name, f"{value:.3f} is below {bar:g}"
        if bars.nearer and not self.edited_text > self.old_text:
            return "still the old words", f"{self.edited_text:.3f} to the new caption, {self.old_text:.3f} to the old one"
        return None


@dataclass(frozen=True)
class Chosen:
    """The edit that is kept, or the check that none of the sweep passed."""

    index: int  # in the sweep; of the nearest miss where nothing is kept
    check: str = ""
    reason: str = ""


def choose(sweep: Sequence[Similarities], bars: QualitySpec) -> Chosen:
    """The edit to keep: of those that pass the one of highest directional similarity, or the last, as asked."""
    problems = [each.failed(bars) for each in sweep]
    passing = [index for index, problem in enumerate(problems) if problem is None]
    if passing:
        best = max(passing, key=lambda index: (sweep[index].directional, -index))
        return Chosen(best if bars.choose == "best" else passing[-1])
    order = list(CHECKS)
    # The nearest miss speaks for the sweep: the one that got furthest through the checks.
    index, problem = max(
        ((index, problem) for index, problem in enumerate(problems) if problem is not None),
        key=lambda each: (order.index(each[1][0]), sweep[each[0]].directional),
    )
    return Chosen(index, *problem)
