"""The oracle under audit: how far its word can be trusted, and what FMR would be with the images it turned away.

An image is lost if the oracle rejects its plain reconstruction, before the first step, or, where it judges later as people do,
the picture that was made of it. PA says nothing of it. Two
extremes bound what it hides: `kept`, where the model's answer on the source image stands (Algorithm 1 itself puts the
source image in the place of the made one), and `lost`, where every such image counts as wrong. Both are taken over all
decided images, SA too. The bounds hold as long as making a picture turns no wrong answer into a right one.
"""

from __future__ import annotations

from typing import Any

from counterfoil.core.records import Estimate
from counterfoil.metrics.columns import NO, YES
from counterfoil.metrics.estimate import Ratio, Share, Statistic, estimate
from counterfoil.metrics.outcomes import Outcomes

MEANINGS = {
    "clean_accuracy": "how often the oracle sees the label in the source image",
    "lost": "share of images that the oracle turned away: the plain reconstruction or, judging later, the picture made",
    "PA_kept": "PA over all images, if a lost one keeps the model's answer on its source image",
    "PA_lost": "PA over all images, if a lost one counts as wrong",
    "FMR_kept": "FMR over the same images, if a lost one keeps its answer: the upper bound",
    "FMR_lost": "FMR over the same images, if a lost one counts as wrong: the lower bound",
}
"""What each number of the audit says, in a sentence."""

_NOT_ASKED = "the oracle was not asked about source images"
_UNDECIDED = "no image the oracle has decided on"
_ALL_WRONG = "SA is 0: there is no accuracy to keep a share of"

_CLEAN_ACCURACY = Share("oracle_right", "oracle_asked", _NOT_ASKED)
_SA = Share("clean_right", "decided", _UNDECIDED)
_PA_KEPT = Share("right_if_kept", "decided", _UNDECIDED)
_PA_LOST = Share("right_if_lost", "decided", _UNDECIDED)

_STATISTICS: dict[str, Statistic] = {
    "clean_accuracy": _CLEAN_ACCURACY,
    "lost": Share("rejected", "judged", _UNDECIDED),
    "PA_kept": _PA_KEPT,
    "PA_lost": _PA_LOST,
    "FMR_kept": Ratio(_PA_KEPT, _SA, _ALL_WRONG),
    "FMR_lost": Ratio(_PA_LOST, _SA, _ALL_WRONG),
}
_PER_CLASS: dict[str, Statistic] = {"clean_accuracy": _CLEAN_ACCURACY, "acceptance": Share("accepted", "judged", _UNDECIDED)}


def audit(outcomes: Outcomes, *, seed: int = 0) -> dict[str, Any]:
    """The entry `audit` of `results.json`."""
    found = _estimates(outcomes, _STATISTICS, seed=(seed, 4))
    classes = {
        name: _estimates(outcomes.take(outcomes.label == label), _PER_CLASS, seed=(seed, 5, label))
        for label, name in outcomes.class_names.items()
    }
    return {**_plain(found), "per_class": {name: _plain(each) for name, each in classes.items()}}


def _estimates(outcomes: Outcomes, statistics: dict[str, Statistic], *, seed: tuple[int, ...]) -> dict[str, Estimate]:
    accepted, rejected = outcomes.validated == YES, outcomes.validated == NO
    known = accepted & (outcomes.made_correct >= NO)
    decided = (outcomes.clean_correct >= NO) & (known | rejected)
    clean_right = decided & (outcomes.clean_correct == YES)
    made_right = decided & known & (outcomes.made_correct == YES)
    columns = {
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
    return estimate(columns, statistics, seed=seed)


def _plain(estimates: dict[str, Estimate]) -> dict[str, Any]:
    return {name: each.to_dict() for name, each in estimates.items()}
