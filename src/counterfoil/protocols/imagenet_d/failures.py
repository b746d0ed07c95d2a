"""Failure modes: what in the image a classifier's mistakes follow.

A mistake is *named* by the nuisance when the class it names and the nuisance share a word that the truth does not have: a boot
on a beach taken for "sandbar, beach". It is *pulled* by the nuisance when, among images of other objects, the classifier
gives this same answer far more often with this nuisance than with the others of its kind: Fisher's exact test, one-sided, over
prompts, as several images of one object and nuisance have one voice; corrected by Holm over all pairs of nuisance and answer
of the kind, also those that do not occur; and at least two different objects taken for it. The first needs a classifier that
knows such classes, the second does not. Everything else is *other*.

The pull is measured on all painted images and not on what mining kept, which was chosen by its mistakes.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import hypergeom

from counterfoil.metrics.estimate import Share, estimate, holm, stored_p
from counterfoil.protocols.imagenet_d.results import ELSE, Flags, PaintedSet

OTHER = "other"
LEVEL = 0.01
PULLS = 20  # listed
_SHORTEST = 4  # letters a word must have to say something
_ENDINGS = ("ness", "ings", "ing", "ed", "es", "s", "y")


@dataclass(frozen=True)
class Pull:
    """A nuisance that draws a classifier to an answer, whatever the object."""

    kind: str
    nuisance: str
    answer: str
    times: int  # images of other objects that it takes for `answer`
    among: int  # images of other objects with this nuisance
    elsewhere: float  # how often it gives that answer with the other nuisances of the kind, in per cent
    p: float  # corrected for all pairs of the kind


def failure_modes(paintings: PaintedSet, model: str, final: Flags, *, seed: tuple[int, ...] = (0,)) -> dict[str, Any]:
    """Count the mistakes that follow the nuisance, on what was painted and on what was kept, and name the strongest pulls."""
    answers, names = paintings.models[model], paintings.class_names
    rows = np.flatnonzero(paintings.base & answers.known)
    truth = [str(names[at]) for at in rows]
    # An answer counts by class: another name of the right class is no mistake, and another class of the right name is one.
    named = [str(answers.named[at]) or ELSE for at in rows]
    wrong = [f"{name} {ELSE}" if name == right else name for name, right in zip(named, truth, strict=True)]
    said = [right if answers.right[at] else name for at, right, name in zip(rows, truth, wrong, strict=True)]
    modes, pulls = sort_mistakes(truth, said, list(paintings.kind[rows]), list(paintings.nuisance[rows]))
    kinds = [*sorted(set(paintings.kind) - {""}), OTHER]
    entry: dict[str, Any] = {}
    for where, inside in (("painted", np.ones(len(rows), dtype=bool)), ("mined", final[rows])):
        wrong = inside & (modes != "")
        columns = {"wrong": wrong, **{kind: wrong & (modes == kind) for kind in kinds}}
        columns["driven"] = wrong & (modes != OTHER)
        shares = {kind: Share(kind, "wrong", "no mistakes") for kind in [*kinds, "driven"]}
        found = estimate(columns, shares, seed=(*seed, 3), clusters=paintings.clusters[rows])
        entry[where] = {
            "mistakes": int(wrong.sum()),
            "pictures": int(inside.sum()),
            **{kind: {"times": int(columns[kind].sum()), "share": found[kind].to_dict()} for kind in [*kinds, "driven"]},
        }
    entry["pulls"] = [{**asdict(pull), "p": stored_p(pull.p)} for pull in pulls[:PULLS]]
    return entry


def sort_mistakes(
    truth: Sequence[str], answers: Sequence[str], kinds: Sequence[str], nuisances: Sequence[str]
) -> tuple[NDArray[np.object_], list[Pull]]:
    """Sort mistakes by what they follow: "background", "texture", …, "other"; empty where the answer is right. And the pulls."""
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
    """Tell whether an answer has a word of the nuisance that the truth does not have."""
    return bool((_stems(answer) & _stems(nuisance)) - _stems(truth))


def _pulls_of(kind: str, rows: list[tuple[str, str, str]], level: float) -> list[Pull]:
    said: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)  # by nuisance and object: what its images are taken for
    for truth, answer, nuisance in rows:
        said[nuisance, truth][answer] += 1
    # Images of one prompt are no more independent than it: they have one voice, that of most of them.
    voices = {prompt: _of_most(answers) for prompt, answers in said.items()}
    taken: dict[tuple[str, str], set[str]] = defaultdict(set)  # by nuisance and answer: which objects are taken for it
    for (nuisance, truth), answer in voices.items():
        if answer and answer != truth:
            taken[nuisance, answer].add(truth)
    anywhere: Counter[str] = Counter()
    for (_, answer), objects in taken.items():
        anywhere[answer] += len(objects)
    of_place, of_truth = Counter(nuisance for nuisance, _ in voices), Counter(truth for _, truth in voices)
    tested: list[tuple[str, str, float]] = []
    for (nuisance, answer), objects in sorted(taken.items()):
        others = len(voices) - of_truth[answer]  # prompts of other objects, whatever the nuisance
        among = of_place[nuisance] - ((nuisance, answer) in voices)
        tested.append((nuisance, answer, float(hypergeom.sf(len(objects) - 1, others, anywhere[answer], among))))
    # Pairs that never occur show nothing, but each could have: an answer given twice is with one nuisance or another.
    corrected = holm([p for _, _, p in tested], among=len(of_place) * len(anywhere))
    return [
        _pull(kind, nuisance, answer, said, p)
        for (nuisance, answer, _), p in zip(tested, corrected, strict=True)
        if p <= level and len(taken[nuisance, answer]) > 1
    ]


def _of_most(answers: Counter[str]) -> str:
    """The answer for more than half of the images; nothing where they differ."""
    answer, times = answers.most_common(1)[0]
    return answer if 2 * times > answers.total() else ""


def _pull(kind: str, nuisance: str, answer: str, said: Mapping[tuple[str, str], Counter[str]], p: float) -> Pull:
    """The pull in images of other objects."""
    times, among, elsewhere, rest = 0, 0, 0, 0
    for (place, truth), answers in said.items():
        if truth != answer and place == nuisance:
            times, among = times + answers[answer], among + answers.total()
        elif truth != answer:
            elsewhere, rest = elsewhere + answers[answer], rest + answers.total()
    return Pull(kind, nuisance, answer, times, among, 100 * elsewhere / rest if rest else 0.0, p)


def _stems(text: str) -> set[str]:
    words = re.findall(r"[a-z]+", text.casefold())
    return {_stem(word) for word in words if len(word) >= _SHORTEST}


def _stem(word: str) -> str:
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _SHORTEST:
            return word[: -len(ending)]
    return word
