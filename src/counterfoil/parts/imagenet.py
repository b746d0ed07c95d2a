"""ImageNet's thousand classes, their WordNet ids and other names, and the nine classes that some papers use."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.resources import files

_WORDNET = re.compile(r"n\d{8}")

NINE_CLASSES: Mapping[str, tuple[int, int]] = {
    "dog": (151, 268),
    "cat": (281, 285),
    "frog": (30, 32),
    "turtle": (33, 37),
    "bird": (80, 100),
    "primate": (365, 382),
    "fish": (389, 397),
    "crab": (118, 121),
    "insect": (300, 319),
}
"""First and last of ImageNet's class numbers, counted from 0, that make up 9-class ImageNet.

These are the ranges of Restricted ImageNet (Santurkar et al., 2019), which the paper on foundation-model-oriented
robustness takes its nine classes from; it says primate where others say monkey. The ranges are contiguous, so they are not
everything the words mean: most birds (7 to 24 and 127 to 146), sharks and rays, and the lemurs lie outside.
"""


@dataclass(frozen=True)
class ImageNetClass:
    """One class of ImageNet-1k, with every name it goes by."""

    wordnet: str
    name: str  # torchvision's short name, unlike that of every other class, whatever the case
    lemmas: str  # all of WordNet's words for it, with commas

    @cached_property
    def aliases(self) -> tuple[str, ...]:
        """The other names."""
        return (self.wordnet, self.lemmas, *(lemma.strip() for lemma in self.lemmas.split(",")))


@lru_cache(maxsize=1)
def classes() -> tuple[ImageNetClass, ...]:
    """The thousand classes of ImageNet, in the order of the usual models' outputs."""
    rows = files("counterfoil.parts").joinpath("imagenet_classes.tsv").read_text(encoding="utf-8").splitlines()[1:]
    return tuple(ImageNetClass(*row.split("\t")) for row in rows)


def names_and_aliases() -> tuple[list[str], list[tuple[str, ...]]]:
    """Names of the thousand classes, and the other names of each."""
    return [entry.name for entry in classes()], [entry.aliases for entry in classes()]


def nine_classes() -> dict[str, list[str]]:
    """The nine classes, each as the WordNet ids of its members."""
    ids = [entry.wordnet for entry in classes()]
    return {name: ids[first : last + 1] for name, (first, last) in NINE_CLASSES.items()}


def in_words(names: Sequence[str]) -> list[str]:
    """The names in words if they are WordNet ids, those that are not ImageNet's left as they are; else the names."""
    if not all(_WORDNET.fullmatch(name) for name in names):
        return list(names)
    words = {entry.wordnet: entry.name for entry in classes()}
    return [words.get(name, name) for name in names]
