"""The effect of the choice of surrogates on a set: without each of them, and by their number.

A set that was chosen by a model's mistakes says nothing of that model. So a surrogate is also tested on the set that the
others alone would have chosen, and everything that speaks of the set's difficulty rests on models that took no part.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from counterfoil.core.spec import MiningSpec
from counterfoil.metrics.estimate import Floats, Resamples, Share, Statistic, Sums, estimate_one
from counterfoil.metrics.mining import Candidate, Look, Miner
from counterfoil.protocols.imagenet_d.results import Flags, PaintedSet, compare_means, correct

_SUBSETS = 64  # of one size at most; of more, some are drawn


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
