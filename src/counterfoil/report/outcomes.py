"""What became of an image, in one word a reader can filter by."""

from __future__ import annotations

from typing import Final, Literal

from counterfoil.core.records import Prediction, Trial, Verdict

Outcome = Literal["fooled", "kept", "wrong before", "unvalidated", "rejected", "skipped", "made"]

OUTCOMES: Final[dict[Outcome, str]] = {
    "fooled": "the model was right on the plain reconstruction and is wrong on the made picture",
    "kept": "the model is right on the made picture",
    "wrong before": "the model was wrong on the plain reconstruction already, before the search began",
    "unvalidated": "the oracle rejected the plain reconstruction, so nothing was made, or later what had been made",
    "skipped": "the source picture could not be used",
}
"""What can become of an image that is searched from."""

WORDED: Final[dict[Outcome, str]] = {
    "fooled": "the model is wrong on the made picture, and was not wrong on its source",
    "kept": "the model is right on the made picture",
    "wrong before": "the model was wrong on the source picture already",
    "unvalidated": "the oracle does not see the class in the made picture, so it does not count",
    "rejected": "a check turned the picture away",
    "made": "the picture was made; choose a model to see what it makes of it",
    "skipped": "the source picture could not be used",
}
"""The same for pictures made from words."""

ENDINGS: Final[dict[str, str]] = {
    "budget": "all steps were taken and the oracle rejected none",
    "oracle": "the oracle rejected the next step; the last accepted picture was kept",
    "fooled": "the model was fooled, and the run was told to stop there",
    "queries": "all allowed model calls were spent",
    "unvalidated": "the oracle rejected the plain reconstruction",
    "skipped": "the source picture could not be used",
    "made": "the picture was made",
    "rejected": "a check turned the picture away",
}

ARMS: Final[dict[str, str]] = {
    "guided": "steps that raise the tested model's loss",
    "random": "control: steps of the same length in random directions",
    "edited": "a picture changed to fit an edited caption",
    "painted": "a picture painted from words alone",
}


def outcome(
    trial: Trial,
    *,
    clean: Prediction | None = None,
    reconstruction: Prediction | None = None,
    made: Prediction | None = None,
    verdict: Verdict | None = None,
) -> Outcome:
    """The outcome of a trial, from what the tested model said of its pictures and the oracle of the one that was made."""
    if trial.ending in ("skipped", "unvalidated", "rejected"):
        return trial.ending
    if trial.arm in ("edited", "painted"):
        return _worded(clean, made, verdict)
    if verdict is not None and verdict.keeps_label is False:  # said later, as people do
        return "unvalidated"
    if _right(made, trial, last=True):
        return "kept"
    return "fooled" if _right(reconstruction, trial, last=False) else "wrong before"


def _worded(clean: Prediction | None, made: Prediction | None, verdict: Verdict | None) -> Outcome:
    if verdict is not None and verdict.keeps_label is False:
        return "unvalidated"
    if made is None:
        return "made"
    if made.correct:
        return "kept"
    return "wrong before" if clean is not None and not clean.correct else "fooled"


def _right(prediction: Prediction | None, trial: Trial, *, last: bool) -> bool:
    """Whether the model was right, from its prediction or, where that is missing, from the search's path."""
    if prediction is not None:
        return prediction.correct
    return bool(trial.path_predicted) and trial.path_predicted[-1 if last else 0] == trial.label
