"""What a vision-language model's answers to two-choice questions come to: how many can be read, and how far the order decides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.metrics.estimate import Difference, Resamples, Share, Statistic, estimate_one
from counterfoil.metrics.significance import sign_flip
from counterfoil.store.stages import Table

_FIRST = Share("first_right", "first", "no answer in that order could be read")
_SECOND = Share("second_right", "second", "no answer in that order could be read")
_BIAS = Difference(_FIRST, _SECOND)
_SHARES: dict[str, Statistic] = {
    "truth_first": _FIRST,
    "truth_second": _SECOND,
    "consistent": Share("same", "both", "every question was asked in one order only"),
    "bias": _BIAS,
}


def order_bias(table: Table, *, clusters: Mapping[str, int], seed: int = 0) -> dict[str, Any] | None:
    """Accuracy with the truth named first and second, their difference, and how many answers could not be read.

    `clusters` says by id which pictures go together. Without the same questions the other way round, the two accuracies are of
    different pictures; the order was drawn by lot, so they can be compared all the same. None where nothing was asked.
    """
    rows = [row for row in table.kept() if row.id in clusters]
    if not rows:
        return None
    # `right` belongs to the order that was asked first, which may be either.
    answers = [{bool(row["truth_first"]): row["right"]} for row in rows]
    for row, said in zip(rows, answers, strict=True):
        if "right_turned" in row.values:
            said[not row["truth_first"]] = row["right_turned"]
    both = np.array([len(said) == 2 for said in answers])
    columns = {
        "first": np.array([said.get(True) is not None for said in answers]),
        "first_right": np.array([said.get(True) is True for said in answers]),
        "second": np.array([said.get(False) is not None for said in answers]),
        "second_right": np.array([said.get(False) is True for said in answers]),
        "both": both,
        "same": both & np.array([said.get(True) is not None and said.get(True) == said.get(False) for said in answers]),
    }
    groups = np.unique([clusters[row.id] for row in rows], return_inverse=True)[1]
    drawn = Resamples(columns, clusters=groups, seed=seed)
    found = {name: estimate_one(drawn, each) for name, each in _SHARES.items()}
    return {
        **{name: each.to_dict() for name, each in found.items()},
        "p": None if found["bias"].value is None else _chance(columns, groups) if both.any() else drawn.p_value(_BIAS),
        "unread": sum(right is None for said in answers for right in said.values()),
        "asked": sum(map(len, answers)),
    }


def _chance(columns: Mapping[str, NDArray[Any]], groups: NDArray[Any]) -> float:
    """Exact p-value that the order decides nothing: both orders of a question exchanged, a cluster at a time."""
    read = columns["both"] & columns["first"] & columns["second"]
    turns = read * (columns["first_right"].astype(int) - columns["second_right"].astype(int))
    return sign_flip(np.bincount(groups, turns).astype(int))
