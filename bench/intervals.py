"""Measure the coverage of 95 % intervals, and the spread of p-values under no difference, on made-up images with a known truth.

    python -m bench.intervals populations [--repetitions 2000] [--processes 2] [--population NAME …] [--images 50 5000]
    python -m bench.intervals others [--repetitions 1000] [--images 60 300]
    python -m bench.intervals few [--images 5 6 8 10 12]

`populations` draws source images for two models with chances of all kinds, hands them to the estimates that the product itself
uses, and looks whether the intervals hold the true values. `others` does so for every other statistic that is printed with an
interval. `few` goes through every way in which a handful of images can come out, weighed by its chance. All print Markdown tables
for docs and fail where an interval falls short. Where an outcome is rare, the exact coverage of textbook intervals says what can
be had: with n images an accuracy takes n + 1 values, and those that never fall short cover too often.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations_with_replacement
from typing import Any
from zlib import crc32

import numpy as np
from bench.results import add_keep, command, keep
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.special import betaincinv, gammaln, ndtri
from scipy.stats import binom, kstest

from counterfoil.core.records import Estimate
from counterfoil.metrics.estimate import RESAMPLES, Difference, Floats, Resamples, Statistic, estimate, estimate_one, sign_flip
from counterfoil.metrics.observations import Measure, Observations
from counterfoil.metrics.slices import slices
from counterfoil.protocols.fmr.results import _AUDIT, MEASURES
from counterfoil.protocols.fmr.results import STATISTICS as FMR
from counterfoil.protocols.fmr.transfer import EVERY
from counterfoil.protocols.imagenet_d import results as imagenet_d
from counterfoil.protocols.imagenet_d.surrogates import _accuracy
from counterfoil.protocols.lance.bias import _STATISTICS as GROUPS
from counterfoil.protocols.lance.realism import _geometric
from counterfoil.protocols.lance.results import STATISTICS as LANCE
from counterfoil.protocols.lance.results import statistics_of
from counterfoil.studies.oracles import Standardised
from counterfoil.web.tally import agreement

# Textbook intervals


ALPHA = 0.05
_Z = float(-ndtri(ALPHA / 2))

Bounds = tuple[Floats, Floats]


def wilson(right: NDArray[np.int64], n: int) -> Bounds:
    """The score interval of a share (Wilson, 1927)."""
    share = right / n
    middle = (share + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
    reach = _Z / (1 + _Z**2 / n) * np.sqrt(share * (1 - share) / n + _Z**2 / (4 * n**2))
    return middle - reach, middle + reach


def clopper_pearson(right: NDArray[np.int64], n: int) -> Bounds:
    """The exact interval of a share (Clopper and Pearson, 1934), which never covers less often than it says."""
    low = np.where(right > 0, betaincinv(np.maximum(right, 1), n - right + 1, ALPHA / 2), 0.0)
    high = np.where(right < n, betaincinv(right + 1, np.maximum(n - right, 1), 1 - ALPHA / 2), 1.0)
    return low, high


def share_coverage(truth: float, n: int, interval: Callable[[NDArray[np.int64], int], Bounds]) -> float:
    """Measure how often the interval of a share of `n` images holds the truth, in per cent."""
    right = np.arange(n + 1)
    low, high = interval(right, n)
    return float(100 * binom.pmf(right, n, truth)[(low <= truth) & (truth <= high)].sum())


def tango_coverage(first: float, second: float, n: int) -> float:
    """Measure how often the score interval of a paired difference (Tango, 1998) holds it, in per cent.

    `first` and `second` are the chances that only the one and only the other answer is right.
    """
    return _paired_chance(first, second, n, lambda b, c: np.abs(_tango(b, c, n, first - second)) <= _Z)


def mcnemar_coverage(differ: float, n: int) -> float:
    """Measure how often McNemar's exact test does not reject where both answers are equally good, in per cent.

    An interval that leaves out zero only where this test rejects holds the truth as often.
    """

    def holds(b: NDArray[np.int64], c: NDArray[np.int64]) -> NDArray[np.bool_]:
        kept: NDArray[np.bool_] = np.minimum(1.0, 2 * binom.cdf(np.minimum(b, c), b + c, 0.5)) > ALPHA
        return kept

    return _paired_chance(differ / 2, differ / 2, n, holds)


def over_accepted(coverage: Callable[[int], float], images: int, accepted: float) -> float:
    """The mean over how many of the images the oracle may accept; none leaves nothing to cover."""
    counts = np.arange(1, images + 1)
    chances = binom.pmf(counts, images, accepted)
    likely = chances > 1e-9
    found = sum(chance * coverage(int(count)) for count, chance in zip(counts[likely], chances[likely], strict=True))
    return float(found / chances[likely].sum())


def _paired_chance(first: float, second: float, n: int, holds: Callable[..., NDArray[np.bool_]]) -> float:
    b, c = _pairs(n)
    chances = binom.pmf(b, n, first) * binom.pmf(c, n - b, second / (1 - first))
    return float(100 * chances[holds(b, c)].sum())


@cache
def _pairs(n: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Every number of images that only the one and only the other answer is right about."""
    b, c = (each.ravel() for each in np.indices((n + 1, n + 1)))
    return b[b + c <= n], c[b + c <= n]


def _tango(b: NDArray[np.int64], c: NDArray[np.int64], n: int, difference: float) -> Floats:
    """Tango's score statistic that the paired difference is `difference`."""
    square, linear = 2.0 * n, -b - c + (2 * n - b + c) * difference
    constant = -c * difference * (1 - difference)
    nuisance = (np.sqrt(np.maximum(linear**2 - 4 * square * constant, 0)) - linear) / (2 * square)
    variance = n * (2 * nuisance + difference * (1 - difference))
    excess = b - c - n * difference
    score: Floats = np.divide(excess, np.sqrt(np.maximum(variance, 0)), out=np.zeros(len(b)), where=variance > 1e-12)
    return score


# Populations: two models, source images with one or several edits

COVERS = ("src/counterfoil/metrics/estimate.py",)
LOW, HIGH = 93, 97
FEW = 100  # images in which an outcome can be rare
NAMES = ("SA", "PA", "FMR", "FMR_matched", "drop", "drop_matched")
MODELS = ("A ", "B ")
LEVELS = (0.01, 0.05, 0.1, 0.25, 0.5)
RESAMPLED = ("Δ FMR", "Δ FMR_matched", "Δ drop", "Δ drop_matched")  # accuracies are tested exactly instead

STATISTICS: dict[str, Statistic] = {
    **{name: MEASURES[name].statistic.with_prefix("A ") for name in NAMES},
    **{f"Δ {name}": Difference(*(MEASURES[name].statistic.with_prefix(model) for model in MODELS)) for name in NAMES},
}


@dataclass(frozen=True)
class Model:
    """Chances that decide what becomes of an image."""

    clean: float  # right on the source image
    accepted: tuple[float, float]  # the oracle accepts, for an image that was right / wrong
    kept: tuple[float, float]  # right on the generated image, for an image that was right / wrong

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


_SHARES = {"score (Wilson)": wilson, "exact (Clopper–Pearson)": clopper_pearson}


@dataclass(frozen=True)
class Population:
    """Source images and two models. Equal models are the null hypothesis of a comparison."""

    name: str
    first: Model
    second: Model
    edits: tuple[int, ...] = (1,)  # images made of a source image, one of these numbers
    likeness: float = 0.0  # chance that an image goes the way its source image's others go
    bond: float = 0.6  # chance that both models meet the same luck
    rare: bool = False  # an outcome so rare that 50 images hold only one or two of it

    @property
    def null(self) -> bool:
        return self.first == self.second

    @cache  # noqa: B019 — a handful of populations, as long as the process
    def references(self, images: int) -> dict[str, dict[str, float]]:
        """Exact coverage of textbook intervals, by statistic, where a source image has one image; of Δ SA in any case."""
        differ = 2 * (1 - self.bond) * self.first.clean * (1 - self.first.clean)
        found = {
            "Δ SA": {
                "score (Tango)": tango_coverage(differ / 2, differ / 2, images),
                "exact (McNemar)": mcnemar_coverage(differ, images),
            }
        }
        if self.edits == (1,):
            accepted, made, lost, won = self.first.chances()

            def of_accepted(name: str) -> float:
                return over_accepted(lambda n: share_coverage(made, n, _SHARES[name]), images, accepted)

            drop = over_accepted(lambda n: tango_coverage(lost, won, n), images, accepted)
            found["SA"] = {name: share_coverage(self.first.clean, images, each) for name, each in _SHARES.items()}
            found["PA"] = {name: of_accepted(name) for name in _SHARES}
            found["drop_matched"] = {"score (Tango)": drop}
        return found

    @property
    def exact(self) -> str:
        """The test of accuracies: McNemar's, or with several images per source image its generalisation."""
        return "McNemar" if self.edits == (1,) else "sign flip"

    def truth(self) -> dict[str, float]:
        """The true values of `STATISTICS`."""
        one, two = self.first.truth(), self.second.truth()
        return {**one, **{f"Δ {name}": one[name] - two[name] for name in one}}

    def draw(self, images: int, generator: np.random.Generator) -> dict[str, NDArray[Any]]:
        """One row per source image, summed over its images, as the metrics' columns."""
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
    """Uniform numbers for the source image, and for whether its images are accepted and right."""

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
    """Totals over many repetitions, by statistic."""

    population: Population
    images: int
    repetitions: int
    below: dict[str, float]  # per cent of intervals that lie below the truth
    above: dict[str, float]
    p_values: dict[str, NDArray[np.float64]]

    def coverage(self, name: str) -> float:
        """Per cent of intervals that hold the truth."""
        return 100 - self.below[name] - self.above[name]

    def table(self) -> dict[str, float]:
        """The coverage of every statistic, to one decimal."""
        return {name: round(self.coverage(name), 1) for name in STATISTICS}

    def misses(self) -> list[str]:
        """Return what is not as it should be: coverage out of bounds, p-values that are not uniform."""
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
        """Return the distance of p-values from uniform (Kolmogorov and Smirnov); of an exact test, only its excess counts."""
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
            if found.low is None or found.high is None:  # a ratio of few images: no interval to judge, see `few`
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
    """Coverage next to the exact one of textbook intervals, where outcomes are rare."""
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


# Every other printed interval

LEAST = 92.0  # per cent: below, an interval falls short by more than chance over a thousand repetitions
Found = Mapping[str, tuple[Estimate, float]]
"""By statistic, the estimate of one repetition and the truth."""


def fmr(draw: Generator, images: int, seed: int) -> Found:
    """Shares, ratios and means of FMR, its controls and its audit."""
    clean, accepted = draw.random(images) < 0.9, draw.random(images) < 0.8
    made, plain, random = (draw.random(images) < share for share in (0.4, 0.85, 0.7))
    random_accepted, sees = draw.random(images) < 0.75, draw.random(images) < 0.95
    moved = draw.random(images) < 0.9
    steps, random_steps = draw.integers(0, 11, images), draw.integers(0, 11, images)
    columns: dict[str, Any] = {
        "clean": np.ones(images), "clean_right": clean, "judged": np.ones(images), "accepted": accepted,
        "made": accepted, "made_right": accepted & made, "matched": accepted, "matched_made_right": accepted & made,
        "matched_clean_right": accepted & clean, "reconstruction": accepted, "reconstruction_right": accepted & plain,
        "moved": accepted & moved, "moved_asked": accepted & moved, "moved_right": accepted & moved & made,
        "random_accepted": random_accepted, "random": random_accepted, "random_right": random_accepted & random,
        "steps": accepted * steps, "random_steps": random_accepted * random_steps,
    }  # fmt: skip
    truth = {
        "SA": 90.0, "PA": 40.0, "FMR": 100 * 0.4 / 0.9, "SA_matched": 90.0, "FMR_matched": 100 * 0.4 / 0.9, "VR": 80.0,
        "VR_first": 72.0, "PA_moved": 40.0, "FMR_moved": 100 * 0.4 / 0.9,
        "PA_reconstruction": 85.0, "PA_random": 70.0, "FMR_random": 100 * 0.7 / 0.9, "steps": 5.0, "steps_random": 5.0,
    }  # fmt: skip
    found = {name: (each, truth[name]) for name, each in estimate(columns, FMR, seed=seed).items()}
    audit = {
        "oracle_asked": np.ones(images), "oracle_right": sees, "judged": np.ones(images), "rejected": ~accepted,
        "decided": np.ones(images), "clean_right": clean, "right_if_lost": accepted & made,
        "right_if_kept": (accepted & made) | (~accepted & clean),
    }  # fmt: skip
    kept = 0.8 * 0.4 + 0.2 * 0.9
    known = {
        "clean_accuracy": 95,
        "lost": 20,
        "PA_kept": 100 * kept,
        "PA_lost": 32,
        "FMR_kept": 100 * kept / 0.9,
        "FMR_lost": 32 / 0.9,
    }
    found |= {f"audit {name}": (each, float(known[name])) for name, each in estimate(audit, _AUDIT, seed=seed).items()}
    harmed = {"both": accepted, "both_before_right": accepted & plain, "both_made_right": accepted & made}
    return {**found, "harm": (estimate(harmed, {"": EVERY["harm"].statistic}, seed=seed)[""], 45.0)}


def lance(draw: Generator, images: int, seed: int) -> Found:
    """Accuracies, drops and sensitivity over one to six edits per source, and a group of them."""
    image = np.repeat(np.arange(images), draw.integers(1, 7, images))
    luck = draw.random(images)[image]
    alike = draw.random(len(image)) < 0.5
    clean = draw.random(images)[image] < 0.9
    made = np.where(alike, luck, draw.random(len(image))) < 0.6
    plain = draw.random(images)[image] < 0.85
    moved = 100 * draw.beta(1, 4, len(image))
    ones = np.ones(len(image), dtype=bool)
    columns: dict[str, Any] = {
        "pairs": ones, "clean_right": clean, "made_right": made, "reconstructed": ones, "reconstruction_right": plain,
        "clean_right_reconstructed": clean, "moved": moved, "judged": ones, "accepted": made,
    }  # fmt: skip
    truth = {"accuracy_source": 90, "accuracy_edited": 60, "drop": 30, "sensitivity": 20, "drop_reconstruction": 5, "VR": 60}
    wanted = {name: each for name, each in LANCE.items() if name in truth}
    found = {name: (each, float(truth[name])) for name, each in estimate(columns, wanted, clusters=image, seed=seed).items()}
    inside = draw.random(len(image)) < 0.3
    group = {
        "group": inside, "moved": np.where(inside, moved, 0), "before": inside & clean, "after": inside & made,
        "others": ~inside, "moved_others": np.where(inside, 0, moved),
    }  # fmt: skip
    known = {"sensitivity": 20.0, "drop": 30.0, "others": 20.0}
    half = np.arange(len(image)) % 2 == 0
    factors = {
        f"{name} {column}": values * side for name, side in (("a", half), ("b", ~half)) for column, values in columns.items()
    }
    lead = Difference(statistics_of("a ")["drop"], statistics_of("b ")["drop"])
    sources = {"asked": np.ones(images), "right": draw.random(images) < 0.9}
    return {
        **found,
        "SA": (estimate(sources, {"": LANCE["SA"]}, seed=seed)[""], 90.0),
        "lead": (estimate(factors, {"": lead}, clusters=image, seed=seed)[""], 0.0),
        **{f"group {name}": (each, known[name]) for name, each in estimate(group, GROUPS, clusters=image, seed=seed).items()},
    }


def others(draw: Generator, images: int, seed: int) -> Found:
    """FMR by class, accuracy by the number of surrogates, perplexity, and agreement of reviewers."""
    classes, kept, accepting = 6, np.linspace(0.2, 0.8, 6), np.linspace(0.4, 0.95, 6)
    label = draw.integers(classes, size=images)
    clean, accepted, made = draw.random(images) < 0.9, draw.random(images) < accepting[label], draw.random(images) < kept[label]
    strata: dict[str, Any] = {}
    parts = []
    for at in range(classes):
        mine = label == at
        if (mine & accepted).any():
            strata |= {f"{at} made": mine & accepted, f"{at} made_right": mine & accepted & made}
            strata |= {f"{at} clean": mine, f"{at} clean_right": mine & clean}
            parts.append(FMR["FMR"].with_prefix(f"{at} "))
    by_class = estimate(strata, {"": Standardised(tuple(parts))}, seed=seed)[""]
    sets = [draw.random(images) < 0.5 for _ in range(4)]
    right = np.mean([draw.random(images) < share for share in (0.3, 0.5)], axis=0)
    by_number = Estimate.from_dict(_accuracy(sets, right, np.arange(images), seed=(seed,))["accuracy"])
    perplexity = _geometric(np.exp(draw.normal(3, 0.8, images)).tolist())
    votes = {at: [bool(each) for each in draw.random(3) < (0.9 if at % 2 else 0.2)] for at in range(images)}
    agreed = agreement(votes, seed=seed, resamples=1000)
    agree = float(np.mean([0.9**2 + 0.1**2, 0.2**2 + 0.8**2]))
    alpha = 1 - (1 - agree) / (2 * 0.55 * 0.45)  # of 55 % yes in all
    return {
        "FMR_by_class": (by_class, float(100 * kept.mean() / 0.9)), "accuracy by number of surrogates": (by_number, 40.0),
        "perplexity": (perplexity, float(np.exp(3))), "raw agreement": (agreed.raw, 100 * agree), "alpha": (agreed.alpha, alpha),
    }  # fmt: skip


def imagenet_d_world(draw: Generator, images: int, seed: int) -> Found:
    """ImageNet-D: three images per prompt, those of a prompt alike; mined ones are harder. And slices of the same images."""
    prompt = np.repeat(np.arange(images), 3)
    mined = draw.random(images)[prompt] < 0.5
    luck = np.where(draw.random(len(prompt)) < 0.5, draw.random(images)[prompt], draw.random(len(prompt)))
    right = luck < np.where(mined, 0.3, 0.8)
    columns = {"painted": np.ones(len(prompt)), "painted_right": right, "mined": mined, "mined_right": mined & right}
    wanted = {"painted": imagenet_d.PAINTED, "mined": imagenet_d.MINED, "drop": imagenet_d.DROP}
    truth = {
        "painted": 55.0,
        "mined": 30.0,
        "drop": 25.0,
        "truth_first": 80.0,
        "truth_second": 60.0,
        "consistent": 56.0,
        "bias": 20.0,
    }
    first, second = draw.random(images) < 0.8, draw.random(images) < 0.6
    ones = np.ones(images, dtype=bool)
    asked = {"first": ones, "first_right": first, "second": ones, "second_right": second, "both": ones, "same": first == second}
    found = {**estimate(columns, wanted, clusters=prompt, seed=seed), **estimate(asked, imagenet_d._ORDER, seed=seed)}
    measure = Measure("accuracy", imagenet_d.PAINTED, "")
    group = np.where(mined, "hard", "easy").astype(object)
    rows = Observations("m", np.arange(len(prompt), dtype=np.uint64), columns, {"kind": group}, cluster=prompt, seed=seed)
    known = {"hard": (30.0, -50.0), "easy": (80.0, 50.0)}
    every = {name: (each, truth[name]) for name, each in found.items()}
    for each in slices(rows, measure):
        name = each.where[0][1]
        every |= {
            f"slice {name}": (each.inside, known[name][0]),
            f"slice {name} against the rest": (each.difference, known[name][1]),
        }
    return every


WORLDS: Mapping[str, Callable[[Generator, int, int], Found]] = {
    "fmr": fmr,
    "lance": lance,
    "painted": imagenet_d_world,
    "others": others,
}


def world_tally(world: str, images: int, *, repetitions: int) -> dict[str, tuple[float, float, int]]:
    """By statistic: per cent of intervals that hold the truth, their mean width, and the number of intervals."""
    held: dict[str, list[bool]] = {}
    widths: dict[str, list[float]] = {}
    for repetition in range(repetitions):
        for name, (found, truth) in WORLDS[world](np.random.default_rng((repetition, images)), images, repetition).items():
            if found.low is not None and found.high is not None:
                held.setdefault(name, []).append(found.low - 1e-9 <= truth <= found.high + 1e-9)
                widths.setdefault(name, []).append(found.width)
    return {name: (100 * float(np.mean(each)), float(np.mean(widths[name])), len(each)) for name, each in held.items()}


# Few images

RATIOS = ("FMR", "FMR_matched", "drop", "drop_matched")
MODELS_OF_FEW = {
    "usual": USUAL, "accurate": ACCURATE, "weak": WEAK, "strict oracle": REJECTED, "hardly any loss": HARDLY_HURT,
    "nearly all lost": NEARLY_LOST,
}  # fmt: skip
KINDS = np.array([(1, 0, 0), (1, 1, 0), (1, 1, 1), (0, 0, 0), (0, 1, 0), (0, 1, 1)])
"""Possible outcomes of an image: right before, accepted, right after."""
SELDOM = 0.02  # of a model's runs; of fewer with an interval, its coverage says nothing


@dataclass(frozen=True)
class HeldOfFew:
    """Totals over all outcomes, for one model and one statistic, in per cent."""

    given: float  # runs that have an interval
    coverage: float  # of these, whose interval holds the truth
    highest: float  # the bound that 99 of 100 of these stay below


def ways(images: int) -> NDArray[np.int64]:
    """Measure how many images of each kind: all the ways to come out.  # (ways, kinds)"""
    kinds = range(len(KINDS))
    return np.array([np.bincount(each, minlength=len(KINDS)) for each in combinations_with_replacement(kinds, images)])


def estimates(way: NDArray[np.int64], *, seed: int, resamples: int = RESAMPLES) -> dict[str, Estimate]:
    """The product's own, of a run that came out in this way."""
    right, accepted, made = np.repeat(KINDS, way, axis=0).T
    columns = {
        "clean": np.ones(len(right)), "clean_right": right, "made": accepted, "made_right": made, "matched": accepted,
        "matched_made_right": made, "matched_clean_right": accepted * right,
    }  # fmt: skip
    drawn = Resamples(columns, seed=seed, resamples=resamples)
    return {name: estimate_one(drawn, MEASURES[name].statistic) for name in RATIOS}


def chances(model: Model, every: NDArray[np.int64]) -> NDArray[np.float64]:
    """Describe how likely each way is, for a model.  # (ways,)"""
    kinds = []
    for right, accepted, kept in zip((model.clean, 1 - model.clean), model.accepted, model.kept, strict=True):
        kinds += [right * (1 - accepted), right * accepted * (1 - kept), right * accepted * kept]
    logs = gammaln(every.sum(axis=1) + 1) - gammaln(every + 1).sum(axis=1) + every @ np.log(kinds)
    likely: NDArray[np.float64] = np.exp(logs)
    return likely


def held_of_few(found: Sequence[Estimate], likely: NDArray[np.float64], truth: float) -> HeldOfFew:
    """The chances of the ways that have an interval, and of those whose interval holds the truth."""
    bounds = [(each.low, each.high, chance) for each, chance in zip(found, likely, strict=True) if each.low is not None]
    given = sum(chance for _, _, chance in bounds)
    inside = sum(chance for low, high, chance in bounds if low - 1e-9 <= truth <= high + 1e-9)  # type: ignore[operator]
    highs = sorted((high, chance) for _, high, chance in bounds)  # type: ignore[type-var]
    below = np.cumsum([chance for _, chance in highs]) / given if given else np.zeros(0)
    highest = highs[min(int(np.searchsorted(below, 0.99)), len(highs) - 1)][0] if highs else None
    return HeldOfFew(100 * given, 100 * inside / given if given else float("nan"), float("nan") if highest is None else highest)


def few_table(images: int, *, resamples: int = RESAMPLES) -> dict[str, dict[str, HeldOfFew]]:
    """By model and statistic."""
    every = ways(images)
    found = [estimates(way, seed=place, resamples=resamples) for place, way in enumerate(every)]
    return {
        title: {
            name: held_of_few([each[name] for each in found], chances(model, every), model.truth()[name]) for name in RATIOS
        }
        for title, model in MODELS_OF_FEW.items()
    }  # fmt: skip


def few_lines(tables: Mapping[int, Mapping[str, Mapping[str, HeldOfFew]]]) -> Iterator[str]:
    """Coverage, with the share of runs that have an interval at all and how far it reaches."""
    yield "| images | model | " + " | ".join(RATIOS) + " |"
    yield "|--:|---|" + "--:|" * len(RATIOS)
    for images, models in tables.items():
        for title, each in models.items():
            yield f"| {images} | {title} | " + " | ".join(_cell(each[name]) for name in RATIOS) + " |"


def _cell(found: HeldOfFew) -> str:
    if found.given < 100 * SELDOM:
        return "no interval"
    some = "" if found.given > 99.5 else f" in {found.given:.0f} %"
    return f"{found.coverage:.1f}{some}, to {found.highest:.0f}"


def _populations(options: argparse.Namespace) -> list[str]:
    chosen = [each for each in POPULATIONS if each.name in (options.population or [every.name for every in POPULATIONS])]
    repetitions, began = options.repetitions or 2000, time.monotonic()
    with ProcessPoolExecutor(options.processes) as pool:
        waiting = [
            pool.submit(tally, each, images, repetitions=repetitions)
            for images in options.images or (50, 5000)
            for each in chosen
        ]
        tallies = [each.result() for each in waiting]
    usual, rare = ([each for each in tallies if each.population.rare is kind] for kind in (False, True))
    times = f"{repetitions} repetitions"
    if usual:
        print(f"Coverage in per cent, {times}\n", *coverage_table(usual), "", sep="\n")
    if rare:
        print(f"Coverage in per cent with rare outcomes, {times}\n", *coverage_table(rare), "", sep="\n")
        few = [each for each in rare if each.images <= FEW]
        print("The same with the exact coverage of textbook intervals\n", *reference_table(few), "", sep="\n")
    print("P-values where the models are equal, in per cent\n", *p_value_table(tallies), sep="\n")
    print(f"\nuniform ones are farther than {tallies[0].farthest:.3f} away once in ten thousand times")
    if options.keep:
        for end, some in (("", usual), ("_rare", rare)):
            rows = [
                {
                    "images": each.images,
                    "population": each.population.name,
                    **{name: round(each.coverage(name), 1) for name in STATISTICS},
                }
                for each in some
            ]
            about = f"How often 95 % intervals hold the truth, in per cent, over {times}; Δ is one model less another, paired."
            keep(options.keep + end, rows, command=command("bench.intervals"), about=about, covers=COVERS)
    worked = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{time.monotonic() - began:.0f} s with {options.processes} processes, {worked.ru_utime:.0f} s of processor time")
    return [f"{each.population.name}, {each.images}: {miss}" for each in tallies for miss in each.misses()]


def _others(options: argparse.Namespace) -> list[str]:
    repetitions, began, missed, rows = options.repetitions or 1000, time.monotonic(), [], []
    print("| images | statistic | coverage, % | mean width |\n|--:|---|--:|--:|")
    with ProcessPoolExecutor(options.processes) as pool:
        waiting = [
            (images, pool.submit(world_tally, world, images, repetitions=repetitions))
            for images in options.images or (60, 300)
            for world in WORLDS
        ]
        for images, tallied in waiting:
            for name, (share, width, _) in tallied.result().items():
                print(f"| {images} | {name} | {share:.1f} | {width:.1f} |", flush=True)
                rows.append({"images": images, "statistic": name, "coverage, %": round(share, 1), "mean width": round(width, 1)})
                if share < LEAST - 300 * np.sqrt(0.95 * 0.05 / repetitions):
                    missed.append(f"{name}, {images}: {share:.1f}")
    print(f"\n{repetitions} repetitions, {time.monotonic() - began:.0f} s")
    if options.keep:
        about = f"Coverage and width of every other interval that is printed, over {repetitions} repetitions."
        keep(options.keep, rows, command=command("bench.intervals"), about=about, covers=COVERS)
    return missed


def _few(options: argparse.Namespace) -> list[str]:
    tables = {images: few_table(images) for images in options.images or (5, 6, 8, 10, 12)}
    print("Coverage in per cent where there is an interval, in how many runs that is, and the bound that 99 of 100 stay below\n")
    print(*few_lines(tables), sep="\n")
    return [
        f"{title}, {images}: {name} covers {each.coverage:.1f}"
        for images, models in tables.items()
        for title, found in models.items()
        for name, each in found.items()
        if each.given >= 100 * SELDOM and each.coverage < LOW
    ]


def main() -> None:
    """Print the tables of one part, and fail where an interval falls short."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = {"populations": _populations, "others": _others, "few": _few}
    parser.add_argument("part", choices=parts, nargs="?", default="populations")
    parser.add_argument("--repetitions", type=int)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--population", nargs="*")
    parser.add_argument("--images", type=int, nargs="*")
    add_keep(parser)
    options = parser.parse_args()
    if missed := parts[options.part](options):
        sys.exit("not as it should be: " + "; ".join(missed))


if __name__ == "__main__":
    main()
