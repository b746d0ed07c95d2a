"""The comparison of dtypes counts what it says it counts."""

from __future__ import annotations

from argparse import Namespace

import pytest
from bench.precision import BF16, Outcome, agreement, compare, difference, intervals, numbers, too_far
from bench.reproducibility import apart

EXACT = {str(at): Outcome(known=at % 10 != 0, validated=at % 20 != 1, right=at % 4 == 0, steps=3) for at in range(400)}


def test_equal_outcomes_differ_by_nothing() -> None:
    assert intervals([EXACT], [EXACT]) == {"FMR": (0.0, 0.0), "VR": (0.0, 0.0)}
    assert agreement(EXACT, EXACT) == {"verdict": 100.0, "outcome": 100.0, "steps": 100.0}
    assert numbers(EXACT) == {"SA": 90.0, "PA": 26.316, "FMR": 29.24, "VR": 95.0, "steps": 3.0}


def test_an_interval_is_paired_and_holds_the_difference() -> None:
    found = {name: one._replace(right=one.right or int(name) % 40 == 2) for name, one in EXACT.items()}  # ten images more
    low, high = intervals([found], [EXACT])["FMR"]
    difference = numbers(found)["FMR"] - numbers(EXACT)["FMR"]
    assert 0 < low < difference < high < 2 * difference  # not paired it would be some six points wide to either side
    assert agreement(found, EXACT)["outcome"] == 97.5
    assert intervals([found], [EXACT])["VR"] == (0.0, 0.0)


def test_runs_of_a_format_are_set_against_those_of_another_by_their_means() -> None:
    more = {name: one._replace(right=one.right or int(name) % 40 == 2) for name, one in EXACT.items()}
    less = {name: one._replace(right=one.right and int(name) % 40 != 4) for name, one in EXACT.items()}
    assert difference([more, less], [EXACT])["FMR off by"] == 0.0
    one, mean = difference([more], [EXACT])["FMR off by"], difference([more, EXACT], [EXACT])["FMR off by"]
    assert mean == pytest.approx(one / 2, abs=0.01)
    low, high = intervals([more, less], [EXACT, EXACT])["FMR"]
    assert low < 0 < high


def test_half_a_point_is_too_far_for_the_mean_of_bf16_alone() -> None:
    row = {"generator": "kl", "model": "narrow", "FMR off by": -0.6, "VR off by": 0.1}
    assert too_far([{**row, "way": BF16}]) == [f"kl, narrow, {BF16}: FMR off by -0.60"]
    assert too_far([{**row, "way": "rounding"}, {**row, "way": "bf16"}, {**row, "way": BF16, "FMR off by": 0.5}]) == []


def test_ways_through_a_run_are_apart_if_one_image_ends_otherwise() -> None:
    assert apart(EXACT, EXACT) == ""
    assert apart({**EXACT, "2": EXACT["2"]._replace(right=True)}, EXACT) == "1 of 400 images ended otherwise"
    assert apart({**EXACT, "2": EXACT["2"]._replace(steps=4)}, EXACT) == "1 of 400 images ended otherwise"


def test_rows_after_every_block_are_of_all_images_so_far() -> None:
    asked = Namespace(device="cpu", images=4, budget=1, ways="bf16", tile=2)
    whole = list(compare("kl", "narrow", Namespace(**vars(asked), block=4)))
    parts = list(compare("kl", "narrow", Namespace(**vars(asked), block=2)))
    assert [row["way"] for row in whole] == ["float32", "bf16", BF16]
    assert [row["images"] for row in parts] == [2, 2, 2, 4, 4, 4]
    for row in [*whole, *parts]:
        row.pop("seconds", None)
    assert parts[3:] == whole
