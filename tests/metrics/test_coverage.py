"""Intervals hold the truth about as often as they say, and p-values are uniform: bench/intervals.py at a reduced size."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench import intervals
from counterfoil.metrics.estimate import Resamples, Sums, estimate
from counterfoil.protocols.fmr import results as fmr
from counterfoil.protocols.imagenet_d import results as imagenet_d
from counterfoil.protocols.lance import results as lance

REPETITIONS = 300
CHOSEN = [("usual", 50), ("accurate", 50), ("1 to 6 edits an image", 50), ("usual", 5000)]
TALLIES: dict[tuple[str, int], object] = {}


def cached_tally(name: str, images: int):
    if (name, images) not in TALLIES:
        population = next(each for each in intervals.POPULATIONS if each.name == name)
        TALLIES[name, images] = intervals.tally(population, images, repetitions=REPETITIONS, resamples=600)
    return TALLIES[name, images]


@pytest.mark.parametrize(("name", "images"), CHOSEN)
def test_intervals_hold_the_truth_about_as_often_as_they_say(name: str, images: int) -> None:
    """93 to 97 per cent, give or take three standard errors of so few repetitions; in the mean, far closer."""
    found = cached_tally(name, images)
    each = {statistic: found.coverage(statistic) for statistic in intervals.STATISTICS}
    give = 300 * np.sqrt(0.95 * 0.05 / REPETITIONS)
    assert all(93 - give <= value <= 97 + give for value in each.values()), each
    assert 94 <= np.mean(list(each.values())) <= 97, each


@pytest.mark.parametrize(("name", "images"), CHOSEN)
def test_p_values_are_uniform_where_nothing_differs(name: str, images: int) -> None:
    found = cached_tally(name, images)
    assert set(found.p_values) == {"sign flip" if "edits" in name else "McNemar", *intervals.RESAMPLED}
    for test in found.p_values:
        assert found.distance(test) <= found.farthest, (test, found.distance(test))


@pytest.mark.parametrize("sources", [2, 5, 10, 30])
@pytest.mark.parametrize("alike", [False, True])
def test_sensitivity_of_few_sources_is_no_surer_than_it_is(sources: int, alike: bool) -> None:
    """A handful of sources may hold none of the few edits that move a model far; or all edits move it a little."""
    draw, truth = np.random.default_rng(sources), 5 if alike else 100 * (0.8 / 6 + 5 / 6 * 0.4 / 12.4)
    statistics = {name: statistic for name, statistic in lance.statistics_of().items() if name == "sensitivity"}
    held = 0
    for repetition in range(REPETITIONS):
        image = np.repeat(np.arange(sources), draw.integers(1, 7, sources))
        far = draw.random(len(image)) < draw.beta(0.5, 2.5, sources)[image]
        moved = 100 * np.where(far, draw.beta(4, 1, len(image)), draw.beta(0.4, 12, len(image)))
        if alike:
            moved = 50 * draw.beta(5, 95, sources)[image] + 50 * draw.beta(5, 95, len(image))
        columns = {"moved": moved, "pairs": np.ones(len(image), dtype=bool)}
        found = estimate(columns, statistics, clusters=image, seed=repetition, resamples=400)["sensitivity"]
        held += found.low <= truth <= found.high
    assert held >= REPETITIONS * (0.95 - 3 * np.sqrt(0.95 * 0.05 / REPETITIONS))


def test_the_check_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without made-up images and with a bootstrap blind to few clusters, intervals fall short, and the tally shows it."""
    monkeypatch.setattr(Resamples, "_pads", lambda self, statistic: {})
    monkeypatch.setattr(Resamples, "_freedom", lambda self, statistic: 1e9)
    population = next(each for each in intervals.POPULATIONS if each.name == "hardly any loss")
    found = intervals.tally(population, 50, repetitions=100, resamples=400)
    assert found.coverage("FMR_matched") < 85


def test_a_populations_truth_is_what_its_images_come_to() -> None:
    for population in intervals.POPULATIONS:
        columns = population.draw(100_000, np.random.default_rng(0))
        sums = Sums({name: values.sum(keepdims=True).astype(float) for name, values in columns.items()})
        for name, statistic in intervals.STATISTICS.items():
            assert float(statistic.of(sums)[0]) == pytest.approx(population.truth()[name], abs=1.0), (population.name, name)


def test_p_values_that_are_too_small_are_noticed() -> None:
    found = cached_tally("usual", 50)
    halved = replace(found, p_values={"Δ FMR": found.p_values["Δ FMR"] / 2})
    assert any("p-values of Δ FMR" in miss for miss in halved.misses())


def test_rare_outcomes_may_be_covered_more_often_but_not_less() -> None:
    population = next(each for each in intervals.POPULATIONS if each.name == "hardly any loss")
    none, some = (dict.fromkeys(intervals.STATISTICS, share) for share in (0.0, 8.0))
    found = intervals.Tally(population, 50, 2000, none, none, {})
    assert found.misses() == []
    assert len(replace(found, below=some).misses()) == len(replace(found, images=5000).misses()) == len(intervals.STATISTICS)


def test_every_statistic_that_is_printed_with_an_interval_is_in_the_benchmark() -> None:
    found = {name for world in intervals.WORLDS.values() for name in world(np.random.default_rng(0), 60, 0)}
    named = {*fmr.STATISTICS, *(f"audit {name}" for name in fmr.AUDIT_MEANINGS), *lance.STATISTICS, *imagenet_d._ORDER}
    assert named <= found and {"painted", "mined", "lead", "harm", "alpha", "perplexity"} <= found
    assert {*intervals.NAMES} >= {*fmr.MEASURES} - {*fmr.STATISTICS}  # drops, and differences of two models


@pytest.mark.parametrize("world", intervals.WORLDS)
def test_every_other_printed_interval_holds_the_truth_about_as_often_as_it_says(world: str) -> None:
    found = intervals.world_tally(world, 60, repetitions=60)
    assert len(found) >= 4 and all(number >= 50 for _, _, number in found.values())
    assert all(share >= 83 for share, _, _ in found.values()), found  # of 60 repetitions, four standard errors below 95
