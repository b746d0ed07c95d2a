"""Small made-up images for the store: everything a run would record, from the image's number alone."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from counterfoil import store
from counterfoil.core.records import Prediction, Trial, Verdict
from counterfoil.store import Run, Writer

SPEC: dict[str, Any] = {
    "model": {"name": "python:m", "options": {}},
    "oracle": {"name": "clip:o", "options": {}},
    "seed": 0,
    "device": "cpu",
    "search": {"budget": 2, "step": 0.01},
    "engine": {"slots": 32, "precision": "float32"},
}
CLASSES = ("ant", "bee", "cat")
PROVENANCE: dict[str, Any] = {"versions": {"numpy": "2.0"}, "data": "d1", "parts": {"model": {"weights": "w1"}}}


def picture(number: int, arm: str) -> bytes:
    """Bytes that stand for a PNG file."""
    return hashlib.sha256(f"{number} {arm}".encode()).digest() * (4 + number % 5)


def image_id(number: int) -> str:
    """Ids with what file names may hold: folders, spaces, letters beyond ASCII, a hash sign."""
    return f"fünf #{number % 3}/img {number:05d}.png"


def records(number: int) -> tuple[list[Trial], list[Prediction], list[Verdict], list[bytes]]:
    """The records of image `number`: one in five is rejected by the oracle, one in eleven unreadable."""
    name, label = image_id(number), number % 3
    if number % 11 == 10:
        return [Trial(name, "guided", label, number, "skipped", 0, 0, reason="truncated")], [], [], []
    valid = number % 5 != 4
    trials, predictions, verdicts, images = [], [], [], []
    for arm in ("guided", "random"):
        steps = number % 3 if valid else 0
        trial = Trial(
            name, arm, label, number, "budget" if valid else "unvalidated", steps, steps + 1,
            source=name, source_sha256=f"{number:064x}", image=store.image_name(picture(number, arm)) if valid else "",
            path_loss=tuple(0.1 * step + 1 / 3 for step in range(steps + 1)) if valid else (),
            path_predicted=tuple((label + (arm == "guided" and step > 1)) % 3 for step in range(steps + 1)) if valid else (),
            path_score=(0.7,) * (steps + 1) if valid else (),
        )  # fmt: skip
        trials.append(trial)
        if arm == "guided":
            predictions.append(Prediction(trial.trial_id, "clean", "python:m", label, True, 0.9, 0.9))
            predictions.append(Prediction(trial.trial_id, "reconstruction", "python:m", label, True, 0.8, 0.8))
            verdicts.append(Verdict(trial.trial_id, "clean", "clip:o", True, 0.9, label))
            verdicts.append(Verdict(trial.trial_id, "reconstruction", "clip:o", valid, 0.6, label))
        if valid:
            images.append(picture(number, arm))
            right = trial.path_predicted[-1] == label
            predictions.append(Prediction(trial.trial_id, "made", "python:m", trial.path_predicted[-1], right, 1 / 3, 0.1))
            verdicts.append(Verdict(trial.trial_id, "made", "clip:o", None if number % 7 == 6 else True, 0.5, label))
    return trials, predictions, verdicts, images


def fill(writer: Writer, numbers: range) -> None:
    """Add those of the images that are not there yet."""
    for number in numbers:
        if image_id(number) not in writer.done:
            writer.add(*records(number))


def content(run: Run) -> dict[str, list[Any]]:
    """All that a run holds, in an order that does not depend on its chunks."""
    return {
        "trials": sorted(run.trials, key=lambda each: each.trial_id),
        "predictions": sorted(run.predictions(), key=lambda each: (each.trial_id, each.picture, each.model)),
        "verdicts": sorted(run.verdicts(), key=lambda each: (each.trial_id, each.picture, each.oracle)),
        "images": sorted((each.trial_id, run.picture(each).read_bytes()) for each in run.trials if each.image),
    }


def valid_of(trials: list[Trial]) -> list[Trial]:
    """Those that have an image."""
    return [trial for trial in trials if trial.image]


def expected_content(numbers: range) -> dict[str, list[Any]]:
    """The value `content` must give, computed without the store, which names the images itself."""
    every = [records(number) for number in numbers]
    return {
        "predictions": sorted((p for each in every for p in each[1]), key=lambda p: (p.trial_id, p.picture, p.model)),
        "verdicts": sorted((v for each in every for v in each[2]), key=lambda v: (v.trial_id, v.picture, v.oracle)),
        "images": sorted((made.trial_id, png) for each in every for made, png in zip(valid_of(each[0]), each[3], strict=True)),
    }


def holds(run: Run, numbers: range) -> bool:
    """Tell whether a run holds what was recorded of these images."""
    found = content(run)
    return {name: rows for name, rows in found.items() if name != "trials"} == expected_content(numbers)


def write(path: Path, numbers: range, *, finish: bool = False, **options: Any) -> list[str]:
    """A run of these images, or the rest of it; what the writer noted."""
    with store.write(path, SPEC, CLASSES, PROVENANCE, **{"chunk_images": 4, **options}) as writer:
        fill(writer, numbers)
        if finish:
            writer.finish({"images": writer.counts["images"], "accepted": writer.counts["accepted"]})
        return writer.notes


def every_file(path: Path) -> set[str]:
    """The files of a folder, by their paths in it."""
    return {file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file()}
