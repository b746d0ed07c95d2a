"""Sorts a classifier's mistakes by what in the picture they follow.

A mistake is *named* by the nuisance when the class it names and the nuisance share a word that the truth does not have: a boot
on a beach taken for "sandbar, beach". It is *pulled* by the nuisance when, among pictures of other objects, the classifier
gives this same answer far more often with this nuisance than with the others of its kind: Fisher's exact test, one-sided,
corrected by Holm over all pairs of nuisance and answer of the kind, also those that do not occur, and at least two different
objects taken for it. The first needs a classifier that knows such classes, the second does not. Everything else is *other*.

The pull is measured on all painted pictures and not on what mining kept, which was chosen by its mistakes.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import hypergeom

from counterfoil.metrics.significance import holm

OTHER = "other"
LEVEL = 0.01
_SHORTEST = 4  # letters a word must have to say something
_ENDINGS = ("ness", "ings", "ing", "ed", "es", "s", "y")


@dataclass(frozen=True)
class Pull:
    """A nuisance that draws a classifier to an answer, whatever the object."""

    kind: str
    nuisance: str
    answer: str
    times: int  # pictures of other objects that it takes for `answer`
    among: int  # pictures of other objects with this nuisance
    elsewhere: float  # how often it gives that answer with the other nuisances of the kind, in per cent
    p: float  # corrected for all pairs of the kind


def sort_mistakes(
    truth: Sequence[str], answers: Sequence[str], kinds: Sequence[str], nuisances: Sequence[str]
) -> tuple[NDArray[np.object_], list[Pull]]:
    """What each mistake follows: "background", "texture", …, "other"; nothing where the answer is right. And the pulls."""
    pulls = find_pulls(truth, answers, kinds, nuisances)
    drawn = {(pull.kind, pull.nuisance, pull.answer) for pull in pulls}
    modes = np.full(len(truth), "", dtype=object)
    for at, (right, said, kind, nuisance) in enumerate(zip(truth, answers, kinds, nuisances, strict=True)):
        if said != right:
            follows = kind and ((kind, nuisance, said) in drawn or names_nuisance(said, nuisance, right))
            modes[at] = kind if follows else OTHER
    return modes, pulls


def find_pulls(
    truth: Sequence[str], answers: Sequence[str], kinds: Sequence[str], nuisances: Sequence[str], *, level: float = LEVEL
) -> list[Pull]:
    """The pulls that are significant, strongest first."""
    found: list[Pull] = []
    for kind in sorted(set(kinds) - {""}):
        rows = [at for at, each in enumerate(kinds) if each == kind]
        found += _pulls_of(kind, [(truth[at], answers[at], nuisances[at]) for at in rows], level)
    return sorted(found, key=lambda pull: (pull.p, -pull.times))


def names_nuisance(answer: str, nuisance: str, truth: str) -> bool:
    """Whether an answer has a word of the nuisance that the truth does not have."""
    return bool((_stems(answer) & _stems(nuisance)) - _stems(truth))


def _pulls_of(kind: str, rows: list[tuple[str, str, str]], level: float) -> list[Pull]:
    totals: Counter[str] = Counter(nuisance for _, _, nuisance in rows)
    of_truth: Counter[str] = Counter(truth for truth, _, _ in rows)
    both: Counter[tuple[str, str]] = Counter((nuisance, truth) for truth, _, nuisance in rows)
    taken: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)  # by nuisance and answer: which objects were taken for it
    anywhere: Counter[str] = Counter()
    for truth, answer, nuisance in rows:
        if answer and answer != truth:
            taken[nuisance, answer][truth] += 1
            anywhere[answer] += 1
    tested: list[tuple[Any, ...]] = []
    for (nuisance, answer), objects in sorted(taken.items()):
        times, among = sum(objects.values()), totals[nuisance] - both[nuisance, answer]
        others = len(rows) - of_truth[answer]  # pictures of other objects, whatever the nuisance
        p = float(hypergeom.sf(times - 1, others, anywhere[answer], among))
        rest = others - among
        elsewhere = 100 * (anywhere[answer] - times) / rest if rest else 0.0
        tested.append((nuisance, answer, times, among, elsewhere, len(objects), p))
    # Pairs that never occur show nothing, but each could have: an answer given twice is with one nuisance or another.
    corrected = holm([each[-1] for each in tested], among=len(totals) * len(anywhere))
    return [
        Pull(kind, nuisance, answer, times, among, elsewhere, p)
        for (nuisance, answer, times, among, elsewhere, objects, _), p in zip(tested, corrected, strict=True)
        if p <= level and objects > 1
    ]


def _stems(text: str) -> set[str]:
    words = re.findall(r"[a-z]+", text.casefold())
    return {_stem(word) for word in words if len(word) >= _SHORTEST}


def _stem(word: str) -> str:
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _SHORTEST:
            return word[: -len(ending)]
    return word
