"""Exact tests against scipy and against writing out every possibility."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from counterfoil.metrics.significance import holm, mcnemar, sign_flip


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
