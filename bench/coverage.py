"""How often 95 % intervals hold the truth, and how p-values fall where nothing differs: on made-up images with a known truth.

    python -m bench.coverage [--repetitions 2000] [--processes 2] [--population NAME …] [--images 50 5000]

Every repetition draws source images for two models, hands them to the estimates that the product itself uses, and looks
whether the intervals hold the true values. It prints Markdown tables; bench/results/intervals.json keeps a full run. Where an
outcome is rare, bench/reference.py says what textbook intervals reach.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kstest

from bench import reference
from counterfoil.metrics.estimate import RESAMPLES, Difference, Resamples, Statistic, estimate_one
from counterfoil.metrics.significance import sign_flip
from counterfoil.protocols.fmr.results import MEASURES

LOW, HIGH = 93, 97
FEW = 100  # images in which an outcome can be rare
NAMES = ("SA", "PA", "FMR", "FMR_matched", "drop", "drop_matched")
MODELS = ("A ", "B ")
LEVELS = (0.01, 0.05, 0.1, 0.25, 0.5)
RESAMPLED = ("Δ FMR", "Δ FMR_matched", "Δ drop", "Δ drop_matched")  # accuracies are tested exactly instead

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

    def chances(self) -> tuple[float, float, float, float]:
        """That an image is accepted; of accepted ones, that it is right afterwards, that it was lost, and that it was won."""
        right, wrong = self.clean * self.accepted[0], (1 - self.clean) * self.accepted[1]
        accepted = right + wrong
        lost, won = right * (1 - self.kept[0]) / accepted, wrong * self.kept[1] / accepted
        return accepted, right / accepted - lost + won, lost, won


_SHARES = {"score (Wilson)": reference.wilson, "exact (Clopper–Pearson)": reference.clopper_pearson}


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

    @cache  # noqa: B019 — a handful of populations, as long as the process
    def references(self, images: int) -> dict[str, dict[str, float]]:
        """Exact coverage of textbook intervals, by statistic, where a source image has one picture; of Δ SA in any case."""
        differ = 2 * (1 - self.bond) * self.first.clean * (1 - self.first.clean)
        found = {
            "Δ SA": {
                "score (Tango)": reference.tango_coverage(differ / 2, differ / 2, images),
                "exact (McNemar)": reference.mcnemar_coverage(differ, images),
            }
        }
        if self.edits == (1,):
            accepted, made, lost, won = self.first.chances()

            def of_accepted(name: str) -> float:
                return reference.over_accepted(lambda n: reference.share_coverage(made, n, _SHARES[name]), images, accepted)

            drop = reference.over_accepted(lambda n: reference.tango_coverage(lost, won, n), images, accepted)
            found["SA"] = {name: reference.share_coverage(self.first.clean, images, each) for name, each in _SHARES.items()}
            found["PA"] = {name: of_accepted(name) for name in _SHARES}
            found["drop_matched"] = {"score (Tango)": drop}
        return found

    @property
    def exact(self) -> str:
        """The test of accuracies: McNemar's, or with several pictures a source image its generalisation."""
        return "McNemar" if self.edits == (1,) else "sign flip"

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
WEAK = Model(0.35, (0.85, 0.6), (0.5, 0.1))
ACCURATE = Model(0.95, (0.98, 0.8), (0.3, 0.1))
REJECTED = Model(0.7, (0.6, 0.4), (0.7, 0.2))
HARDLY_HURT = Model(0.8, (0.9, 0.9), (0.97, 0.1))
NEARLY_LOST = Model(0.9, (0.8, 0.6), (0.05, 0.02))

POPULATIONS = (
    Population("usual", USUAL, USUAL),
    Population("accurate", ACCURATE, ACCURATE),
    Population("weak", WEAK, WEAK),
    Population("strict oracle", REJECTED, REJECTED),
    Population("unlike models", USUAL, replace(USUAL, clean=0.9, kept=(0.8, 0.2))),
    Population("1 to 6 edits an image", USUAL, USUAL, edits=(1, 2, 3, 4, 5, 6), likeness=0.6),
    Population("1, 2 or 8 edits", REJECTED, REJECTED, edits=(1, 2, 8), likeness=0.8),
    Population("accurate, 1, 2 or 8 edits", ACCURATE, ACCURATE, edits=(1, 2, 8), likeness=0.8, rare=True),
    Population("hardly any loss", HARDLY_HURT, HARDLY_HURT, rare=True),
    Population("hardly any loss, 6 edits", HARDLY_HURT, HARDLY_HURT, edits=(6,), likeness=0.6, rare=True),
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
        """What is not as it should be: coverage out of bounds, p-values that are not uniform."""
        found = [
            f"{name} covers {self.coverage(name):.1f}, {low:g} to {high:.1f} asked"
            for name in STATISTICS
            for low, high in [self.bounds(name)]
            if not low <= self.coverage(name) <= high
        ]
        if not self.population.rare:
            found += [
                f"p-values of {name} are {far:.3f} from uniform"
                for name in self.p_values
                for far in [self.distance(name)]
                if far > self.farthest
            ]
        return found

    def bounds(self, name: str) -> tuple[float, float]:
        """Between what coverage should lie: 93 and 97; with rare outcomes up to what textbook intervals come to, give or take.

        Where 50 images hold one or two of an outcome, coverage goes in steps that no interval can smooth.
        """
        if not self.population.rare or self.images > FEW:  # nothing is rare in many images
            return LOW, HIGH
        known = self.population.references(self.images).get(name)
        return LOW, 100 if known is None else max(HIGH, max(known.values()) + 1)

    def distance(self, name: str) -> float:
        """How far the p-values are from uniform (Kolmogorov and Smirnov); of an exact test, how far it rejects too often."""
        side = "greater" if name == self.population.exact else "two-sided"
        return float(kstest(self.p_values[name], "uniform", alternative=side).statistic)

    @property
    def farthest(self) -> float:
        """A distance that uniform p-values exceed once in ten thousand times, as many are looked at."""
        return float(np.sqrt(np.log(2 / 1e-4) / (2 * self.repetitions)))


def tally(population: Population, images: int, *, repetitions: int, seed: int = 0, resamples: int = RESAMPLES) -> Tally:
    """Draw, estimate and look, many times."""
    truth = population.truth()
    below, above = (dict.fromkeys(STATISTICS, 0.0) for _ in range(2))
    p_values: dict[str, list[float]] = {name: [] for name in (population.exact, *RESAMPLED)} if population.null else {}
    for repetition in range(repetitions):
        columns = population.draw(images, np.random.default_rng((seed, crc32(population.name.encode()), images, repetition)))
        drawn = Resamples(columns, seed=(seed, repetition), resamples=resamples)
        for name, statistic in STATISTICS.items():
            found = estimate_one(drawn, statistic)
            if found.value is None:  # nothing accepted, or nothing right
                continue
            if name in p_values:
                p_values[name].append(drawn.p_value(statistic))
            if found.low is None or found.high is None:  # a ratio of few images: no interval to judge, see few_images.py
                continue
            below[name] += 100 * (found.high < truth[name] - 1e-9) / repetitions
            above[name] += 100 * (found.low > truth[name] + 1e-9) / repetitions
        if population.null:
            p_values[population.exact].append(sign_flip(columns["A clean_right"] - columns["B clean_right"]))
    return Tally(population, images, repetitions, below, above, {name: np.array(values) for name, values in p_values.items()})


def coverage_table(tallies: list[Tally]) -> Iterator[str]:
    """One row a population and number of images, one column a statistic."""
    yield "| images | population | " + " | ".join(STATISTICS) + " |"
    yield "|--:|---|" + "--:|" * len(STATISTICS)
    for each in tallies:
        cells = " | ".join(f"{each.coverage(name):.1f}" for name in STATISTICS)
        yield f"| {each.images:,} | {each.population.name} | {cells} |"


def reference_table(tallies: list[Tally]) -> Iterator[str]:
    """Coverage beside the exact one of textbook intervals, where outcomes are rare."""
    yield "| images | population | statistic | here | score interval | exact interval |"
    yield "|--:|---|---|--:|--:|--:|"
    for each in tallies:
        for name, known in each.population.references(each.images).items():
            score, exact = (
                next((f"{value:.1f} {label.partition(' ')[2]}" for label, value in known.items() if label.startswith(kind)), "–")
                for kind in ("score", "exact")
            )
            yield f"| {each.images:,} | {each.population.name} | {name} | {each.coverage(name):.1f} | {score} | {exact} |"


def p_value_table(tallies: list[Tally]) -> Iterator[str]:
    """Per cent of p-values at or under each level, where the models are equal, and how far they are from uniform."""
    yield "| images | population | test | " + " | ".join(f"p ≤ {level:g}" for level in LEVELS) + " | distance |"
    yield "|--:|---|---|" + "--:|" * (len(LEVELS) + 1)
    for each in tallies:
        for name, values in each.p_values.items():
            cells = " | ".join(f"{100 * np.mean(values <= level):.1f}" for level in LEVELS)
            yield f"| {each.images:,} | {each.population.name} | {name} | {cells} | {each.distance(name):.3f} |"


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
    usual, rare = ([each for each in tallies if each.population.rare is kind] for kind in (False, True))
    times = f"{options.repetitions} repetitions"
    if usual:
        print(f"Coverage in per cent, {times}\n", *coverage_table(usual), "", sep="\n")
    if rare:
        print(f"Coverage in per cent with rare outcomes, {times}\n", *coverage_table(rare), "", sep="\n")
        few = [each for each in rare if each.images <= FEW]
        print("The same beside the exact coverage of textbook intervals\n", *reference_table(few), "", sep="\n")
    print("P-values where the models are equal, in per cent\n", *p_value_table(tallies), sep="\n")
    print(f"\nuniform ones are farther than {tallies[0].farthest:.3f} away once in ten thousand times")
    worked = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{time.monotonic() - began:.0f} s with {options.processes} processes, {worked.ru_utime:.0f} s of processor time")
    missed = [f"{each.population.name}, {each.images}: {miss}" for each in tallies for miss in each.misses()]
    if missed:
        sys.exit("not as it should be: " + "; ".join(missed))


if __name__ == "__main__":
    main()
