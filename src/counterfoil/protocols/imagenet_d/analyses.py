"""Failure modes of a set, what in its images mistakes follow; and the effect of the choice of surrogates on it.

A mistake is *named* by the nuisance when the class it names and the nuisance share a word that the truth does not have: a boot
on a beach taken for "sandbar, beach". It is *pulled* by the nuisance when, among images of other objects, the classifier
gives this same answer far more often with this nuisance than with the others of its kind: Fisher's exact test, one-sided, over
prompts, as several images of one object and nuisance have one voice; corrected by Holm over all pairs of nuisance and answer
of the kind, also those that do not occur; and at least two different objects taken for it. The first needs a classifier that
knows such classes, the second does not. Everything else is *other*. The pull is measured on all painted images and not on
what mining kept, which was chosen by its mistakes.

A set that was chosen by a model's mistakes says nothing of that model. So a surrogate is also tested on the set that the
others alone would have chosen, and everything that speaks of the set's difficulty rests on models that took no part.
"""

from __future__ import annotations

import itertools
import math
import random
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.stats import hypergeom

from counterfoil.core.spec import MiningSpec
from counterfoil.metrics.estimate import Floats, Resamples, Share, Statistic, Sums, estimate, estimate_one, holm, stored_p
from counterfoil.metrics.mining import Candidate, Look, Miner
from counterfoil.protocols.imagenet_d.results import ELSE, Flags, PaintedSet, compare_means, correct

OTHER = "other"
LEVEL = 0.01
PULLS = 20  # listed
_SHORTEST = 4  # letters a word must have to say something
_ENDINGS = ("ness", "ings", "ing", "ed", "es", "s", "y")
_SUBSETS = 64  # of one size at most; of more, some are drawn


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


@dataclass(frozen=True)
class Average(Statistic):
    """The mean of several shares, as over all choices of so many surrogates."""

    parts: tuple[Share, ...] = ()

    def of(self, sums: Sums) -> Floats:
        mean: Floats = np.mean([each.of(sums) for each in self.parts], axis=0)
        return mean

    def with_prefix(self, prefix: str) -> Self:
        return replace(self, parts=tuple(each.with_prefix(prefix) for each in self.parts))


def miner_of(paintings: PaintedSet, mining: MiningSpec, surrogates: Sequence[str], *, seed: int) -> Miner:
    """The run's mining rules over its images, ready to be asked about any of the surrogates."""
    candidates = []
    for at, image_id in enumerate(paintings.ids):
        looks = {}
        for name in surrogates:
            answers = paintings.models[name]
            if answers.known[at]:
                numbers = float(answers.confidence[at]), float(answers.truth[at]), int(answers.predicted[at])
                looks[name] = Look(bool(answers.right[at]), *numbers)
        accepted = None if paintings.sees[at] < 0 else bool(paintings.sees[at])
        place = int(paintings.label[at]), str(paintings.kind[at]), str(paintings.nuisance[at])
        candidates.append(Candidate(image_id, *place, looks, accepted, paintings.hashes[at]))
    return Miner(candidates, mining, surrogates=surrogates, seed=seed)


def leave_one_out(
    paintings: PaintedSet, mining: MiningSpec, surrogates: Sequence[str], unseen: Sequence[str], *, seed: int
) -> list[dict[str, Any]]:
    """For each surrogate, its accuracy on what the others would have kept; and that of the models that took no part."""
    rows: list[dict[str, Any]] = []
    if len(surrogates) < 2:
        return rows
    miner = miner_of(paintings, mining, surrogates, seed=seed)
    for at, name in enumerate(surrogates):
        chosen = miner.keep([each for each in surrogates if each != name])
        row = {"surrogate": name, "kept": int(chosen.sum()), **compare_means(paintings, [name], chosen, seed=(seed, 11, at))}
        if unseen:
            row["unseen"] = compare_means(paintings, unseen, chosen, seed=(seed, 12, at))["mined"]
        rows.append(row)
    correct(rows)
    return rows


def by_number(
    paintings: PaintedSet, mining: MiningSpec, surrogates: Sequence[str], unseen: Sequence[str], *, seed: int
) -> list[dict[str, Any]]:
    """Mean accuracy of the models that took no part, on what 0, 1, 2, … surrogates would have kept, over sets of that many."""
    points: list[dict[str, Any]] = []
    if not unseen:
        return points
    miner = miner_of(paintings, mining, surrogates, seed=seed)
    known = np.logical_and.reduce([paintings.models[name].known for name in unseen])
    right = np.mean([paintings.models[name].right for name in unseen], axis=0)
    for number in range(len(surrogates) + 1):
        subsets = _subsets(surrogates, number, seed)
        chosen = [miner.keep(subset) & paintings.base for subset in subsets]
        point: dict[str, Any] = {
            "surrogates": number,
            "sets": len(subsets),
            "kept": float(np.mean([int(each.sum()) for each in chosen])),
        }
        asked = [each & known for each in chosen if (each & known).any()]
        if asked:
            point |= _accuracy(asked, right, paintings.clusters, seed=(seed, 13, number))
        points.append(point)
    return points


def _accuracy(asked: Sequence[Flags], right: Floats, clusters: Any, *, seed: tuple[int, ...]) -> dict[str, Any]:
    """The mean accuracy over several sets, drawn together, and the lowest and highest of them."""
    columns: dict[str, Any] = {}
    for at, each in enumerate(asked):
        columns |= {f"{at}": each, f"{at} right": each * right}
    shares = tuple(Share(f"{at} right", f"{at}") for at in range(len(asked)))
    drawn = Resamples(columns, clusters=clusters, seed=seed)
    values = [float(each.of(drawn.observed)[0]) for each in shares]
    return {"accuracy": estimate_one(drawn, Average(shares)).to_dict(), "lowest": min(values), "highest": max(values)}


def _subsets(names: Sequence[str], number: int, seed: int) -> list[tuple[str, ...]]:
    if math.comb(len(names), number) <= _SUBSETS:
        return list(itertools.combinations(names, number))
    drawn = random.Random(f"subsets {seed} {number}")
    return sorted({tuple(sorted(drawn.sample(list(names), number))) for _ in range(_SUBSETS)})
