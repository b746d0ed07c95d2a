"""ImageNet's label space: recognised under other spellings, put into words, and cut to the nine classes of the papers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from counterfoil.parts import labels

_WORDNET = re.compile(r"n\d{8}")
_ENOUGH = 950  # of the thousand names have to be ImageNet's at their place

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
    name: str  # short and unlike that of every other class, whatever the case
    lemmas: str  # all of WordNet's words for it, with commas

    @property
    def aliases(self) -> tuple[str, ...]:
        """The other names."""
        return (self.wordnet, self.lemmas, *labels.split(self.lemmas))


@lru_cache(maxsize=1)
def classes() -> tuple[ImageNetClass, ...]:
    """The thousand classes of ImageNet, in the order of the usual models' outputs."""
    from timm.data.imagenet_info import ImageNetInfo

    info = ImageNetInfo("imagenet-1k")
    usual = _categories()
    times = Counter(labels.key(name) for name in usual)
    rows = zip(info.label_names(), usual, info.label_descriptions(), strict=True)
    # Two names differ by a capital alone: the dog Cardigan, also Cardigan Welsh corgi, and the garment.
    return tuple(
        ImageNetClass(wordnet, labels.split(lemmas)[-1] if times[labels.key(name)] > 1 else name, lemmas)
        for wordnet, name, lemmas in rows
    )


def names_and_aliases() -> tuple[list[str], labels.Aliases]:
    """What the thousand classes are called, and what else."""
    return [entry.name for entry in classes()], [entry.aliases for entry in classes()]


def distinct_names(categories: Sequence[str]) -> tuple[list[str], labels.Aliases | None]:
    """Class names that are all unlike, and their aliases, if `categories` are ImageNet's; else as they are."""
    if tuple(categories) != _categories():
        return list(categories), None
    return names_and_aliases()


def nine_classes() -> dict[str, list[str]]:
    """The nine classes, each as the WordNet ids of its members."""
    ids = [entry.wordnet for entry in classes()]
    return {name: ids[first : last + 1] for name, (first, last) in NINE_CLASSES.items()}


def recognised(names: Sequence[str]) -> tuple[list[str], labels.Aliases | None]:
    """Names all unlike each other, and aliases where they are ImageNet's thousand, with or without a background class."""
    extra = len(names) - 1000
    if extra in (0, 1):
        known = [{labels.key(name) for name in (entry.name, *entry.aliases)} for entry in classes()]
        held = sum(labels.key(name) in own for name, own in zip(names[extra:], known, strict=True))
        if held >= _ENOUGH:
            front = list(names[:extra])
            spelt = zip(classes(), names[extra:], strict=True)
            aliases = [(), *[(*entry.aliases, name) for entry, name in spelt]][1 - extra :]
            return front + [entry.name for entry in classes()], aliases
    times = Counter(names)
    return [f"{name} (number {at})" if times[name] > 1 else name for at, name in enumerate(names)], None


def in_words(names: Sequence[str]) -> list[str]:
    """The names in words if they are WordNet ids, those that are not ImageNet's left as they are; else the names."""
    if not all(_WORDNET.fullmatch(name) for name in names):
        return list(names)
    words = {entry.wordnet: entry.name for entry in classes()}
    return [words.get(name, name) for name in names]


def _categories() -> tuple[str, ...]:
    from torchvision.models import ResNet50_Weights

    return tuple(ResNet50_Weights.DEFAULT.meta["categories"])
