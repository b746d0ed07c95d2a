"""Small finished runs on disk, made without a model: for commands that only read."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from counterfoil import store
from counterfoil.cli.app import app
from counterfoil.core.errors import CounterfoilError
from counterfoil.protocols.fmr.results import fmr_results
from tests.metrics.climbed import CLASSES, image

SPEC: dict[str, Any] = {
    "protocol": "fmr",
    "model": {"name": "lab:narrow"},
    "data": {"name": "lab:wardrobe"},
    "generator": {"name": "lab:vqgan"},
    "oracle": {"name": "o"},
    "seed": 0,
    "search": {"budget": 3, "step": 0.01, "unit": "scale", "norm": "l2"},
}


def store_run(
    path: Path, model: str = "lab:narrow", *, kept: float = 0.5, images: int = 60, pixels: str = "p", **spec: Any
) -> Path:
    """A run against `model` that keeps about this share of its accuracy."""
    draw = random.Random(f"{model} {kept}")
    whole = {**SPEC, "model": {"name": model}, **{key: {**SPEC[key], **value} for key, value in spec.items()}}
    with store.write(path, whole, CLASSES, {"size": 64}) as writer:
        for number in range(images):
            clean = draw.random() < 0.9
            way = "yy" if clean and draw.random() < kept else "yn"
            valid = draw.random() < 0.9
            trials, predictions, verdicts = image(
                f"image {number}", label=number % 3, clean=clean, path=way if valid else "", random_path="yy" if valid else ""
            )
            trials = [replace(each, source_sha256=f"{pixels} {number}") for each in trials]
            writer.add(trials, [replace(each, model=model) for each in predictions], verdicts)
        writer.flush()
        writer.finish(fmr_results(store.open_run(path)))
    return path


def call(*arguments: object) -> tuple[int, str]:
    """Exit code and output of one of the commands; for wrong use, the complaint."""
    result = CliRunner().invoke(app, [str(each) for each in arguments])
    if isinstance(result.exception, CounterfoilError):
        return result.exception.exit_code, str(result.exception)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output
