"""Exact tests against scipy and against writing out every possibility."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from counterfoil.metrics.comparison import kendall, order_agreement, rank_ranges
from counterfoil.metrics.estimate import Resamples, Share, holm, mcnemar, sign_flip


@pytest.mark.parametrize(("one", "two"), [(0, 0), (1, 0), (3, 3), (0, 6), (12, 4), (7, 30), (900, 1000), (0, 5000)])
def test_mcnemar_is_the_exact_binomial_test(one: int, two: int) -> None:
    wanted = stats.binomtest(one, one + two).pvalue if one + two else 1.0
    assert mcnemar(one, two) == pytest.approx(wanted, rel=1e-9, abs=1e-300)
    assert mcnemar(one, two) == mcnemar(two, one)


@pytest.mark.parametrize("seed", range(5))
def test_sign_flips_of_whole_clusters_agree_with_writing_out_all_of_them(seed: int) -> None:
    differences = np.random.default_rng(seed).integers(-4, 5, size=10)
    sums = [abs(sum(sign * value for sign, value in zip(signs, differences, strict=True)))
            for signs in itertools.product((-1, 1), repeat=10)]  # fmt: skip
    wanted = np.mean([each >= abs(differences.sum()) for each in sums])
    assert sign_flip(differences) == pytest.approx(wanted)


def test_without_a_difference_there_is_nothing_to_find() -> None:
    assert sign_flip(np.zeros(30, dtype=int)) == 1
    assert sign_flip(np.zeros(0, dtype=int)) == 1


def test_holm_multiplies_the_smallest_by_the_number_of_tests_and_keeps_the_order() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


@pytest.mark.parametrize("seed", range(4))
def test_holm_rejects_what_its_step_down_rule_rejects(seed: int) -> None:
    values = np.random.default_rng(seed).beta(0.3, 3, size=8).tolist()
    adjusted = holm(values)
    for alpha in (0.01, 0.05, 0.2):
        rejected = set()
        for rank, place in enumerate(np.argsort(values)):
            if values[place] > alpha / (len(values) - rank):
                break
            rejected.add(int(place))
        assert {place for place, value in enumerate(adjusted) if value <= alpha} == rejected


@pytest.mark.parametrize("seed", range(6))
def test_tau_is_scipys_tau_b_with_ties_too(seed: int) -> None:
    draw = np.random.default_rng(seed)
    one, two = draw.integers(0, 5, size=(2, 7)).astype(float)
    assert kendall(one, two) == pytest.approx(stats.kendalltau(one, two).statistic)


def test_an_order_of_equals_is_none() -> None:
    assert np.isnan(kendall(np.ones(4), np.arange(4.0)))


def resamples(right: list[float], count: int = 400) -> tuple[Resamples, list[Share]]:
    """Models that are right on exactly these shares of the images."""
    columns = {"all": np.ones(count)}
    columns |= {f"{place}": np.arange(count) < share * count for place, share in enumerate(right)}
    return Resamples(columns, resamples=500), [Share(f"{place}", "all") for place in range(len(right))]


def test_models_far_apart_have_a_sure_order() -> None:
    drawn, models = resamples([0.2, 0.5, 0.8])
    found = order_agreement(drawn, models, models)
    assert (found.value, found.low, found.high, found.n) == (1, 1, 1, 3)
    assert order_agreement(drawn, models, models[::-1]).high == -1
    assert order_agreement(drawn, models, models[::-1], opposed=True).low == 1


def test_the_order_of_models_close_together_is_open() -> None:
    """The third is above both for sure; the first two count once for the agreement and once against it."""
    draw = np.random.default_rng(0)
    right = {f"{place}": draw.permutation(np.arange(400) < share * 400) for place, share in enumerate((0.50, 0.51, 0.8))}
    drawn, models = Resamples({"all": np.ones(400), **right}), [Share(f"{place}", "all") for place in range(3)]
    found = order_agreement(drawn, models, models)
    assert (found.value, found.low, found.high) == (1, pytest.approx(1 / 3), 1)
    swapped = order_agreement(drawn, models, [models[1], models[0], models[2]])
    assert (swapped.value, swapped.low, swapped.high) == (pytest.approx(1 / 3), pytest.approx(1 / 3), 1)


def test_what_has_no_order_says_why() -> None:
    drawn, models = resamples([0.5, 0.5])
    assert "same value" in order_agreement(drawn, models, models).note
    tied = {"all": np.ones(40), "0": np.arange(40) < 20, "1": np.arange(40) >= 19}  # 20 and 21 of 40: no order to see
    found = order_agreement(Resamples(tied, resamples=500), models, models)
    assert (found.value, found.low, found.high) == (None, None, None) and "told apart" in found.note
    assert "two models" in order_agreement(drawn, models[:1], models[:1]).note
    nothing = [Share("0", "0", "none"), *models[1:]]
    empty = Resamples({"all": np.ones(3), "0": np.zeros(3), "1": np.ones(3)}, resamples=50)
    assert order_agreement(empty, nothing, models).note == "none"


def test_ranks_are_left_open_by_pairs_that_cannot_be_told_apart() -> None:
    assert rank_ranges(["a", "b", "c"], [("a", "c")]) == {"a": (1, 2), "b": (1, 3), "c": (2, 3)}
    assert rank_ranges(["a", "b"], [("b", "a")]) == {"a": (2, 2), "b": (1, 1)}
