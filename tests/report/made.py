"""Small made-up runs for reports, written through the store, with images that can be told apart."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from counterfoil import protocols, store
from counterfoil.core.records import Prediction, Trial, Verdict
from counterfoil.protocols.fmr.results import fmr_results
from counterfoil.protocols.reading import Run, open_run

CLASSES = ("ant", "bee", "cat")
ORACLE = "clip:o"
STEPS = 3


@dataclass(frozen=True)
class Plan:
    """Settings of a made-up run. Image i is unreadable, rejected, fooled … by its number alone."""

    model: str = "python:m"
    classes: Sequence[str] = CLASSES
    images: int = 24
    side: int = 16
    accept: bool = True  # whether the oracle accepts any reconstruction
    control: bool = True
    finish: bool = True
    skip_reason: str = "truncated after 12 bytes; replace the file"
    prefix: str = "img"
    step: float = 0.01


def image_id(plan: Plan, number: int) -> str:
    """Ids as a folder of images would give them."""
    return f"{plan.prefix} {number}.png"


def expected_outcome(plan: Plan, number: int) -> str:
    """The outcome of an image in the guided arm."""
    if number % 11 == 10:
        return "skipped"
    if number % 5 == 4 or not plan.accept:
        return "unvalidated"
    if number % 7 == 3:
        return "already wrong"
    return "fooled" if number % 2 else "kept"


def picture(number: int, name: str, side: int) -> bytes:
    """A PNG file with soft blobs, the same for the same number and name; reconstruction and made differ a little from clean."""
    y, x = np.mgrid[0:side, 0:side] / side
    waves = [np.sin((3 + number % 4 + channel) * x + (2 + channel) * y + number) for channel in range(3)]
    shift = {"clean": 0, "reconstruction": 4, "guided": 12, "random": 8}[name]
    pixels = np.clip(127 + 100 * np.stack(waves, 2) + shift, 0, 255).astype(np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()


def build(path: Path, plan: Plan = Plan()) -> Run:  # noqa: B008 - frozen
    """Write the run and open it."""
    spec = protocols.parse(
        {
            "model": plan.model,
            "data": "folder:photos",
            "generator": {"name": "autoencoder:vq", "space": "code"},
            "oracle": ORACLE,
            "seed": 5,
            "search": {"budget": STEPS, "step": plan.step, "control": plan.control},
        }
    )
    provenance: dict[str, Any] = {
        "versions": {"python": "3.11.9", "torch": "2.15.0"},
        "data": "d" * 64,
        "code": "c" * 64,
        "images": plan.images,
        "size": plan.side,
        "parts": {"model": {"weights": hashlib.sha256(plan.model.encode()).hexdigest()}},
        "hardware": {"cores": 2, "device": "cpu"},
    }
    with store.write(path, spec.model_dump(mode="json"), plan.classes, provenance) as writer:
        for number in range(plan.images):
            _add(writer, plan, number)
        if plan.finish:
            writer.flush()
            writer.finish(fmr_results(open_run(path), seed=spec.seed))
    return open_run(path)


def _add(writer: store.Writer, plan: Plan, number: int) -> None:
    name, label, became = image_id(plan, number), number % len(plan.classes), expected_outcome(plan, number)
    if became == "skipped":
        trial = Trial(name, "guided", label, number, "skipped", 0, 0, source=name, reason=plan.skip_reason)
        return writer.add([trial], [], [])
    images = {which: picture(number, which, plan.side) for which in ("clean", "reconstruction", "guided", "random")}
    clean, plain = (store.image_name(images[which]) for which in ("clean", "reconstruction"))
    wrong = (label + 1) % len(plan.classes)
    before = wrong if became == "already wrong" else label
    trials, predictions, verdicts = [], [], []
    for arm in ("guided", "random") if plan.control else ("guided",):
        valid = became != "unvalidated"
        after = wrong if became in ("fooled", "already wrong") and arm == "guided" else before
        steps = (STEPS if number % 3 else 1) if valid else 0
        trial = Trial(
            name,
            arm,
            label,
            number,
            "unvalidated" if not valid else "budget" if steps == STEPS else "oracle",
            steps,
            steps + 1,
            source=name,
            source_sha256=f"{number:064x}",
            clean=clean,
            reconstruction=plain,
            image=store.image_name(images[arm]) if valid else "",
            path_loss=tuple(0.25 * step for step in range(steps + 1)) if valid else (),
            path_predicted=(*([before] * steps), after) if valid else (),
            path_score=(0.75,) * (steps + 1) if valid else (),
        )
        trials.append(trial)
        if arm == "guided":
            for which, said in (("clean", label), ("reconstruction", before)):
                predictions.append(Prediction(trial.trial_id, which, plan.model, said, said == label, 0.875, 0.5))
            verdicts.append(Verdict(trial.trial_id, "clean", ORACLE, True, 0.9375, label))
            verdicts.append(Verdict(trial.trial_id, "reconstruction", ORACLE, valid, 0.3125, label if valid else wrong))
        if valid:
            predictions.append(Prediction(trial.trial_id, "made", plan.model, after, after == label, 0.625, 0.125))
            verdicts.append(Verdict(trial.trial_id, "made", ORACLE, True, 0.75, label))
    writer.add(trials, predictions, verdicts, images.values())


def replace_results(run: Run, **changed: Any) -> None:
    """Give the run other numbers than it has."""
    (run.path / "results.json").write_text(json.dumps({**(run.results or {}), **changed}), encoding="utf-8")
