"""Orders of models, against scipy and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from counterfoil.metrics.ranking import agreement, kendall, rank_ranges
from counterfoil.metrics.resample import Resamples
from counterfoil.metrics.statistic import Share


@pytest.mark.parametrize("seed", range(6))
def test_tau_is_scipys_tau_b_with_ties_too(seed: int) -> None:
    draw = np.random.default_rng(seed)
    one, two = draw.integers(0, 5, size=(2, 7)).astype(float)
    assert float(kendall(one, two)) == pytest.approx(stats.kendalltau(one, two).statistic)
    many = draw.normal(size=(2, 20, 6))
    assert kendall(*many) == pytest.approx([stats.kendalltau(*pair).statistic for pair in zip(*many, strict=True)])


def test_an_order_of_equals_is_none() -> None:
    assert np.isnan(kendall(np.ones(4), np.arange(4.0)))


def resamples(right: list[float], count: int = 400) -> tuple[Resamples, list[Share]]:
    """Models that are right on exactly these shares of the images."""
    columns = {"all": np.ones(count)}
    columns |= {f"{place}": np.arange(count) < share * count for place, share in enumerate(right)}
    return Resamples(columns, resamples=500), [Share(f"{place}", "all") for place in range(len(right))]


def test_models_far_apart_have_a_sure_order() -> None:
    drawn, models = resamples([0.2, 0.5, 0.8])
    found = agreement(drawn, models, models)
    assert (found.value, found.low, found.high, found.n) == (1, 1, 1, 3)
    assert agreement(drawn, models, models[::-1]).high == -1
    assert agreement(drawn, models, models[::-1], opposed=True).low == 1


def test_the_order_of_models_close_together_is_open() -> None:
    """The third is above both for sure; the first two count once for the agreement and once against it."""
    draw = np.random.default_rng(0)
    right = {f"{place}": draw.permutation(np.arange(400) < share * 400) for place, share in enumerate((0.50, 0.51, 0.8))}
    drawn, models = Resamples({"all": np.ones(400), **right}), [Share(f"{place}", "all") for place in range(3)]
    found = agreement(drawn, models, models)
    assert (found.value, found.low, found.high) == (1, pytest.approx(1 / 3), 1)
    swapped = agreement(drawn, models, [models[1], models[0], models[2]])
    assert (swapped.value, swapped.low, swapped.high) == (pytest.approx(1 / 3), pytest.approx(1 / 3), 1)


def test_what_has_no_order_says_why() -> None:
    drawn, models = resamples([0.5, 0.5])
    assert "same value" in agreement(drawn, models, models).note
    assert "two models" in agreement(drawn, models[:1], models[:1]).note
    nothing = [Share("0", "0", "none"), *models[1:]]
    empty = Resamples({"all": np.ones(3), "0": np.zeros(3), "1": np.ones(3)}, resamples=50)
    assert agreement(empty, nothing, models).note == "none"


def test_ranks_are_left_open_by_pairs_that_cannot_be_told_apart() -> None:
    assert rank_ranges(["a", "b", "c"], [("a", "c")]) == {"a": (1, 2), "b": (1, 3), "c": (2, 3)}
    assert rank_ranges(["a", "b"], [("b", "a")]) == {"a": (2, 2), "b": (1, 1)}
