"""Whether what surrogates miss is hard for others: with models that took no part, without each surrogate, and by their number.

A set that was chosen by a model's mistakes says nothing of that model. So a surrogate is also tested on the set that the
others alone would have chosen, and everything that speaks of the set's difficulty rests on models that took no part.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.core.spec.imagenet_d import MiningSpec
from counterfoil.metrics.estimate import Difference, Resamples, Share, estimate_one
from counterfoil.metrics.imagenet_d_columns import Flags, Paintings, Said
from counterfoil.metrics.mining import select
from counterfoil.metrics.significance import holm

BIAS = (
    "Selection bias: the set was chosen by the surrogates' mistakes, so their accuracy on it says how it was made, not how good "
    "they are. Judge a surrogate by leave-one-out, and the set by models that took no part."
)
"""Stands under every table that shows a surrogate."""

_SUBSETS = 64  # of one size at most; of more, some are drawn
PAINTED = Share("painted_right", "painted", "no painted picture that shows its object and that the model was asked about")
MINED = Share("mined_right", "mined", "no picture of the set that the model was asked about")
DROP = Difference(PAINTED, MINED)


def columns_of(paintings: Paintings, names: Sequence[str], chosen: Flags) -> dict[str, NDArray[Any]]:
    """One row a picture: whether the models were asked about it, on what was painted and on what was chosen of it, and which
    share of them is right."""
    known = np.logical_and.reduce([paintings.models[name].known for name in names])
    right = np.mean([paintings.models[name].right for name in names], axis=0)
    painted = paintings.base & known
    mined = painted & chosen
    return {"painted": painted, "painted_right": painted * right, "mined": mined, "mined_right": mined * right}


def compared(paintings: Paintings, names: Sequence[str], chosen: Flags, *, seed: int | tuple[int, ...]) -> dict[str, Any]:
    """Accuracy on what was painted and on what was chosen of it, the mean of the models', and whether it is lower there."""
    drawn = Resamples(columns_of(paintings, names, chosen), clusters=paintings.clusters, seed=seed)
    drop = estimate_one(drawn, DROP)
    return {
        "painted": estimate_one(drawn, PAINTED).to_dict(),
        "mined": estimate_one(drawn, MINED).to_dict(),
        "drop": drop.to_dict(),
        "p": drawn.p_value(DROP) if drop.value is not None else None,
    }


def chosen_by(paintings: Paintings, mining: MiningSpec, surrogates: Sequence[str], *, seed: int) -> Flags:
    """What these surrogates alone would have kept, by all of the run's rules."""
    decided = select(paintings.candidates(list(surrogates)), mining, surrogates=surrogates, seed=seed)
    return np.array([decided[image_id].kept for image_id in paintings.ids], dtype=bool)


def leave_one_out(
    paintings: Paintings, mining: MiningSpec, surrogates: Sequence[str], unseen: Sequence[str], *, seed: int
) -> list[dict[str, Any]]:
    """For each surrogate, its accuracy on what the others would have kept; and that of the models that took no part."""
    rows: list[dict[str, Any]] = []
    if len(surrogates) < 2:
        return rows
    for at, name in enumerate(surrogates):
        others = [each for each in surrogates if each != name]
        chosen = chosen_by(paintings, mining, others, seed=seed)
        row = {
            "surrogate": name,
            "kept": int(chosen.sum()),
            **compared(paintings, [name], chosen, seed=(seed, 11, at)),
        }
        if unseen:
            row["unseen"] = compared(paintings, unseen, chosen, seed=(seed, 12, at))["mined"]
        rows.append(row)
    correct(rows)
    return rows


def correct(entries: Sequence[dict[str, Any]]) -> None:
    """Give every entry its p-value as it may be read beside the others (Holm)."""
    known = [entry for entry in entries if entry["p"] is not None]
    for entry, adjusted in zip(known, holm([entry["p"] for entry in known]), strict=True):
        entry["p_adjusted"] = adjusted


def by_number(
    paintings: Paintings, mining: MiningSpec, surrogates: Sequence[str], unseen: Sequence[str], *, seed: int
) -> list[dict[str, Any]]:
    """Mean accuracy of the models that took no part, on what 0, 1, 2, … surrogates would have kept, over sets of that many."""
    points: list[dict[str, Any]] = []
    if not unseen:
        return points
    for count in range(len(surrogates) + 1):
        subsets = _subsets(surrogates, count, seed)
        values, sizes = [], []
        for subset in subsets:
            chosen = chosen_by(paintings, mining, subset, seed=seed) & paintings.base
            sizes.append(int(chosen.sum()))
            accuracies = [_accuracy(paintings.models[name], chosen) for name in unseen]
            if sizes[-1] and not any(map(math.isnan, accuracies)):
                values.append(float(np.mean(accuracies)))
        point: dict[str, Any] = {"surrogates": count, "sets": len(subsets), "kept": float(np.mean(sizes))}
        if values:
            point |= {"accuracy": float(np.mean(values)), "lowest": min(values), "highest": max(values)}
        points.append(point)
    return points


def _accuracy(said: Said, chosen: Flags) -> float:
    known = chosen & said.known
    return 100 * float(said.right[known].mean()) if known.any() else math.nan


def _subsets(names: Sequence[str], count: int, seed: int) -> list[tuple[str, ...]]:
    if math.comb(len(names), count) <= _SUBSETS:
        return list(itertools.combinations(names, count))
    drawn = random.Random(f"subsets {seed} {count}")
    return sorted({tuple(sorted(drawn.sample(list(names), count))) for _ in range(_SUBSETS)})
