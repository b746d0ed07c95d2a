"""Sends a run's results to an experiment tracker that is installed: TensorBoard, MLflow or Weights & Biases.

Every estimate becomes three scalars, its value and the ends of its interval; accuracy against step becomes a curve; the
specification becomes the run's parameters. What classes single out stays in the run: trackers are not made for a thousand.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from counterfoil.core.errors import UsageError, require
from counterfoil.core.spec import by_dotted_name
from counterfoil.store import Run
from counterfoil.store.chunks import RESULTS

_LEFT_OUT = ("per_class", "curve", "interval")
_LONGEST = 250  # letters of a parameter: the least that trackers take


class Logged(NamedTuple):
    """A run as trackers take it."""

    name: str
    parameters: Mapping[str, str]
    scalars: Mapping[str, float]
    curves: Mapping[tuple[str, int], float]  # by name and step
    results: Path  # the file with everything


def log(run: Run, to: str, where: str | None = None) -> str:
    """Log a run to the tracker named `to` and say where it went; `where` is a folder, an address or a project."""
    if to not in LOGGERS:
        raise UsageError(f"no logger named {to!r}; there are {', '.join(LOGGERS)}")
    return LOGGERS[to](read_run(run), where)


def read_run(run: Run) -> Logged:
    """A finished run as names and numbers."""
    results = run.results
    if results is None:
        raise UsageError(f"{run.path}: not finished, so there is nothing to log yet; repeat its command first")
    curves = {
        (f"accuracy/{_tag(arm)}", int(entry["step"])): float(found["value"])
        for entry in results.get("curve") or ()
        for arm, found in entry.items()
        if isinstance(found, Mapping) and found.get("value") is not None
    }
    parameters = {_tag(key): _short(value) for key, value in by_dotted_name(run.spec)}
    return Logged(run.path.resolve().name, parameters, dict(_scalars(results)), curves, run.path / RESULTS)


def _scalars(results: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Every number below some results, and value and bounds of every estimate, under names with slashes."""
    for key, found in results.items():
        name = f"{prefix}{_tag(key)}"
        if key in _LEFT_OUT or isinstance(found, bool):
            continue
        if isinstance(found, int | float):
            yield name, float(found)
        elif isinstance(found, Mapping) and "value" in found and "low" in found:
            for part, tag in (("value", name), ("low", f"{name}/low"), ("high", f"{name}/high")):
                if found.get(part) is not None:
                    yield tag, float(found[part])
        elif isinstance(found, Mapping):
            yield from _scalars(found, f"{name}/")


def _tag(name: object) -> str:
    """A name with nothing but what every tracker takes: letters, digits, underscores, hyphens, dots and spaces."""
    return re.sub(r"[^A-Za-z0-9_. -]", "_", str(name))


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _tensorboard(told: Logged, where: str | None) -> str:
    summary = require("tensorboard.summary", what="--to tensorboard")
    folder = Path(where or "tensorboard") / told.name
    try:
        writer = summary.Writer(str(folder))
        for (tag, step), value in ({(tag, 0): value for tag, value in told.scalars.items()} | {**told.curves}).items():
            writer.add_scalar(tag, value, step)
        writer.close()
    except OSError as error:
        raise UsageError(f"{folder}: cannot be written ({error.strerror or error}); choose another --where") from None
    return str(folder)


def _mlflow(told: Logged, where: str | None) -> str:
    mlflow = require("mlflow", what="--to mlflow")
    if where is not None:
        mlflow.set_tracking_uri(where)
    with mlflow.start_run(run_name=told.name) as running:
        mlflow.log_params(dict(told.parameters))
        mlflow.log_metrics(dict(told.scalars))
        for (tag, step), value in told.curves.items():
            mlflow.log_metric(tag, value, step=step)
        mlflow.log_artifact(str(told.results))
    return f"MLflow run {running.info.run_id}"


def _wandb(told: Logged, where: str | None) -> str:
    wandb = require("wandb", what="--to wandb")
    running = wandb.init(project=where or "counterfoil", name=told.name, config=dict(told.parameters))
    for step in sorted({step for _, step in told.curves}):
        running.log({tag: value for (tag, at), value in told.curves.items() if at == step}, step=step)
    running.summary.update(dict(told.scalars))
    running.finish()
    return f"Weights & Biases run {running.name}"


LOGGERS: Mapping[str, Callable[[Logged, str | None], str]] = {
    "tensorboard": _tensorboard,
    "mlflow": _mlflow,
    "wandb": _wandb,
}
