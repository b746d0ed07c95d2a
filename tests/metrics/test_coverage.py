"""Intervals hold the truth about as often as they say, and p-values are uniform: bench/coverage.py at a reduced size."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from counterfoil.metrics.statistic import Sums

_PATH = Path(__file__).parents[2] / "bench" / "coverage.py"
_SPEC = importlib.util.spec_from_file_location("bench_coverage", _PATH)
assert _SPEC is not None and _SPEC.loader is not None
coverage = importlib.util.module_from_spec(_SPEC)
sys.modules["bench_coverage"] = coverage
_SPEC.loader.exec_module(coverage)

REPETITIONS = 300
CHOSEN = [("usual", 50), ("accurate", 50), ("1 to 6 edits an image", 50), ("usual", 5000)]
TALLIES: dict[tuple[str, int], object] = {}


def tallied(name: str, images: int):
    if (name, images) not in TALLIES:
        population = next(each for each in coverage.POPULATIONS if each.name == name)
        TALLIES[name, images] = coverage.tally(population, images, repetitions=REPETITIONS, resamples=600)
    return TALLIES[name, images]


@pytest.mark.parametrize(("name", "images"), CHOSEN)
def test_intervals_hold_the_truth_about_as_often_as_they_say(name: str, images: int) -> None:
    """93 to 97 per cent, give or take three standard errors of so few repetitions; in the mean, far closer."""
    found = tallied(name, images)
    each = {statistic: found.coverage(statistic) for statistic in coverage.STATISTICS}
    give = 300 * np.sqrt(0.95 * 0.05 / REPETITIONS)
    assert all(93 - give <= value <= 97 + give for value in each.values()), each
    assert 94 <= np.mean(list(each.values())) <= 97, each


@pytest.mark.parametrize(("name", "images"), CHOSEN)
def test_p_values_are_uniform_where_nothing_differs(name: str, images: int) -> None:
    for test, values in tallied(name, images).p_values.items():
        for level in coverage.LEVELS:
            give = 3.5 * np.sqrt(level * (1 - level) / REPETITIONS)
            assert np.mean(values <= level) <= level + give + 0.01, (test, level)
            if test != "McNemar":  # an exact test of few differing images is cautious, not uniform
                assert np.mean(values <= level) >= level - give - 0.025, (test, level)


def test_the_check_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without made-up images and with a bootstrap blind to few clusters, intervals fall short, and the tally shows it."""
    from counterfoil.metrics import resample

    monkeypatch.setattr(resample.Resamples, "_pads", lambda self, statistic: {})
    monkeypatch.setattr(resample.Resamples, "_freedom", lambda self, statistic: 1e9)
    population = next(each for each in coverage.POPULATIONS if each.name == "hardly any loss")
    found = coverage.tally(population, 50, repetitions=100, resamples=400)
    assert found.coverage("FMR_matched") < 85


def test_a_populations_truth_is_what_its_images_come_to() -> None:
    for population in coverage.POPULATIONS:
        columns = population.draw(100_000, np.random.default_rng(0))
        sums = Sums({name: values.sum(keepdims=True).astype(float) for name, values in columns.items()})
        for name, statistic in coverage.STATISTICS.items():
            assert float(statistic.of(sums)[0]) == pytest.approx(population.truth()[name], abs=1.0), (population.name, name)
