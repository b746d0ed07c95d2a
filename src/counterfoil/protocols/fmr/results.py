"""FMR's numbers: what became of each source image, accuracies with their controls, the oracle's audit, accuracy by step.

SA is the accuracy on the source images, PA that on the images made of them, FMR = PA / SA. As published, SA is taken over
all images and PA over those whose generated image the oracle accepts; these are easier, so FMR can exceed 100 though
nothing was gained. FMR_matched takes both over the accepted images. Two controls say what of a loss is not the search's
doing: PA_reconstruction, what the generator breaks by itself, and PA_random, what steps in random directions break: as many
of equal length, or, by `search.control: distance`, as far as the guided climb.

The audit bounds what rejected images hide: `kept`, where the model's answer on the source image stands (Algorithm 1 itself puts
the source image in the place of the made one), and `lost`, where every such image counts as wrong. Both are taken over all
decided images, SA too. The bounds hold as long as making an image turns no wrong answer into a right one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.core.naming import part_name
from counterfoil.core.records import LEVEL, Estimate
from counterfoil.metrics.estimate import (
    RESAMPLES,
    Difference,
    Mean,
    Ratio,
    Seed,
    Share,
    Statistic,
    estimate,
    mcnemar,
    median,
    stored_p,
)
from counterfoil.metrics.observations import (
    NO,
    OPEN,
    YES,
    Measure,
    Observations,
    Undecided,
    class_column,
)
from counterfoil.protocols.fmr.outcomes import Outcomes, read_outcomes
from counterfoil.store import Run

_NONE = "no readable image that the model was asked about"
_NONE_ACCEPTED = "the oracle accepted no image"
_NO_CONTROL = "no random control, or the oracle accepted none of it"
_ALL_WRONG = "SA is 0: there is no accuracy to keep a share of"
_UNDECIDED = "no image the oracle has decided on"
_LOST_MATCHED = "accuracy lost on the images whose generated image the oracle accepts"

_SA = Share("clean_right", "clean", _NONE)
_PA = Share("made_right", "made", _NONE_ACCEPTED)
_PA_RANDOM = Share("random_right", "random", _NO_CONTROL)
_PA_MOVED = Share("moved_right", "moved_asked", "the oracle accepted no image's first step")
_SA_MATCHED = Share("matched_clean_right", "matched", _NONE_ACCEPTED)

STATISTICS: dict[str, Statistic] = {
    "SA": _SA,
    "PA": _PA,
    "FMR": Ratio(_PA, _SA, _ALL_WRONG),
    "SA_matched": _SA_MATCHED,
    "FMR_matched": Ratio(Share("matched_made_right", "matched", _NONE_ACCEPTED), _SA_MATCHED, _ALL_WRONG),
    "VR": Share("accepted", "judged", _UNDECIDED),
    "VR_first": Share("moved", "judged", _UNDECIDED),
    "PA_moved": _PA_MOVED,
    "FMR_moved": Ratio(_PA_MOVED, _SA, _ALL_WRONG),
    "PA_reconstruction": Share("reconstruction_right", "reconstruction", _NONE_ACCEPTED),
    "PA_random": _PA_RANDOM,
    "FMR_random": Ratio(_PA_RANDOM, _SA, _ALL_WRONG),
    "steps": Mean("steps", "accepted", _NONE_ACCEPTED),
    "steps_random": Mean("random_steps", "random_accepted", _NO_CONTROL),
}
"""Every estimate of the protocol; per class the same."""

MEANINGS = {
    "SA": "accuracy on the source images",
    "PA": "accuracy on the images made against the model, where the oracle accepts them",
    "FMR": "PA as a share of SA, as published",
    "SA_matched": "accuracy on the source images whose generated image the oracle accepts",
    "FMR_matched": "PA as a share of SA on the same images",
    "VR": "share of images whose generated image the oracle accepts",
    "VR_first": "the same after the first step, as the paper's validation rate is meant",
    "PA_moved": "PA without the images whose first step the oracle rejected, which keep their reconstruction",
    "FMR_moved": "PA_moved as a share of SA",
    "PA_reconstruction": "control: accuracy on the generator's plain reconstruction of the same images",
    "PA_random": "control: accuracy after steps in random directions",
    "FMR_random": "control: PA_random as a share of SA",
    "steps": "steps taken before the oracle or the budget ended it",
    "steps_random": "the same for random directions",
}
"""The sentence for each number, in the order people read them."""

DISTANCES = {
    "guided": "median distance from the start after guided steps, in the generator's scale",
    "random": "median distance from the start after random steps",
}

MEASURES: Mapping[str, Measure] = {
    **{name: Measure(name, each, MEANINGS[name]) for name, each in STATISTICS.items()},
    "drop": Measure("drop", Difference(_SA, _PA), "SA less PA", higher_is_better=False),
    "drop_matched": Measure("drop_matched", Difference(_SA_MATCHED, _PA), _LOST_MATCHED, higher_is_better=False),
}
"""Everything in a run's results, and the accuracy drops, published and matched as FMR is."""

_CLEAN_ACCURACY = Share("oracle_right", "oracle_asked", "the oracle was not asked about source images")
_KEPT = Share("right_if_kept", "decided", _UNDECIDED)
_LOST = Share("right_if_lost", "decided", _UNDECIDED)
_DECIDED = Share("clean_right", "decided", _UNDECIDED)
_AUDIT: dict[str, Statistic] = {
    "clean_accuracy": _CLEAN_ACCURACY,
    "lost": Share("rejected", "judged", _UNDECIDED),
    "PA_kept": _KEPT,
    "PA_lost": _LOST,
    "FMR_kept": Ratio(_KEPT, _DECIDED, _ALL_WRONG),
    "FMR_lost": Ratio(_LOST, _DECIDED, _ALL_WRONG),
}
_AUDIT_PER_CLASS: dict[str, Statistic] = {
    "clean_accuracy": _CLEAN_ACCURACY,
    "acceptance": Share("accepted", "judged", _UNDECIDED),
}
AUDIT_MEANINGS = {
    "clean_accuracy": "how often the oracle sees the label in the source image",
    "lost": "share of images that the oracle rejected: the plain reconstruction or, judging later, the generated image",
    "FMR_lost": "FMR over the same images, if a lost one counts as wrong: the lower bound",
    "FMR_kept": "FMR over the same images, if a lost one keeps its answer: the upper bound",
    "PA_lost": "PA over all images, if a lost one counts as wrong",
    "PA_kept": "PA over all images, if a lost one keeps the model's answer on its source image",
}

_NONE_IN_BOTH = "no image that the oracle accepts in both arms"
_FOUND = Difference(Share("random_right", "both", _NONE_IN_BOTH), Share("guided_right", "both", _NONE_IN_BOTH))


def observe(run: Run, *, model: str | None = None, oracle: str | None = None) -> Observations:
    """Read a run as one row per source image, with the numbers that stand in its results."""
    seed = int(run.spec.get("seed", 0))
    stored = run.results if model in (None, part_name(run.spec.get("model"))) and oracle is None else None
    found = observations_of(read_outcomes(run, model=model, oracle=oracle), seed=seed)
    kept = {name: Estimate.from_dict(stored[name]) for name in STATISTICS if name in stored} if stored else {}
    return replace(found, estimates=kept)


def observations_of(outcomes: Outcomes, *, seed: Seed = 0) -> Observations:
    """Outcomes in the form that comparisons read."""
    return Observations(
        outcomes.model,
        outcomes.keys,
        columns={**columns_of(outcomes), **_further_columns(outcomes)},
        oracle=outcomes.oracle,
        groups={"class": class_column(outcomes.classes, outcomes.label)},
        cluster=outcomes.source,
        undecided=Undecided(outcomes.pending, "image", outcomes.oracle, "in SA alone"),
        seed=seed,
    )


def fmr_results(source: Run | Outcomes, seed: int = 0, *, model: str | None = None, oracle: str | None = None) -> dict[str, Any]:
    """Compute the content of `results.json`, for a run or for outcomes read from one."""
    outcomes = source if isinstance(source, Outcomes) else read_outcomes(source, model=model, oracle=oracle)
    audited = audit(outcomes, seed=seed)
    return {
        **_plain(scores(outcomes, seed=seed)),
        "curve": curve(outcomes, seed=seed),
        "per_class": per_class(outcomes, seed=seed),
        "counts": counts(outcomes),
        "model": {"name": outcomes.model},
        "oracle": {"name": outcomes.oracle, "clean_accuracy": audited["clean_accuracy"]},
        "audit": audited,
        "arms": {"against_random": against_random(outcomes, seed=seed), "distance": _plain(distances(outcomes))},
        "interval": {"level": LEVEL, "resamples": RESAMPLES, "seed": seed},
    }


def scores(outcomes: Outcomes, *, seed: Seed = 0) -> dict[str, Estimate]:
    """Estimate all statistics over the given images, from the same resamples."""
    return estimate(columns_of(outcomes), STATISTICS, seed=seed)


def curve(outcomes: Outcomes, *, seed: int = 0) -> list[dict[str, Any]]:
    """Accuracy on accepted images after each step, for both arms; empty for a model that did not lead the search."""
    if not (width := outcomes.path_correct.shape[1]):
        return []
    columns: dict[str, NDArray[Any]] = {}
    statistics: dict[str, Statistic] = {}
    for arm, validated, path, empty in (
        ("guided", outcomes.validated, outcomes.path_correct, _NONE_ACCEPTED),
        ("random", outcomes.random_validated, outcomes.random_path_correct, _NO_CONTROL),
    ):
        for step in range(width):
            known = f"{arm} {step}"
            columns[known] = (validated == YES) & (path[:, step] >= NO)
            columns[f"{known} right"] = columns[known] & (path[:, step] == YES)
            statistics[known] = Share(f"{known} right", known, empty)
    found = _plain(estimate(columns, statistics, seed=(seed, 1)))
    return [{"step": step, "guided": found[f"guided {step}"], "random": found[f"random {step}"]} for step in range(width)]


def per_class(outcomes: Outcomes, *, seed: int = 0) -> dict[str, Any]:
    """All statistics for each class that has a readable image, with its number of images."""
    entries: dict[str, Any] = {}
    for label, name in outcomes.class_names.items():
        rows = outcomes.take(outcomes.label == label)
        entries[name] = {**_plain(scores(rows, seed=(seed, 2, label))), "images": len(rows)}
    return entries


def counts(outcomes: Outcomes) -> dict[str, Any]:
    """Count images by what became of them."""
    accepted = outcomes.validated == YES
    return {
        "images": len(outcomes) + outcomes.skipped,
        "readable": len(outcomes),
        "skipped": outcomes.skipped,
        "validated": int(np.count_nonzero(accepted)),
        "unmoved": int(np.count_nonzero(accepted & (outcomes.steps == 0))),
        "rejected": int(np.count_nonzero(outcomes.validated == NO)),
        "pending": outcomes.pending,
        "unscored": int(np.count_nonzero((outcomes.clean_correct < NO) | (accepted & (outcomes.made_correct < NO)))),
        "endings": {arm: dict(endings) for arm, endings in outcomes.endings.items()},
    }


def columns_of(outcomes: Outcomes) -> dict[str, NDArray[Any]]:
    """One row per image: zeros and ones, and steps, whose sums the statistics are made of."""
    accepted, random_accepted = outcomes.validated == YES, outcomes.random_validated == YES
    clean = outcomes.clean_correct >= NO
    made = accepted & (outcomes.made_correct >= NO)
    moved = accepted & ~(outcomes.stopped & (outcomes.steps == 0))
    reconstruction = accepted & (outcomes.reconstruction_correct >= NO)
    random = random_accepted & (outcomes.random_made_correct >= NO)
    clean_right, made_right = outcomes.clean_correct == YES, outcomes.made_correct == YES
    return {
        "clean": clean,
        "clean_right": clean & clean_right,
        "judged": outcomes.validated != OPEN,
        "accepted": accepted,
        "made": made,
        "made_right": made & made_right,
        "moved": moved,
        "moved_asked": moved & made,
        "moved_right": moved & made & made_right,
        "matched": made & clean,
        "matched_made_right": made & clean & made_right,
        "matched_clean_right": made & clean & clean_right,
        "reconstruction": reconstruction,
        "reconstruction_right": reconstruction & (outcomes.reconstruction_correct == YES),
        "random_accepted": random_accepted,
        "random": random,
        "random_right": random & (outcomes.random_made_correct == YES),
        "steps": np.where(accepted, outcomes.steps, 0),
        "random_steps": np.where(random_accepted, outcomes.random_steps, 0),
    }


def _further_columns(outcomes: Outcomes) -> dict[str, NDArray[Any]]:
    """Columns of the measures in `transfer`."""
    accepted, judged, made = outcomes.validated == YES, outcomes.validated != OPEN, outcomes.made_correct
    both = accepted & (outcomes.reconstruction_correct >= NO) & (made >= NO)
    whole = accepted & ~outcomes.stopped & (made >= NO) & (outcomes.clean_correct >= NO)
    return {
        "both": both,
        "both_before_right": both & (outcomes.reconstruction_correct == YES),
        "both_made_right": both & (made == YES),
        "stopped": judged & ~(accepted & ~outcomes.stopped),
        "whole": whole,
        "whole_made_right": whole & (made == YES),
        "whole_clean_right": whole & (outcomes.clean_correct == YES),
        "oracle_asked": outcomes.oracle_clean >= NO,
        "oracle_right": outcomes.oracle_clean == YES,
    }


def audit(outcomes: Outcomes, *, seed: int = 0) -> dict[str, Any]:
    """The oracle under audit: its accuracy on source images, and FMR with the images it rejected."""
    columns = _audit_columns(outcomes)
    found = estimate(columns, _AUDIT, seed=(seed, 4))
    classes = {}
    for label, name in outcomes.class_names.items():
        rows = {column: values[outcomes.label == label] for column, values in columns.items()}
        classes[name] = _plain(estimate(rows, _AUDIT_PER_CLASS, seed=(seed, 5, label)))
    return {**_plain(found), "per_class": classes}


def against_random(outcomes: Outcomes, *, seed: int = 0) -> dict[str, Any]:
    """Points of accuracy that guided steps take beyond random ones, over the images accepted in both arms, and the p-value.

    Both arms start from the same images, so they are compared image by image (McNemar's exact test). Two intervals taken
    each by itself can overlap though the images leave no doubt.
    """
    both = (outcomes.validated == YES) & (outcomes.random_validated == YES)
    both &= (outcomes.made_correct >= NO) & (outcomes.random_made_correct >= NO)
    guided, random = both & (outcomes.made_correct == YES), both & (outcomes.random_made_correct == YES)
    columns = {"both": both, "guided_right": guided, "random_right": random}
    found = estimate(columns, {"found": _FOUND}, seed=(seed, 3))["found"]
    p = mcnemar(int(np.count_nonzero(random & ~guided)), int(np.count_nonzero(guided & ~random)))
    return {**found.to_dict(), "p": None if found.value is None else stored_p(p)}


def distances(outcomes: Outcomes) -> dict[str, Estimate]:
    """The median distance of each arm's accepted images from where they began, so that arms can be compared by it.

    Steps in random directions partly undo each other: as many of equal length end nearer to the start than guided ones.
    """
    found = {}
    for arm, values, validated, empty in (
        ("guided", outcomes.distance, outcomes.validated, _NONE_ACCEPTED),
        ("random", outcomes.random_distance, outcomes.random_validated, _NO_CONTROL),
    ):
        counted = np.empty(0) if values is None else values[(validated == YES) & (values >= 0)]
        found[arm] = median(counted, "no distance is recorded" if np.any(validated == YES) else empty)
    return found


def _audit_columns(outcomes: Outcomes) -> dict[str, NDArray[Any]]:
    accepted, rejected = outcomes.validated == YES, outcomes.validated == NO
    known = accepted & (outcomes.made_correct >= NO)
    decided = (outcomes.clean_correct >= NO) & (known | rejected)
    clean_right = decided & (outcomes.clean_correct == YES)
    made_right = decided & known & (outcomes.made_correct == YES)
    return {
        "oracle_asked": outcomes.oracle_clean >= NO,
        "oracle_right": outcomes.oracle_clean == YES,
        "judged": accepted | rejected,
        "accepted": accepted,
        "rejected": rejected,
        "decided": decided,
        "clean_right": clean_right,
        "right_if_lost": made_right,
        "right_if_kept": made_right | (clean_right & rejected),
    }


def _plain(estimates: Mapping[str, Estimate]) -> dict[str, Any]:
    return {name: each.to_dict() for name, each in estimates.items()}
