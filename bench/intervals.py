"""Count how often 95 % intervals hold the truth, and how p-values spread under no difference, on simulated images.

    python -m bench.intervals populations [--repetitions 2000] [--processes 2] [--population NAME …] [--images 50 5000]
    python -m bench.intervals others [--repetitions 1000] [--images 60 300]
    python -m bench.intervals few [--images 5 6 8 10 12]

`populations` draws source images for two models and hands them to the estimates that the product itself uses. `others` does so
for every other statistic that is printed with an interval. `few` goes through every way in which a handful of images can come
out, weighed by its chance. All fail where an interval falls short. Results are kept as NAME, p-values as NAME_p_values.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations_with_replacement
from typing import Any
from zlib import crc32

import numpy as np
from bench.results import add_keep, command, keep, print_checked
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.stats import kstest, multinomial

from counterfoil.core.records import Estimate
from counterfoil.metrics.estimate import RESAMPLES, Difference, Resamples, Statistic, estimate, estimate_one, sign_flip
from counterfoil.metrics.observations import Measure, Observations
from counterfoil.metrics.slices import slices
from counterfoil.protocols.fmr.results import _AUDIT, MEASURES
from counterfoil.protocols.fmr.results import STATISTICS as FMR
from counterfoil.protocols.fmr.transfer import EVERY
from counterfoil.protocols.imagenet_d import results as imagenet_d
from counterfoil.protocols.imagenet_d.analyses import _accuracy
from counterfoil.protocols.lance.answers import _geometric
from counterfoil.protocols.lance.bias import _STATISTICS as GROUPS
from counterfoil.protocols.lance.results import STATISTICS as LANCE
from counterfoil.protocols.lance.results import statistics_of
from counterfoil.studies.oracles import Standardised
from counterfoil.web.tally import agreement

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

    def misses(self) -> list[str]:
        """Name coverage out of bounds and p-values that are not uniform.

        Where 50 images hold one or two of an outcome, coverage goes in steps that no interval can smooth: it may be higher.
        """
        top = 100 if self.population.rare and self.images <= FEW else HIGH
        values = {name: self.coverage(name) for name in STATISTICS}
        found = [f"{name} covers {value:.1f}, {LOW} to {top} asked" for name, value in values.items() if not LOW <= value <= top]
        far = {} if self.population.rare else {name: self.distance(name) for name in self.p_values}
        return found + [f"p-values of {name} are {each:.3f} from uniform" for name, each in far.items() if each > self.farthest]

    def row(self) -> dict[str, Any]:
        """The coverage of every statistic."""
        covered = {name: round(self.coverage(name), 1) for name in STATISTICS}
        return {"images": self.images, "population": self.population.name, **covered}

    def p_rows(self) -> Iterator[dict[str, Any]]:
        """Per cent of p-values at or under each level where the models are equal, and their distance from uniform."""
        for name, values in self.p_values.items():
            levels = {f"p ≤ {level:g}": round(100 * float(np.mean(values <= level)), 1) for level in LEVELS}
            row = {"images": self.images, "population": self.population.name, "test": name, **levels}
            yield {**row, "distance": round(self.distance(name), 3)}

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
        "clean_accuracy": 95, "lost": 20, "PA_kept": 100 * kept, "PA_lost": 32, "FMR_kept": 100 * kept / 0.9,
        "FMR_lost": 32 / 0.9,
    }  # fmt: skip
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
        "painted": 55.0, "mined": 30.0, "drop": 25.0, "truth_first": 80.0, "truth_second": 60.0, "consistent": 56.0, "bias": 20.0,
    }  # fmt: skip
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
        every[f"slice {name}"] = (each.inside, known[name][0])
        every[f"slice {name} against the rest"] = (each.difference, known[name][1])
    return every


World = Callable[[Generator, int, int], Found]
WORLDS: Mapping[str, World] = {"fmr": fmr, "lance": lance, "painted": imagenet_d_world, "others": others}


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
MODELS_OF_FEW = {each.name: each.first for each in POPULATIONS if each.null and each.edits == (1,)}
KINDS = np.array([(1, 0, 0), (1, 1, 0), (1, 1, 1), (0, 0, 0), (0, 1, 0), (0, 1, 1)])
"""Possible outcomes of an image: right before, accepted, right after."""
SELDOM = 2  # per cent of a model's runs; of fewer with an interval, its coverage says nothing


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
    """Chance of each way to come out, for a model.  # (ways,)"""
    kinds: list[float] = []
    for right, accepted, kept in zip((model.clean, 1 - model.clean), model.accepted, model.kept, strict=True):
        kinds += [right * (1 - accepted), right * accepted * (1 - kept), right * accepted * kept]
    likely: NDArray[np.float64] = multinomial.pmf(every, every[0].sum(), kinds)
    return likely


def few_table(images: int, *, resamples: int = RESAMPLES) -> dict[str, dict[str, tuple[float, float]]]:
    """By model and statistic: per cent of runs that have an interval, and of these, whose interval holds the truth."""
    every = ways(images)
    found = [estimates(way, seed=place, resamples=resamples) for place, way in enumerate(every)]
    table: dict[str, dict[str, tuple[float, float]]] = {}
    for title, model in MODELS_OF_FEW.items():
        likely, truth = chances(model, every), model.truth()
        for name in RATIOS:
            low, high = (np.array([getattr(each[name], end) for each in found], dtype=float) for end in ("low", "high"))
            given = likely[~np.isnan(low)].sum()
            held = likely[(low - 1e-9 <= truth[name]) & (truth[name] <= high + 1e-9)].sum()
            table.setdefault(title, {})[name] = (100 * given, 100 * held / given if given else math.nan)
    return table


Row = tuple[dict[str, Any], str]
"""A row to print and keep, and what is wrong with it."""


def population_rows(pool: ProcessPoolExecutor, options: argparse.Namespace) -> Iterator[Row]:
    chosen = [each for each in POPULATIONS if each.name in (options.population or [every.name for every in POPULATIONS])]
    jobs = [(each, images) for images in options.images or (50, 5000) for each in chosen]
    count = partial(tally, repetitions=options.repetitions or 2000)
    p_rows: list[dict[str, Any]] = []
    for found in pool.map(count, *zip(*jobs, strict=True)):
        yield found.row(), "; ".join(f"{found.population.name}, {found.images}: {miss}" for miss in found.misses())
        p_rows += found.p_rows()
        if options.keep:
            about = "P-values of equal models: per cent at or under each level, and the largest distance from uniform."
            keep(f"{options.keep}_p_values", p_rows, command=command("bench.intervals"), about=about, covers=COVERS)


def other_rows(pool: ProcessPoolExecutor, options: argparse.Namespace) -> Iterator[Row]:
    repetitions = options.repetitions or 1000
    jobs = [(world, images) for images in options.images or (60, 300) for world in WORLDS]
    least = LEAST - 300 * np.sqrt(0.95 * 0.05 / repetitions)
    for (_, images), found in zip(jobs, pool.map(partial(world_tally, repetitions=repetitions), *zip(*jobs)), strict=True):  # noqa: B905
        for name, (share, width, _) in found.items():
            row = {"images": images, "statistic": name, "coverage, %": round(share, 1), "mean width": round(width, 1)}
            yield row, f"{name}, {images}: {share:.1f}" if share < least else ""


def few_rows(pool: ProcessPoolExecutor, options: argparse.Namespace) -> Iterator[Row]:
    counts = options.images or (5, 6, 8, 10, 12)
    for images, models in zip(counts, pool.map(few_table, counts), strict=True):
        for title, found in models.items():
            judged = {name: held for name, (given, held) in found.items() if given >= SELDOM}
            cells = {name: f"{held:.1f} in {found[name][0]:.0f} %" for name, held in judged.items()}
            short = [name for name, held in judged.items() if held < LOW]
            row = {"images": images, "model": title, **dict.fromkeys(RATIOS, "no interval"), **cells}
            yield row, f"{title}, {images}: {', '.join(short)} too low" if short else ""


PARTS = {
    "populations": (
        population_rows,
        "Per cent of 95 % intervals that hold the truth; Δ is one model less another, paired.",
    ),
    "others": (other_rows, "Coverage and mean width of every other interval that is printed."),
    "few": (
        few_rows,
        "Coverage over all outcomes of a few images, and in how many runs there is an interval.",
    ),
}


def main() -> None:
    """Print the rows of one part, and fail where an interval falls short."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS, nargs="?", default="populations")
    parser.add_argument("--repetitions", type=int)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--population", nargs="*")
    parser.add_argument("--images", type=int, nargs="*")
    add_keep(parser)
    options = parser.parse_args()
    rows, about = PARTS[options.part]
    with ProcessPoolExecutor(options.processes) as pool:
        print_checked(rows(pool, options), options.keep, command=command("bench.intervals"), about=about, covers=COVERS)


if __name__ == "__main__":
    main()
