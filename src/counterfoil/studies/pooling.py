"""Numbers pooled over models: accuracy by the number of surrogates, and harm over all cells of a transfer matrix.

An image is kept when all of k surrogates get it wrong. Accuracy on the kept images is taken for models that took no part:
not among the surrogates, and not the one the image was made against. All choices of k surrogates count alike. Intervals are
about other images; the models are taken as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.core.errors import UsageError
from counterfoil.core.records import Estimate
from counterfoil.metrics.estimate import Difference, Share, Statistic, estimate
from counterfoil.metrics.observations import NO, YES
from counterfoil.protocols.fmr.results import Outcomes
from counterfoil.protocols.fmr.transfer import HARM, harm_columns

_NONE = "no image that all of them miss"


@dataclass(frozen=True)
class Mined:
    """The images that k surrogates leave."""

    surrogates: int
    accuracy: Estimate  # of models that took no part, on the images that are kept
    kept: Estimate  # share of images
    gain: Estimate | None  # points of accuracy less than with one surrogate fewer


def mine(scored: Mapping[str, Mapping[str, Outcomes]], *, most: int | None = None, seed: int = 0) -> list[Mined]:
    """The numbers for 0, 1, 2, … surrogates, from `{made against: {model: outcomes}}`.

    A source image is drawn with all its images and all choices of surrogates; n counts source images.
    """
    models = sorted({model for row in scored.values() for model in row})
    if len(models) < 3:
        raise UsageError(f"surrogates: needs three models, so that one can take no part, got {', '.join(models) or 'none'}")
    counts = range(min(most if most is not None else len(models) - 2, len(models) - 2) + 1)
    columns: dict[str, list[NDArray[Any]]] = {}
    keys = [_keys(row) for row in scored.values()]
    for (against, row), shared in zip(scored.items(), keys, strict=True):
        right, known = _answers(row, shared)
        for count in counts:
            for name, column in _tally(against, right, known, models, count).items():
                columns.setdefault(f"{count} {name}", []).append(column)
    joined = {name: np.concatenate(parts) for name, parts in columns.items()}
    accuracy = {count: Share(f"{count} right", f"{count} kept", _NONE) for count in counts}
    statistics: dict[str, Statistic] = {}
    for count in counts:
        statistics[f"{count} accuracy"] = accuracy[count]
        statistics[f"{count} share"] = Share(f"{count} kept", f"{count} all", "no accepted image")
    statistics |= {f"{after} gain": Difference(accuracy[before], accuracy[after]) for before, after in pairwise(counts)}
    clusters = np.concatenate(keys)
    found = estimate(joined, statistics, seed=seed, clusters=clusters)
    images = {count: len(np.unique(clusters[joined[f"{count} kept"] > 0])) for count in counts}
    return [
        Mined(
            surrogates=count,
            accuracy=replace(found[f"{count} accuracy"], n=images[count]),
            kept=replace(found[f"{count} share"], n=images[0]),
            gain=replace(found[f"{count} gain"], n=images[count]) if count else None,
        )
        for count in counts
    ]


def _keys(row: Mapping[str, Outcomes]) -> NDArray[np.uint64]:
    return next(iter(row.values())).keys


def _answers(
    row: Mapping[str, Outcomes], keys: NDArray[np.uint64]
) -> tuple[dict[str, NDArray[np.bool_]], dict[str, NDArray[np.bool_]]]:
    """By model, whether it is right about each generated image, and whether it was asked and the oracle accepted it."""
    for outcomes in row.values():
        assert np.array_equal(outcomes.keys, keys), "all outcomes of a row are of one run"
    known = {name: (each.validated == YES) & (each.made_correct >= NO) for name, each in row.items()}
    return {name: known[name] & (each.made_correct == YES) for name, each in row.items()}, known


def _tally(
    against: str, right: Mapping[str, NDArray[np.bool_]], known: Mapping[str, NDArray[np.bool_]], models: list[str], count: int
) -> dict[str, NDArray[np.int64]]:
    """Summed over choices of surrogates and models that took no part, one row per image."""
    size = len(next(iter(known.values())))
    total = {name: np.zeros(size, dtype=np.int64) for name in ("all", "kept", "right")}
    for chosen in combinations([name for name in models if name in known], count):
        asked = np.ones(size, dtype=bool)
        missed = np.ones(size, dtype=bool)
        for name in chosen:
            asked &= known[name]
            missed &= known[name] & ~right[name]
        for other in known:
            if other not in chosen and other != against:
                total["all"] += asked & known[other]
                total["kept"] += missed & known[other]
                total["right"] += missed & right[other]
    return total


def pool(scored: Mapping[str, Mapping[str, Outcomes]], *, seed: int = 0) -> dict[str, Estimate]:
    """Harm over all cells of a matrix: to the models that images were made against, to the others, and the difference.

    A source image stands in many cells, and is drawn with all of them.
    """
    columns: dict[str, list[NDArray[Any]]] = {}
    keys: list[NDArray[np.uint64]] = []
    for against, row in scored.items():
        for model, outcomes in row.items():
            keys.append(outcomes.keys)
            for side in ("own", "other"):
                counted = side == ("own" if model == against else "other")
                for name, column in harm_columns(outcomes).items():
                    columns.setdefault(f"{side} {name}", []).append(column & counted)
    own, other = HARM.with_prefix("own "), HARM.with_prefix("other ")
    statistics: dict[str, Statistic] = {"own": own, "others": other, "spared": Difference(own, other)}
    joined = {name: np.concatenate(parts) for name, parts in columns.items()}
    return estimate(joined, statistics, seed=seed, clusters=np.concatenate(keys))
