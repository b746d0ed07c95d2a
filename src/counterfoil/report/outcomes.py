"""What became of an image, in one word a reader can filter by."""

from __future__ import annotations

from typing import Final, Literal

from counterfoil.records import Prediction, Trial

Outcome = Literal["fooled", "kept", "wrong before", "unvalidated", "skipped"]

OUTCOMES: Final[dict[Outcome, str]] = {
    "fooled": "the model was right on the plain reconstruction and is wrong on the made picture",
    "kept": "the model is right on the made picture",
    "wrong before": "the model was wrong on the plain reconstruction already, before the search began",
    "unvalidated": "the oracle rejected the plain reconstruction, so nothing was made",
    "skipped": "the source picture could not be used",
}

ENDINGS: Final[dict[str, str]] = {
    "budget": "all steps were taken and the oracle accepted every one",
    "oracle": "the oracle rejected the next step; the last accepted picture was kept",
    "fooled": "the model was fooled, and the run was told to stop there",
    "queries": "all allowed model calls were spent",
    "unvalidated": "the oracle rejected the plain reconstruction",
    "skipped": "the source picture could not be used",
}

ARMS: Final[dict[str, str]] = {
    "guided": "steps that raise the tested model's loss",
    "random": "control: steps of the same length in random directions",
}


def outcome(trial: Trial, *, reconstruction: Prediction | None, made: Prediction | None) -> Outcome:
    """The outcome of a trial, from what the tested model said of its pictures."""
    if trial.ending == "skipped":
        return "skipped"
    if trial.ending == "unvalidated":
        return "unvalidated"
    if _right(made, trial, last=True):
        return "kept"
    return "fooled" if _right(reconstruction, trial, last=False) else "wrong before"


def _right(prediction: Prediction | None, trial: Trial, *, last: bool) -> bool:
    """Whether the model was right, from its prediction or, where that is missing, from the search's path."""
    if prediction is not None:
        return prediction.correct
    return bool(trial.path_predicted) and trial.path_predicted[-1 if last else 0] == trial.label
