"""Resamples: that they are a bootstrap over clusters, and that p-values and intervals say the same."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from counterfoil.metrics.estimate import estimate_one
from counterfoil.metrics.resample import Resamples
from counterfoil.metrics.statistic import Difference, Mean, Share

DIFFERENCE = Difference(Share("one", "all"), Share("two", "all"))


def pair(count: int, seed: int, *, one: float = 0.7, two: float = 0.7) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(seed)
    return {"all": np.ones(count), "one": draw.random(count) < one, "two": draw.random(count) < two}


def test_equal_rows_are_weighted_together_without_a_trace() -> None:
    """Rows that a further column tells apart get weights of their own; the distribution is the same."""
    data = pair(300, 0)
    together = Resamples(data, resamples=20_000).values(DIFFERENCE)
    apart = Resamples({**data, "number": np.arange(300)}, resamples=20_000).values(DIFFERENCE)
    assert stats.ks_2samp(together, apart).pvalue > 0.01
    assert not np.array_equal(together, apart)


def test_their_spread_is_that_of_the_bootstrap() -> None:
    draw = np.random.default_rng(0)
    values = draw.exponential(size=200)
    seen = Resamples({"total": values, "all": np.ones(200)}, resamples=20_000).values(Mean("total", "all"))
    assert seen.mean() == pytest.approx(values.mean(), abs=0.01)
    assert seen.std() == pytest.approx(values.std() / np.sqrt(201), rel=0.03)


def test_the_order_of_rows_changes_nothing() -> None:
    data = pair(100, 1)
    shuffled = np.random.default_rng(0).permutation(100)
    one = Resamples(data, seed=3)
    two = Resamples({name: values[shuffled] for name, values in data.items()}, seed=3)
    assert one.interval(DIFFERENCE, 0.05) == two.interval(DIFFERENCE, 0.05)


@pytest.mark.parametrize("seed", range(8))
def test_a_p_value_is_the_smallest_alpha_that_leaves_zero_out(seed: int) -> None:
    drawn = Resamples(pair(150, seed, two=0.6), seed=seed, resamples=20_000)
    p = drawn.p_value(DIFFERENCE)
    for alpha, excluded in ((min(1.2 * p + 0.004, 1), True), (0.8 * p - 0.002, False)):
        if 0.002 < alpha < 1:
            low, high = drawn.interval(DIFFERENCE, alpha)
            assert (low > 0 or high < 0) == excluded


@pytest.mark.parametrize("seed", range(4))
def test_a_p_value_agrees_with_the_paired_t_test(seed: int) -> None:
    data = pair(1000, seed, two=0.66)
    wanted = stats.ttest_rel(data["one"].astype(float), data["two"].astype(float)).pvalue
    assert Resamples(data, resamples=40_000).p_value(DIFFERENCE) == pytest.approx(wanted, rel=0.1, abs=0.004)


def test_a_p_value_is_never_zero_nor_above_one() -> None:
    apart = {"all": np.ones(50), "one": np.ones(50), "two": np.zeros(50)}
    assert 0 < Resamples(apart).p_value(DIFFERENCE) < 0.005
    same = {"all": np.ones(50), "one": np.ones(50), "two": np.ones(50)}
    assert 0.9 < Resamples(same).p_value(DIFFERENCE) <= 1


def test_an_interval_does_not_depend_on_what_else_is_asked() -> None:
    drawn = Resamples(pair(80, 0))
    alone = estimate_one(Resamples(pair(80, 0)), Share("one", "all"))
    estimate_one(drawn, DIFFERENCE)
    assert estimate_one(drawn, Share("one", "all")) == alone


def test_a_few_large_clusters_widen_the_interval() -> None:
    """Forty images with one picture and two with forty: the two decide, and two are few."""
    count = np.array([1] * 40 + [40] * 2)
    draw = np.random.default_rng(0)
    one = np.array([draw.binomial(each, 0.7) for each in count])
    two = np.array([draw.binomial(each, 0.7) for each in count])
    uneven = estimate_one(Resamples({"all": count, "one": one, "two": two}), DIFFERENCE)
    rows = {"all": np.ones(120), "one": np.arange(120) < one.sum(), "two": np.arange(120) < two.sum()}
    even = estimate_one(Resamples(rows), DIFFERENCE)
    assert uneven.value == pytest.approx(even.value)
    assert uneven.high - uneven.low > 1.5 * (even.high - even.low)


@pytest.mark.parametrize("lost", [1, 2, 5])
def test_pictures_of_one_image_do_not_make_an_interval_wider_than_one_picture_each(lost: int) -> None:
    """One image of forty that lost one of its six pictures is nearly all of their spread, but not of the interval's."""

    def drop(pictures: int, losses: int) -> float:
        whole = np.full(40, pictures)
        found = estimate_one(Resamples({"all": whole, "one": whole, "two": whole - (np.arange(40) < losses)}), DIFFERENCE)
        return found.high - found.low

    assert drop(6, lost) < 1.1 * drop(1, 0)
    assert drop(6, lost) > 0.9 * drop(6, 0)
