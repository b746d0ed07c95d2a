"""A ratio over a handful of images: no interval where anything would fit, and a wide but sensible one from five images on."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from bench import intervals
from counterfoil.core.records import Estimate
from counterfoil.metrics import estimate as estimates
from counterfoil.metrics.comparison import lines
from counterfoil.metrics.tables import estimate_text, text_of
from counterfoil.protocols.fmr.page import tables
from counterfoil.protocols.fmr.results import MEASURES, scores
from tests.metrics.made import check_against, check_bars, compare, outcomes, parse_bar

RATIOS = ("FMR", "FMR_matched")


def ratios(right: int, kept: int, *, wrong: int = 0) -> dict[str, Estimate]:
    """So many images right before, of which so many still are, and so many that were wrong before and after."""
    found = scores(outcomes([1] * right + [0] * wrong, [1] * kept + [0] * (right - kept + wrong)))
    return {name: found[name] for name in RATIOS}


@pytest.mark.parametrize("images", range(1, 5))
@pytest.mark.parametrize("lost", [0, 1, None])
def test_fewer_than_five_images_have_a_value_and_a_reason(images: int, lost: int | None) -> None:
    kept = 0 if lost is None else images - lost
    for each in ratios(images, kept).values():
        assert (each.value, each.low, each.high, each.n) == (pytest.approx(100 * kept / images), None, None, images)
        assert each.note == f"too few images for an interval, {images} where 5 are needed"


@pytest.mark.parametrize("wrong", [1, 6, 50])
def test_fewer_than_five_right_ones_are_too_few_to_divide_by_among_any_number(wrong: int) -> None:
    for each in ratios(4, 2, wrong=wrong).values():
        assert (each.value, each.low, each.high, each.n) == (pytest.approx(50), None, None, 4 + wrong)
        assert each.note == "too few images for an interval, 4 right ones to divide by where 5 are needed"
    assert all(each.low is not None for each in ratios(5, 2, wrong=wrong).values())


def test_five_accepted_pictures_are_needed_as_well() -> None:
    for accepted, given in ((4, False), (5, True)):
        found = scores(outcomes([1] * 20, [1] * 20, validated=[1] * accepted + [0] * (20 - accepted)))["FMR"]
        assert (found.low is not None) is given


@pytest.mark.parametrize("images", range(5, 11))
@pytest.mark.parametrize("lost", [0, 1, None])
def test_from_five_on_an_interval_is_wide_and_sensible(images: int, lost: int | None) -> None:
    kept = 0 if lost is None else images - lost
    for each in ratios(images, kept).values():
        assert 0 <= each.low <= each.value <= each.high <= 250
        assert each.high - each.low > 20


@pytest.mark.parametrize("right", [5, 8, 10])
def test_bounds_rise_with_the_pictures_that_stay_right(right: int) -> None:
    """As far as 2,000 resamples tell: to a tenth of the interval."""
    found = [ratios(right, kept) for kept in range(right + 1)]
    for name in RATIOS:
        for less, more in pairwise(found):
            slack = 0.1 * (more[name].high - more[name].low)
            assert more[name].low >= less[name].low - slack
            assert more[name].high >= less[name].high - slack
        assert found[-1][name].low > found[0][name].low + 30
        assert found[-1][name].high > found[0][name].high + 30


def test_a_ratio_without_an_interval_is_told_and_passes_no_gate() -> None:
    three = outcomes([1] * 3, [1, 1, 0])
    note = "too few images for an interval, 3 where 5 are needed"
    assert estimate_text(scores(three)["FMR"], unit=" %") == f"66.7 % ({note})"
    shown = text_of(tables({"FMR": scores(three)["FMR"].to_dict()}))
    assert f"66.7 % ({note})" in shown
    bar = parse_bar("fmr=50", "min")
    refused = check_bars(three, [bar])[0]
    assert not refused.passed and note in refused.answer
    assert check_bars(three, [bar], point=True)[0].passed
    margin = check_against(three, three, [MEASURES["FMR"]], margin=50)[0]
    assert not margin.passed and note in margin.answer
    assert note in "\n".join(lines(compare({"one": three, "two": three}, [MEASURES["FMR"]], resamples=200)))


def test_every_outcome_of_six_images_weighed_by_its_chance() -> None:
    found = intervals.few_table(6)
    for model in ("usual", "accurate", "nearly all lost"):
        for name in intervals.RATIOS:
            assert found[model][name][1] >= 95, (model, name)
    assert found["usual"]["drop"][0] == pytest.approx(100, abs=0.1)
    assert found["weak"]["FMR"][0] < 3  # a model that is right on a third of the images has no five of six


def test_without_the_rule_intervals_reach_into_the_thousands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimates, "FEWEST", 1)
    way = np.array([0, 0, 1, 1, 0, 0])  # two images: one right before and after, one wrong and rejected
    assert intervals.estimates(way, seed=0)["FMR"].high > 1000


def test_ways_and_their_chances_are_all_there() -> None:
    every = intervals.ways(4)
    assert len(every) == len({tuple(way) for way in every.tolist()}) == 126 and (every.sum(axis=1) == 4).all()
    for model in intervals.MODELS_OF_FEW.values():
        assert intervals.chances(model, every).sum() == pytest.approx(1)
