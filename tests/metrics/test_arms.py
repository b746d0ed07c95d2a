"""The search against its control, image by image."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from counterfoil.core.records import Estimate
from counterfoil.metrics.estimate import mcnemar, median
from counterfoil.metrics.observations import ABSENT
from counterfoil.metrics.tables import text_of
from counterfoil.protocols.fmr.page import tables
from counterfoil.protocols.fmr.results import against_random, distances, fmr_results
from tests.metrics.climbed import image, store_images
from tests.metrics.made import outcomes


def test_it_counts_the_images_that_both_arms_kept() -> None:
    guided = [1] * 6 + [0] * 14  # of 20, the last of which the control's oracle rejected
    random = np.array([1] * 18 + [0, 0], dtype=np.int8)
    kept = np.array([1] * 19 + [0], dtype=np.int8)
    both = replace(outcomes([1] * 20, guided), random_validated=kept, random_made_correct=random)
    found = against_random(both)
    assert found["n"] == 19
    assert found["value"] == pytest.approx(100 * (18 - 6) / 19)
    assert found["low"] > 0
    assert found["p"] == mcnemar(12, 0) < 0.001


def test_paired_answers_show_what_two_intervals_do_not() -> None:
    """Ten of a hundred images lost and none won: a doubt for two intervals, none for the pairs."""
    right = [1] * 60 + [0] * 40
    lost = [0] * 10 + [1] * 50 + [0] * 40
    both = replace(
        outcomes(right, lost), random_validated=np.ones(100, dtype=np.int8), random_made_correct=np.array(right, dtype=np.int8)
    )
    found = against_random(both)
    assert found["low"] > 0 and found["p"] < 0.01


def test_without_a_control_there_is_a_reason_and_no_p_value() -> None:
    found = against_random(outcomes([1, 0], [0, 0]))
    assert (found["value"], found["p"]) == (None, None)
    assert "accepts in both arms" in found["note"]


def test_the_median_distance_of_both_arms_is_that_of_their_accepted_images() -> None:
    accepted = np.array([1] * 7 + [0], dtype=np.int8)
    moved = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 99.0])
    both = replace(
        outcomes([1] * 8, [0] * 8, validated=accepted.tolist()), distance=moved, random_validated=accepted,
        random_distance=np.where(moved > 0.6, ABSENT, moved / 2),
    )  # fmt: skip
    found = distances(both)
    assert found["guided"] == Estimate(0.4, 0.1, 0.7, 7)
    assert found["random"] == Estimate(0.175, 0.05, 0.3, 6)
    assert distances(outcomes([1], [1]))["guided"].note == "no distance is recorded"


@pytest.mark.parametrize("count", [6, 25, 60])
def test_a_medians_interval_holds_it_as_often_as_it_says(count: int) -> None:
    draws = np.random.default_rng(0).exponential(size=(2000, count))
    every = [median(row, "") for row in draws]
    held = np.mean([(each.low or 0) <= np.log(2) <= (each.high or 0) for each in every])
    assert 0.945 < held < 0.985


def test_five_images_have_a_median_and_no_interval() -> None:
    found = median(np.array([1.0, 2.0, 3.0, 4.0, 5.0]), "")
    assert (found.value, found.low) == (3.0, None) and "6 are needed" in found.note


def test_the_distances_of_a_run_stand_in_its_results_and_tables(tmp_path: Path) -> None:
    images = []
    for number in range(8):
        trials, *rest = image(f"{number}", path="yyn", random_path="yyy")
        far = {"guided": 0.2, "random": 0.1}
        images.append(([replace(each, path_distance=(0.0, 0.05, far[each.arm] + number / 100)) for each in trials], *rest))
    results = fmr_results(store_images(tmp_path, images))
    assert results["arms"]["distance"]["guided"]["value"] == pytest.approx(0.235)
    assert results["arms"]["distance"]["random"]["value"] == pytest.approx(0.135)
    words = text_of(tables(results))
    assert "median distance from the start after guided steps" in words and "0.235 (0.200 to 0.270)" in words
