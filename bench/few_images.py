"""How often intervals hold the truth with a handful of images: every outcome there can be, weighed by its chance.

    python -m bench.few_images [--images 5 6 8 10 12]

Ten images can come out in 3,003 ways: each is right or wrong before, and turned away, right or wrong after. Each way is handed
to the estimates that the product itself uses, so nothing hangs on which images were drawn. It prints Markdown tables;
docs/concepts/statistics.md keeps them. The command fails if an interval holds the truth in less than 93 of 100 cases.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement

import numpy as np
from bench.coverage import ACCURATE, HARDLY_HURT, LOW, NEARLY_LOST, REJECTED, USUAL, WEAK, Model
from numpy.typing import NDArray
from scipy.special import gammaln

from counterfoil.core.records import Estimate
from counterfoil.metrics.estimate import RESAMPLES, Resamples, estimate_one
from counterfoil.protocols.fmr.results import MEASURES

NAMES = ("FMR", "FMR_matched", "drop", "drop_matched")
MODELS = {
    "usual": USUAL, "accurate": ACCURATE, "weak": WEAK, "strict oracle": REJECTED, "hardly any loss": HARDLY_HURT,
    "nearly all lost": NEARLY_LOST,
}  # fmt: skip
KINDS = np.array([(1, 0, 0), (1, 1, 0), (1, 1, 1), (0, 0, 0), (0, 1, 0), (0, 1, 1)])
"""What can become of an image: right before, accepted, right after."""
SELDOM = 0.02  # of a model's runs; of fewer with an interval, its coverage says nothing


@dataclass(frozen=True)
class Held:
    """What all ways together come to, for one model and one statistic, in per cent."""

    given: float  # runs that have an interval
    coverage: float  # of these, whose interval holds the truth
    highest: float  # the bound that 99 of 100 of these stay below


def ways(images: int) -> NDArray[np.int64]:
    """How many images of each kind: all the ways to come out.  # (ways, kinds)"""
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
    return {name: estimate_one(drawn, MEASURES[name].statistic) for name in NAMES}


def chances(model: Model, every: NDArray[np.int64]) -> NDArray[np.float64]:
    """How likely each way is, for a model.  # (ways,)"""
    kinds = []
    for right, accepted, kept in zip((model.clean, 1 - model.clean), model.accepted, model.kept, strict=True):
        kinds += [right * (1 - accepted), right * accepted * (1 - kept), right * accepted * kept]
    logs = gammaln(every.sum(axis=1) + 1) - gammaln(every + 1).sum(axis=1) + every @ np.log(kinds)
    likely: NDArray[np.float64] = np.exp(logs)
    return likely


def held(found: Sequence[Estimate], likely: NDArray[np.float64], truth: float) -> Held:
    """The chances of the ways that have an interval, and of those whose interval holds the truth."""
    bounds = [(each.low, each.high, chance) for each, chance in zip(found, likely, strict=True) if each.low is not None]
    given = sum(chance for _, _, chance in bounds)
    inside = sum(chance for low, high, chance in bounds if low - 1e-9 <= truth <= high + 1e-9)  # type: ignore[operator]
    highs = sorted((high, chance) for _, high, chance in bounds)  # type: ignore[type-var]
    below = np.cumsum([chance for _, chance in highs]) / given if given else np.zeros(0)
    highest = highs[min(int(np.searchsorted(below, 0.99)), len(highs) - 1)][0] if highs else None
    return Held(100 * given, 100 * inside / given if given else float("nan"), float("nan") if highest is None else highest)


def table(images: int, *, resamples: int = RESAMPLES) -> dict[str, dict[str, Held]]:
    """By model and statistic."""
    every = ways(images)
    found = [estimates(way, seed=place, resamples=resamples) for place, way in enumerate(every)]
    return {
        title: {
            name: held([each[name] for each in found], chances(model, every), model.truth()[name]) for name in NAMES
        }
        for title, model in MODELS.items()
    }  # fmt: skip


def lines(tables: Mapping[int, Mapping[str, Mapping[str, Held]]]) -> Iterator[str]:
    """Coverage, with the share of runs that have an interval at all and how far it reaches."""
    yield "| images | model | " + " | ".join(NAMES) + " |"
    yield "|--:|---|" + "--:|" * len(NAMES)
    for images, models in tables.items():
        for title, each in models.items():
            yield f"| {images} | {title} | " + " | ".join(_cell(each[name]) for name in NAMES) + " |"


def _cell(found: Held) -> str:
    if found.given < 100 * SELDOM:
        return "no interval"
    some = "" if found.given > 99.5 else f" in {found.given:.0f} %"
    return f"{found.coverage:.1f}{some}, to {found.highest:.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, nargs="*", default=[5, 6, 8, 10, 12])
    tables = {images: table(images) for images in parser.parse_args().images}
    print("Coverage in per cent where there is an interval, in how many runs that is, and the bound that 99 of 100 stay below\n")
    print(*lines(tables), sep="\n")
    missed = [
        f"{title}, {images}: {name} covers {each.coverage:.1f}"
        for images, models in tables.items()
        for title, found in models.items()
        for name, each in found.items()
        if each.given >= 100 * SELDOM and each.coverage < LOW
    ]
    if missed:
        sys.exit("not as it should be: " + "; ".join(missed))


if __name__ == "__main__":
    main()
