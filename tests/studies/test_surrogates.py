"""Mining by several surrogates, on outcomes small enough to count by hand."""

from __future__ import annotations

import pytest

from counterfoil.core.errors import UsageError
from counterfoil.metrics.observations import Observations
from counterfoil.protocols.fmr.results import observations_of
from counterfoil.studies.models import mine
from tests.metrics.made import outcomes


def row(**right: list[int]) -> dict[str, Observations]:
    return {name: observations_of(outcomes([1] * len(made), made, model=name)) for name, made in right.items()}


def test_accuracy_is_that_of_models_that_took_no_part() -> None:
    """Images made against a; a always misses. Counted by hand for none, for one and for two surrogates."""
    found = mine({"a": row(a=[0, 0, 0, 0], b=[1, 0, 1, 0], c=[1, 1, 0, 0])}, most=4)
    none, one = found
    accuracy, kept = "accuracy %", "images kept %"
    assert none[accuracy].value == pytest.approx(100 * 4 / 8)  # b and c; a is what they were made against
    # Surrogate a keeps all four for b and c: 4 of 8; b keeps the second and fourth for c: 1 of 2; c the last two for b: 1 of 2.
    assert one[accuracy].value == pytest.approx(100 * 6 / 12)
    assert one[kept].value == pytest.approx(100 * 12 / 16)
    assert (one[accuracy].n, "harder by, points" in none) == (4, False)


def test_models_that_fail_together_make_mined_pictures_harder() -> None:
    hard = [0, 1] * 30
    found = mine({"a": row(a=[0] * 60, b=hard, c=hard, d=hard)}, most=4)
    assert [round(each["accuracy %"].value or 0) for each in found] == [50, 25, 0]
    assert found[1]["harder by, points"].value == pytest.approx(25)


def test_nothing_left_is_said_and_two_models_are_too_few() -> None:
    found = mine({"a": row(a=[1, 1], b=[1, 1], c=[1, 1])}, most=4)
    assert (found[1]["accuracy %"].value, found[1]["accuracy %"].note) == (None, "no image that all of them miss")
    with pytest.raises(UsageError, match="needs three models"):
        mine({"a": row(a=[1], b=[1])}, most=4)
