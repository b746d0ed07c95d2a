"""How far the order of two choices decides what a vision-language model answers."""

from __future__ import annotations

from typing import Any

import numpy as np

from counterfoil.metrics.estimate import estimate
from counterfoil.metrics.significance import mcnemar
from counterfoil.metrics.statistic import Difference, Share, Statistic
from counterfoil.stages import Table

_FIRST = Share("first_right", "first", "no answer in that order could be read")
_SECOND = Share("second_right", "second", "no answer in that order could be read")


def order_bias(table: Table, *, seed: int = 0) -> dict[str, Any] | None:
    """Accuracy with the truth named first and second, their difference, and how many answers could not be read.

    None where the questions were asked in one order only.
    """
    rows = [row for row in table.kept() if "right_turned" in row.values]
    if not rows:
        return None
    # `right` belongs to the order that was asked first, which may be either.
    one = [row["right"] if row["truth_first"] else row["right_turned"] for row in rows]
    other = [row["right_turned"] if row["truth_first"] else row["right"] for row in rows]
    columns = {
        "first": np.array([each is not None for each in one]),
        "first_right": np.array([bool(each) for each in one]),
        "second": np.array([each is not None for each in other]),
        "second_right": np.array([bool(each) for each in other]),
        "asked": np.full(len(rows), 2),
        "unread": np.array([(a is None) + (b is None) for a, b in zip(one, other, strict=True)]),
        "all": np.ones(len(rows), dtype=bool),
        "same": np.array([a is not None and a == b for a, b in zip(one, other, strict=True)]),
    }
    shares: dict[str, Statistic] = {
        "truth_first": _FIRST,
        "truth_second": _SECOND,
        "consistent": Share("same", "all"),
        "bias": Difference(_FIRST, _SECOND),
    }
    found = estimate(columns, shares, seed=seed)
    only_first = sum(a is True and b is False for a, b in zip(one, other, strict=True))
    only_second = sum(a is False and b is True for a, b in zip(one, other, strict=True))
    return {
        **{name: each.to_dict() for name, each in found.items()},
        "p": mcnemar(only_first, only_second),
        "unread": int(columns["unread"].sum()),
        "asked": 2 * len(rows),
    }
