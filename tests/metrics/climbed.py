"""Records of climbs, written by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from counterfoil import store
from counterfoil.core.records import Ending, Prediction, Trial, Verdict
from counterfoil.store import Run

SPEC: dict[str, Any] = {"model": {"name": "m"}, "oracle": {"name": "o"}, "search": {"budget": 3}}


CLASSES = ("ant", "bee", "cat", "dog")


Image = tuple[list[Trial], list[Prediction], list[Verdict]]


def image(
    name: str,
    *,
    label: int = 0,
    clean: bool = True,
    path: str = "",
    random_path: str | None = None,
    reconstruction: bool = True,
    ending: Ending = "budget",
    verdict: bool | None = True,
) -> Image:
    """One image's records. A path has a letter per kept image, `y` where the model is right; none kept: unvalidated."""
    trials, predictions, verdicts = [], [], []
    for arm, way in (("guided", path), ("random", random_path)):
        if way is None:
            continue
        predicted = tuple(label if letter == "y" else (label + 1) % 4 for letter in way)
        trial = Trial(name, arm, label, 0, ending if way else "unvalidated", max(len(way) - 1, 0), 1, path_predicted=predicted)
        trials.append(trial)
        if way:
            predictions.append(Prediction(trial.trial_id, "made", "m", predicted[-1], way[-1] == "y", 0.5, 0.5))
            verdicts.append(Verdict(trial.trial_id, "made", "o", verdict, 0.5, label))
    first = trials[0].trial_id
    predictions.append(Prediction(first, "clean", "m", 0, clean, 0.5, 0.5))
    predictions.append(Prediction(first, "reconstruction", "m", 0, path[0] == "y" if path else reconstruction, 0.5, 0.5))
    verdicts.append(Verdict(first, "clean", "o", True, 0.5, label))
    verdicts.append(Verdict(first, "reconstruction", "o", bool(path) and verdict, 0.5, label))
    return trials, predictions, verdicts


def skipped_image(name: str) -> Image:
    return [Trial(name, "guided", 0, 0, "skipped", 0, 0, reason="truncated")], [], []


def store_images(path: Path, images: list[Image], *, chunk_images: int = 64, spec: dict[str, Any] = SPEC) -> Run:
    with store.write(path, spec, CLASSES, {}, chunk_images=chunk_images) as writer:
        for each in images:
            writer.add(*each)
    return store.open_run(path)
