"""The numbers of the FMR protocol (foundation-model-oriented robustness).

SA is the accuracy on the source images, PA that on the pictures made of them, FMR = PA / SA. As published, SA is taken over
all images and PA over those whose picture the oracle accepts; the accepted ones are easier, so FMR can exceed 100 though
nothing was gained. FMR_matched takes both over the accepted images. Two controls say what of a loss is not the search's
doing: PA_reconstruction, what the generator breaks by itself, and PA_random, what steps of equal length break in random
directions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.core.records import LEVEL, Estimate
from counterfoil.metrics.arms import against_random
from counterfoil.metrics.audit import audit
from counterfoil.metrics.columns import NO, OPEN, YES
from counterfoil.metrics.estimate import RESAMPLES, Mean, Ratio, Share, Statistic, estimate
from counterfoil.metrics.outcomes import Outcomes, read_outcomes
from counterfoil.store import Run

_NONE = "no readable image that the model was asked about"
_NONE_ACCEPTED = "the oracle accepted no image"
_NO_CONTROL = "no random control, or the oracle accepted none of it"
_ALL_WRONG = "SA is 0: there is no accuracy to keep a share of"

_SA = Share("clean_right", "clean", _NONE)
_PA = Share("made_right", "made", _NONE_ACCEPTED)
_PA_RANDOM = Share("random_right", "random", _NO_CONTROL)
_SA_MATCHED = Share("matched_clean_right", "matched", _NONE_ACCEPTED)

STATISTICS: dict[str, Statistic] = {
    "SA": _SA,
    "PA": _PA,
    "FMR": Ratio(_PA, _SA, _ALL_WRONG),
    "SA_matched": _SA_MATCHED,
    "FMR_matched": Ratio(Share("matched_made_right", "matched", _NONE_ACCEPTED), _SA_MATCHED, _ALL_WRONG),
    "VR": Share("accepted", "judged", "no image the oracle has decided on"),
    "PA_reconstruction": Share("reconstruction_right", "reconstruction", _NONE_ACCEPTED),
    "PA_random": _PA_RANDOM,
    "FMR_random": Ratio(_PA_RANDOM, _SA, _ALL_WRONG),
    "steps": Mean("steps", "accepted", _NONE_ACCEPTED),
    "steps_random": Mean("random_steps", "random_accepted", _NO_CONTROL),
}
"""Every estimate of the protocol; per class the same."""


def fmr_results(source: Run | Outcomes, seed: int = 0, *, model: str | None = None, oracle: str | None = None) -> dict[str, Any]:
    """The content of `results.json`, for a run or for outcomes read from one."""
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
        "arms": {"against_random": against_random(outcomes, seed=seed)},
        "interval": {"level": LEVEL, "resamples": RESAMPLES, "seed": seed},
    }


def scores(outcomes: Outcomes, *, seed: int | tuple[int, ...] = 0) -> dict[str, Estimate]:
    """All statistics over the given images, from the same resamples."""
    return estimate(columns_of(outcomes), STATISTICS, seed=seed)


def curve(outcomes: Outcomes, *, seed: int = 0) -> list[dict[str, Any]]:
    """Accuracy on accepted images after each step, for both arms; empty for a model that did not lead the search."""
    columns: dict[str, NDArray[Any]] = {}
    statistics: dict[str, Statistic] = {}
    width = outcomes.path_correct.shape[1]
    arms = (
        ("guided", outcomes.validated, outcomes.path_correct, _NONE_ACCEPTED),
        ("random", outcomes.random_validated, outcomes.random_path_correct, _NO_CONTROL),
    )
    for arm, validated, path, empty in arms:
        for step in range(width):
            right, known = f"{arm} {step} right", f"{arm} {step}"
            columns[known] = (validated == YES) & (path[:, step] >= NO)
            columns[right] = columns[known] & (path[:, step] == YES)
            statistics[known] = Share(right, known, empty)
    if not width:
        return []
    found = _plain(estimate(columns, statistics, seed=(seed, 1)))
    return [{"step": step, "guided": found[f"guided {step}"], "random": found[f"random {step}"]} for step in range(width)]


def per_class(outcomes: Outcomes, *, seed: int = 0) -> dict[str, Any]:
    """All statistics for each class that has a readable image, with how many it has."""
    entries: dict[str, Any] = {}
    for label, name in outcomes.class_names.items():
        rows = outcomes.take(outcomes.label == label)
        entries[name] = {**_plain(scores(rows, seed=(seed, 2, label))), "images": len(rows)}
    return entries


def counts(outcomes: Outcomes) -> dict[str, Any]:
    """How many images went which way."""
    accepted = outcomes.validated == YES
    return {
        "images": len(outcomes) + outcomes.skipped,
        "readable": len(outcomes),
        "skipped": outcomes.skipped,
        "validated": int(np.count_nonzero(accepted)),
        "rejected": int(np.count_nonzero(outcomes.validated == NO)),
        "pending": outcomes.pending,
        "unscored": int(np.count_nonzero((outcomes.clean_correct < NO) | (accepted & (outcomes.made_correct < NO)))),
        "endings": {arm: dict(endings) for arm, endings in outcomes.endings.items()},
    }


def columns_of(outcomes: Outcomes) -> dict[str, NDArray[Any]]:
    """One row an image: zeros and ones, and steps, whose sums the statistics are made of."""
    accepted, random_accepted = outcomes.validated == YES, outcomes.random_validated == YES
    clean = outcomes.clean_correct >= NO
    made = accepted & (outcomes.made_correct >= NO)
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


def _plain(estimates: dict[str, Estimate]) -> dict[str, Any]:
    return {name: each.to_dict() for name, each in estimates.items()}
