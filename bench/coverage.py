"""How often 95 % intervals hold the truth, and how p-values fall where nothing differs: on made-up images with a known truth.

    python bench/coverage.py [--repetitions 2000] [--processes 2] [--population NAME …] [--images 50 5000]

Every repetition draws source images for two models, hands them to the estimates that the product itself uses, and looks
whether the intervals hold the true values. It prints Markdown tables; docs/intervals.md keeps those of a full run.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from counterfoil.metrics.estimate import RESAMPLES, estimate_one
from counterfoil.metrics.measures import MEASURES
from counterfoil.metrics.resample import Resamples
from counterfoil.metrics.significance import sign_flip
from counterfoil.metrics.statistic import Difference, Statistic

NAMES = ("SA", "PA", "FMR", "FMR_matched", "drop", "drop_matched")
MODELS = ("A ", "B ")
LEVELS = (0.01, 0.05, 0.1, 0.25, 0.5)

STATISTICS: dict[str, Statistic] = {
    **{name: MEASURES[name].statistic.prefixed("A ") for name in NAMES},
    **{f"Δ {name}": Difference(*(MEASURES[name].statistic.prefixed(model) for model in MODELS)) for name in NAMES},
}


@dataclass(frozen=True)
class Model:
    """Chances that decide what becomes of an image."""

    clean: float  # right on the source image
    accepted: tuple[float, float]  # the oracle accepts, for an image that was right / wrong
    kept: tuple[float, float]  # right on the made picture, for an image that was right / wrong

    def truth(self) -> dict[str, float]:
        """The true values, in per cent."""
        weights = (self.clean * self.accepted[0], (1 - self.clean) * self.accepted[1])
        made = (weights[0] * self.kept[0] + weights[1] * self.kept[1]) / sum(weights)
        matched = weights[0] / sum(weights)
        values = {
            "SA": self.clean, "PA": made, "FMR": made / self.clean, "FMR_matched": made / matched,
            "drop": self.clean - made, "drop_matched": matched - made,
        }  # fmt: skip
        return {name: 100 * value for name, value in values.items()}


@dataclass(frozen=True)
class Population:
    """Source images and two models. Equal models are the null hypothesis of a comparison."""

    name: str
    first: Model
    second: Model
    edits: tuple[int, ...] = (1,)  # pictures made of a source image, one of these numbers
    likeness: float = 0.0  # chance that a picture goes the way its source image's others go
    bond: float = 0.6  # chance that both models meet the same luck
    rare: bool = False  # an outcome so rare that 50 images hold only one or two of it

    @property
    def null(self) -> bool:
        return self.first == self.second

    def truth(self) -> dict[str, float]:
        """The true values of `STATISTICS`."""
        one, two = self.first.truth(), self.second.truth()
        return {**one, **{f"Δ {name}": one[name] - two[name] for name in one}}

    def draw(self, images: int, generator: np.random.Generator) -> dict[str, NDArray[Any]]:
        """One row a source image, summed over its pictures, as the metrics' columns."""
        count = generator.choice(self.edits, size=images)
        live = np.arange(max(self.edits)) < count[:, None]  # (images, edits)
        shared = _luck(images, live.shape[1], self.likeness, generator)
        columns: dict[str, NDArray[Any]] = {}
        for prefix, model in zip(MODELS, (self.first, self.second), strict=True):
            own = _luck(images, live.shape[1], self.likeness, generator)
            same = generator.random(images) < self.bond
            clean = np.where(same, shared[0], own[0])
            accept, keep = (np.where(same[:, None], *luck) for luck in zip(shared[1:], own[1:], strict=True))
            right = clean < model.clean
            accepted = live & (accept < np.where(right, *model.accepted)[:, None])
            made_right = (accepted & (keep < np.where(right, *model.kept)[:, None])).sum(axis=1)
            matched = accepted.sum(axis=1)
            columns |= {
                f"{prefix}clean": count, f"{prefix}clean_right": count * right,
                f"{prefix}made": matched, f"{prefix}made_right": made_right,
                f"{prefix}matched": matched, f"{prefix}matched_made_right": made_right,
                f"{prefix}matched_clean_right": matched * right,
            }  # fmt: skip
        return columns


def _luck(images: int, edits: int, likeness: float, generator: np.random.Generator) -> tuple[NDArray[Any], ...]:
    """Uniform numbers for the source image, and for whether its pictures are accepted and right."""

    def pictures() -> NDArray[Any]:
        alike = generator.random((images, edits)) < likeness
        return np.where(alike, generator.random((images, 1)), generator.random((images, edits)))

    return generator.random(images), pictures(), pictures()


USUAL = Model(0.8, (0.9, 0.6), (0.6, 0.1))
ACCURATE = Model(0.95, (0.98, 0.8), (0.3, 0.1))
REJECTED = Model(0.7, (0.6, 0.4), (0.7, 0.2))
HARDLY_HURT = Model(0.8, (0.9, 0.9), (0.97, 0.1))
NEARLY_LOST = Model(0.9, (0.8, 0.6), (0.05, 0.02))

POPULATIONS = (
    Population("usual", USUAL, USUAL),
    Population("accurate", ACCURATE, ACCURATE),
    Population("strict oracle", REJECTED, REJECTED),
    Population("unlike models", USUAL, replace(USUAL, clean=0.9, kept=(0.8, 0.2))),
    Population("1 to 6 edits an image", USUAL, USUAL, edits=(1, 2, 3, 4, 5, 6), likeness=0.6),
    Population("1, 2 or 8 edits", REJECTED, REJECTED, edits=(1, 2, 8), likeness=0.8),
    Population("accurate, 1, 2 or 8 edits", ACCURATE, ACCURATE, edits=(1, 2, 8), likeness=0.8, rare=True),
    Population("hardly any loss", HARDLY_HURT, HARDLY_HURT, rare=True),
    Population("nearly all lost", NEARLY_LOST, NEARLY_LOST, rare=True),
)


@dataclass(frozen=True)
class Tally:
    """What many repetitions came to, by statistic."""

    population: Population
    images: int
    repetitions: int
    below: dict[str, float]  # per cent of intervals that lie below the truth
    above: dict[str, float]
    p_values: dict[str, NDArray[np.float64]]

    def coverage(self, name: str) -> float:
        """Per cent of intervals that hold the truth."""
        return 100 - self.below[name] - self.above[name]

    def misses(self) -> list[str]:
        """The statistics whose coverage is not between 93 and 97 per cent; with rare outcomes, those below 93.

        Where 50 images hold one or two of an outcome, coverage goes in steps that no interval can smooth, and may be more.
        """
        most = 100 if self.population.rare else 97
        return [name for name in STATISTICS if not 93 <= self.coverage(name) <= most]


def tally(population: Population, images: int, *, repetitions: int, seed: int = 0, resamples: int = RESAMPLES) -> Tally:
    """Draw, estimate and look, many times."""
    truth = population.truth()
    below, above = (dict.fromkeys(STATISTICS, 0.0) for _ in range(2))
    p_values: dict[str, list[float]] = {"McNemar": []} if population.null else {}
    for repetition in range(repetitions):
        columns = population.draw(images, np.random.default_rng((seed, crc32(population.name.encode()), images, repetition)))
        drawn = Resamples(columns, seed=(seed, repetition), resamples=resamples)
        for name, statistic in STATISTICS.items():
            found = estimate_one(drawn, statistic)
            if found.low is None or found.high is None:  # nothing accepted, or nothing right: no interval to judge
                continue
            below[name] += 100 * (found.high < truth[name] - 1e-9) / repetitions
            above[name] += 100 * (found.low > truth[name] + 1e-9) / repetitions
            if population.null and name.startswith("Δ"):
                p_values.setdefault(name, []).append(drawn.p_value(statistic))
        if population.null:
            p_values["McNemar"].append(sign_flip(columns["A clean_right"] - columns["B clean_right"]))
    return Tally(population, images, repetitions, below, above, {name: np.array(values) for name, values in p_values.items()})


def coverage_table(tallies: list[Tally]) -> Iterator[str]:
    """One row a population and number of images, one column a statistic."""
    yield "| images | population | " + " | ".join(STATISTICS) + " |"
    yield "|--:|---|" + "--:|" * len(STATISTICS)
    for each in tallies:
        cells = " | ".join(f"{each.coverage(name):.1f}" for name in STATISTICS)
        yield f"| {each.images:,} | {each.population.name} | {cells} |"


def p_value_table(tallies: list[Tally]) -> Iterator[str]:
    """Per cent of p-values at or under each level, where the models are equal."""
    yield "| images | population | test | " + " | ".join(f"p ≤ {level:g}" for level in LEVELS) + " |"
    yield "|--:|---|---|" + "--:|" * len(LEVELS)
    for each in tallies:
        for name, values in each.p_values.items():
            cells = " | ".join(f"{100 * np.mean(values <= level):.1f}" for level in LEVELS)
            yield f"| {each.images:,} | {each.population.name} | {name} | {cells} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=2000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--population", nargs="*", default=[each.name for each in POPULATIONS])
    parser.add_argument("--images", type=int, nargs="*", default=[50, 5000])
    options = parser.parse_args()
    chosen = [each for each in POPULATIONS if each.name in options.population]
    began = time.monotonic()
    with ProcessPoolExecutor(options.processes) as pool:
        waiting = [
            pool.submit(tally, each, images, repetitions=options.repetitions) for images in options.images for each in chosen
        ]
        tallies = [each.result() for each in waiting]
    for title, some in (
        ("Coverage in per cent", [each for each in tallies if not each.population.rare]),
        ("Coverage in per cent, with rare outcomes", [each for each in tallies if each.population.rare]),
    ):
        if some:
            print(f"{title}, {options.repetitions} repetitions\n", *coverage_table(some), "", sep="\n")
    print("P-values where the models are equal, in per cent\n", *p_value_table(tallies), sep="\n")
    print(f"\n{time.monotonic() - began:.0f} s with {options.processes} processes")
    missed = [
        f"{each.population.name}, {each.images}: {name} {each.coverage(name):.1f}" for each in tallies for name in each.misses()
    ]
    if missed:
        sys.exit("outside 93 to 97 per cent: " + "; ".join(missed))


if __name__ == "__main__":
    main()
