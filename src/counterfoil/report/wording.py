"""How each number is called for people. What it says is in `metrics.table`, in the words the command line uses too."""

from __future__ import annotations

from typing import Final

from counterfoil.metrics.fmr import MEANINGS

TITLES: Final = {
    "FMR": "FMR, as published",
    "FMR_matched": "FMR, matched",
    "SA": "Clean accuracy",
    "SA_matched": "Clean accuracy, accepted images",
    "PA_reconstruction": "Accuracy after reconstruction only",
    "PA_random": "Accuracy after random steps",
    "PA": "Accuracy after guided steps",
    "FMR_random": "FMR of random steps",
    "VR": "Validation rate",
    "steps": "Guided steps kept",
    "steps_random": "Random steps kept",
}
"""In the order in which a reader needs them."""

_ASIDES: Final = {
    "FMR": "100 would mean that nothing is lost; it can be more, because the accepted images are the easier ones.",
    "FMR_matched": "The fairer of the two: both sides speak of the same images.",
    "PA_reconstruction": "What is lost up to here, the generator broke.",
    "PA_random": "What is lost up to here, mere distance broke.",
    "PA": "What is lost beyond the controls is charged to the model.",
    "VR": "Only these images are tested.",
}


def sentence(key: str) -> str:
    """What a number says, as a sentence or two."""
    meaning = MEANINGS.get(key, "")
    first = f"{meaning[:1].upper()}{meaning[1:]}." if meaning else ""
    return f"{first} {_ASIDES.get(key, '')}".strip()
