"""The numbers of the LANCE protocol: how much accuracy a model loses when one factor of a picture is edited.

All are taken over pairs of a source picture and an edited one that passed quality control and in which the oracle still
sees the class. Edits of one source are drawn together in every interval and exchanged together in every test. A drop is
accuracy on the sources less accuracy on their edits, a source counting once for each of its edits; sensitivity is how far
the probability of the true class moves. The reconstruction is a control: what inverting and redrawing do without an edit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.core.records import LEVEL
from counterfoil.core.spec.lance import FACTORS
from counterfoil.metrics.bias import biases
from counterfoil.metrics.columns import NO, YES
from counterfoil.metrics.estimate import RESAMPLES, Difference, Mean, Resamples, Share, Statistic, estimate, estimate_one
from counterfoil.metrics.outcomes import part_name
from counterfoil.metrics.pairs import Pairs, Sources, read_pairs
from counterfoil.metrics.significance import holm, sign_flip
from counterfoil.store import Run
from counterfoil.store.stages import open_table
from counterfoil.store.stages.mapping import FOLDER

_NONE = "no edit that the oracle accepts"
MEANINGS = {
    "SA": "accuracy on the source images",
    "accuracy_source": "accuracy on the sources of the accepted edits, once for each edit",
    "accuracy_edited": "accuracy on the accepted edits",
    "drop": "accuracy_source less accuracy_edited: accuracy lost to the edits",
    "drop_reconstruction": "control: accuracy lost to inverting and redrawing alone",
    "sensitivity": "how far the probability of the true class moves, in points",
    "VR": "share of the edits that passed quality control in which the oracle sees the class",
}


def lance_results(run: Run, seed: int = 0, *, model: str | None = None, oracle: str | None = None) -> dict[str, Any]:
    """The content of `results.json`."""
    sources, pairs = read_pairs(run, model=model, oracle=oracle)
    counted = pairs.take(pairs.counted)
    return {
        "protocol": "lance",
        **_overall(sources, pairs, seed),
        "factors": by_factor(counted, seed=seed),
        "largest": largest_drop(counted, seed=seed),
        "per_class": _per_class(counted, seed),
        "bias": biases(run, counted, seed=seed),
        "funnel": funnel(run, pairs),
        "set": _set(run, pairs),
        "counts": _counts(sources, pairs),
        "model": {"name": pairs.model},
        "oracle": {"name": pairs.oracle, "clean_accuracy": _oracle_accuracy(sources, seed)},
        "interval": {"level": LEVEL, "resamples": RESAMPLES, "seed": seed},
    }


def columns_of(pairs: Pairs, prefix: str = "", rows: NDArray[np.bool_] | None = None) -> dict[str, NDArray[Any]]:
    """Zeros, ones and points, one row a counted pair, whose sums the statistics are made of."""
    chosen = np.ones(len(pairs), dtype=bool) if rows is None else rows
    return {
        f"{prefix}pairs": chosen,
        f"{prefix}clean_right": chosen & (pairs.clean_correct == YES),
        f"{prefix}made_right": chosen & (pairs.made_correct == YES),
        f"{prefix}reconstructed": chosen & (pairs.reconstruction_correct >= NO),
        f"{prefix}reconstruction_right": chosen & (pairs.reconstruction_correct == YES),
        f"{prefix}clean_right_reconstructed": chosen & (pairs.reconstruction_correct >= NO) & (pairs.clean_correct == YES),
        f"{prefix}moved": np.where(chosen, np.nan_to_num(pairs.sensitivity), 0.0),
    }


def columns_of_sources(sources: Sources) -> dict[str, NDArray[Any]]:
    """One row a source image: whether the model was asked about it, and is right."""
    return {"asked": sources.clean_correct >= NO, "right": sources.clean_correct == YES}


def columns_of_verdicts(pairs: Pairs) -> dict[str, NDArray[Any]]:
    """One row an edit that passed quality control: whether the oracle has decided on it, and accepts."""
    return {"judged": pairs.accepted >= NO, "accepted": pairs.accepted == YES}


def statistics_of(prefix: str = "") -> dict[str, Statistic]:
    """The statistics over columns of that prefix."""
    source, edited = Share(f"{prefix}clean_right", f"{prefix}pairs", _NONE), Share(f"{prefix}made_right", f"{prefix}pairs", _NONE)
    return {
        "accuracy_source": source,
        "accuracy_edited": edited,
        "drop": Difference(source, edited),
        "sensitivity": Mean(f"{prefix}moved", f"{prefix}pairs", _NONE, most=100),
    }


_NOT_REDRAWN = "no reconstruction was looked at"
STATISTICS: dict[str, Statistic] = {
    "SA": Share("right", "asked", "no source image that the model was asked about; an edit's source counts in accuracy_source"),
    **statistics_of(),
    "drop_reconstruction": Difference(
        Share("clean_right_reconstructed", "reconstructed", _NOT_REDRAWN),
        Share("reconstruction_right", "reconstructed", _NOT_REDRAWN),
    ),
    "VR": Share("accepted", "judged", "no edit that the oracle has decided on"),
}
"""The numbers over all edits, by name: in results, bars and comparisons the same."""


def by_factor(pairs: Pairs, *, seed: int = 0) -> dict[str, Any]:
    """The statistics for each factor that has a pair, and whether its drop can be chance, corrected for their number."""
    present = [factor for factor in FACTORS if (pairs.factor == factor).any()]
    columns: dict[str, NDArray[Any]] = {}
    for factor in present:
        columns |= columns_of(pairs, f"{factor} ", pairs.factor == factor)
    if not present:
        return {}
    drawn = Resamples(columns, clusters=pairs.image, seed=(seed, 10))
    tests = [drop_test(pairs.take(pairs.factor == factor)) for factor in present]
    entries = {}
    for factor, p, adjusted in zip(present, tests, holm(tests), strict=True):
        rows = pairs.factor == factor
        found = {name: estimate_one(drawn, each).to_dict() for name, each in statistics_of(f"{factor} ").items()}
        counts = {"edits": int(rows.sum()), "sources": len(np.unique(pairs.image[rows]))}
        entries[factor] = {**found, **counts, "p": p, "p_adjusted": adjusted}
    return entries


def drop_test(pairs: Pairs) -> float:
    """Exact two-sided p-value that edits change no answer but by chance: sources and edits exchanged, a source at a time."""
    change = (pairs.clean_correct == YES).astype(int) - (pairs.made_correct == YES).astype(int)
    _, places = np.unique(pairs.image, return_inverse=True)
    sums = np.zeros(int(places.max(initial=-1)) + 1, dtype=int)
    np.add.at(sums, places, change)
    return sign_flip(sums)


def largest_drop(pairs: Pairs, *, seed: int = 0) -> dict[str, Any] | None:
    """The factor with the largest drop, how far it is from the next, and whether that can be chance."""
    present = [factor for factor in FACTORS if (pairs.factor == factor).any()]
    if not present:
        return None
    columns: dict[str, NDArray[Any]] = {}
    for factor in present:
        columns |= columns_of(pairs, f"{factor} ", pairs.factor == factor)
    drawn = Resamples(columns, clusters=pairs.image, seed=(seed, 11))
    drops = {factor: statistics_of(f"{factor} ")["drop"] for factor in present}
    order = sorted(present, key=lambda factor: -float(drops[factor].of(drawn.observed)[0]))
    entry: dict[str, Any] = {"factor": order[0]}
    if len(order) > 1:
        lead = Difference(drops[order[0]], drops[order[1]])
        # One-sided, and times the number of rivals: any of the others could have been the nearest one. A single rival could have
        # led as well, so that counts for two.
        p = min(1.0, drawn.p_value(lead) / 2 * max(len(order) - 1, 2))
        entry |= {"next": order[1], "lead": estimate_one(drawn, lead).to_dict(), "p": p}
    return entry


def funnel(run: Run, pairs: Pairs) -> list[dict[str, Any]]:
    """What each stage let through, and what its checks turned away and why; the last is the oracle that is asked about."""
    found = []
    for stage in ("sources", "captions", "edits", "inversions", "pictures", "quality"):
        kept, turned = open_table(run.path / FOLDER, stage).counts()
        if kept or turned:
            found.append({"stage": stage, "in": kept + turned.total(), "kept": kept, "turned_away": dict(turned.most_common())})
    accepted, lost = int((pairs.accepted == YES).sum()), int((pairs.accepted == NO).sum())
    away = {name: count for name, count in (("class lost", lost), ("undecided", len(pairs) - accepted - lost)) if count}
    return [*found, {"stage": "oracle", "in": len(pairs), "kept": accepted, "turned_away": away}]


def _overall(sources: Sources, pairs: Pairs, seed: int) -> dict[str, Any]:
    counted = pairs.take(pairs.counted)
    clean = estimate(columns_of_sources(sources), {"SA": STATISTICS["SA"]}, seed=seed)
    of_pairs = {name: each for name, each in STATISTICS.items() if name not in ("SA", "VR")}
    found = estimate(columns_of(counted), of_pairs, clusters=counted.image, seed=(seed, 12))
    rate = estimate(columns_of_verdicts(pairs), {"VR": STATISTICS["VR"]}, clusters=pairs.image, seed=(seed, 13))
    return {name: each.to_dict() for name, each in {**clean, **found, **rate}.items()}


def _per_class(pairs: Pairs, seed: int) -> dict[str, Any]:
    entries: dict[str, Any] = {}
    for label in np.unique(pairs.label).tolist():
        own = pairs.take(pairs.label == label)
        columns, statistics = columns_of(own), {("", name): each for name, each in statistics_of().items()}
        for factor in FACTORS:
            if (own.factor == factor).any():
                columns |= columns_of(own, f"{factor} ", own.factor == factor)
                statistics |= {(factor, name): each for name, each in statistics_of(f"{factor} ").items()}
        named = {f"{factor}|{name}": each for (factor, name), each in statistics.items()}
        found = {
            key: each.to_dict() for key, each in estimate(columns, named, clusters=own.image, seed=(seed, 14, label)).items()
        }
        factors: dict[str, Any] = {}
        for key, entry in found.items():
            factor, _, name = key.partition("|")
            if factor:
                factors.setdefault(factor, {})[name] = entry
        overall = {key[1:]: entry for key, entry in found.items() if key.startswith("|")}
        entries[pairs.classes[label]] = {**overall, "edits": len(own), "factors": factors}
    return entries


def _set(run: Run, pairs: Pairs) -> dict[str, Any]:
    """What was measured of the set when it was made: over the edits that the run's own oracle accepted then, and it says so."""
    row = open_table(run.path / FOLDER, "set").one("set")
    if row is None:
        return {}
    found, own = dict(row.values), part_name(run.spec.get("oracle"))
    _, edits = found.get("frechet_pictures") or (0, 0)
    if pairs.oracle != own or edits != int((pairs.accepted == YES).sum()):
        when = f"of the {edits} edits that {own} accepted when they were made"
        found["frechet_note"] = "; ".join(filter(None, (found.get("frechet_note"), when)))
    return found


def _counts(sources: Sources, pairs: Pairs) -> dict[str, Any]:
    return {
        "images": len(sources.ids) + sources.skipped,
        "readable": len(sources.ids),
        "skipped": sources.skipped,
        "validated": len(np.unique(pairs.image[pairs.counted])),
        "edits": len(pairs),
        "accepted": int((pairs.accepted == YES).sum()),
        "rejected": int((pairs.accepted == NO).sum()),
        "pending": pairs.pending,
        "unscored": int(((pairs.accepted == YES) & ((pairs.clean_correct < NO) | (pairs.made_correct < NO))).sum()),
    }


def _oracle_accuracy(sources: Sources, seed: int) -> dict[str, Any]:
    columns = {"asked": sources.oracle_clean >= NO, "right": sources.oracle_clean == YES}
    share = {"clean": Share("right", "asked", "the oracle was not asked about source images")}
    return estimate(columns, share, seed=(seed, 3))["clean"].to_dict()
