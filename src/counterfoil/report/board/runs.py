"""Results of a run: that of the model it was made against and, if asked, those of models that looked at its pictures later."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from counterfoil.core.errors import BadRun, UsageError
from counterfoil.core.naming import part_name
from counterfoil.metrics.answers import models_of
from counterfoil.metrics.fmr import read_outcomes
from counterfoil.metrics.same_test import test_settings
from counterfoil.report.board.answers import numbers_of, pack
from counterfoil.report.board.entry import NUMBERS, Answers, Entry, Model, Number, Speed, Test
from counterfoil.report.making import command, repeatable
from counterfoil.store import Run
from counterfoil.store.files import key_of
from counterfoil.store.later import asked_of

_NOT_THE_TEST = ("classes", "models", "chats")
SPEED = "speed.json"  # written beside a run's results, see `speed.py`


def entries_of(run: Run, *, scored: bool = False) -> list[Entry]:
    """The results of a run. With `scored`, the run's pictures are a fixed set: its model and all that were scored on it."""
    protocol = run.spec.get("protocol", "fmr")
    if protocol not in ("fmr", "imagenet-d"):
        raise UsageError(f"{run.path}: a run of protocol {protocol!r}; the board ranks runs of fmr and imagenet-d")
    if run.results is None:
        raise UsageError(f"{run.path}: not finished, so it has no result yet; repeat its command first")
    if protocol == "imagenet-d":
        from counterfoil.report.board.painted import painted_entries

        return painted_entries(run)
    own = part_name(run.spec.get("model"))
    pixels = _pixels(run)
    names = models_of(run) if scored else [own]
    return [_entry(run, name, own=own, fixed=scored, pixels=pixels) for name in names]


def _entry(run: Run, name: str, *, own: str, fixed: bool, pixels: Mapping[int, tuple[str, str]]) -> Entry:
    answers: Answers = pack(read_outcomes(run, model=name), pixels)
    seed = run.spec.get("seed", 0)
    seed = seed if isinstance(seed, int) else 0
    again = command(run)
    if name != own:
        again += f" --out RUN && counterfoil score RUN --model {shlex.quote(name)}"
    try:
        return Entry(
            model=_model(run, name, own),
            test=taken(run, against=own if fixed else ""),
            numbers=numbers_of(answers, seed=seed) | (_reported(run) if name == own else {}),  # type: ignore[arg-type]
            seed=seed,
            answers=answers,
            speed=_speed(run.path) if name == own else None,
            command=again,
            repeatable=repeatable(run),
            caution=_caution(run, name, own),
            versions={str(key): str(value) for key, value in _mapping(run.provenance.get("versions")).items()},
        )
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(step) for step in first["loc"])
        raise BadRun(f"{run.path}: makes no result for the board ({where}: {first['msg'].lower()}); run it again") from None


def _reported(run: Run) -> dict[str, Number]:
    """The run's own numbers, so that the board's are its report's to the last digit."""
    results = run.results or {}
    return {name: Number.model_validate(results[name]) for name in NUMBERS if name in results}


def _model(run: Run, name: str, own: str) -> Model:
    if name != own:
        return Model(name=name)
    part = run.spec.get("model")
    return Model(name=name, options=dict(_mapping(_mapping(part).get("options"))), weights=_weights(run, "model"))


def taken(run: Run, *, against: str = "", surrogates: Sequence[str] = ()) -> Test:
    """What the run put models to; which models those are is no part of it."""
    settings = {key: value for key, value in test_settings(run).items() if key not in _NOT_THE_TEST and value is not None}
    names = json.dumps(list(run.classes), ensure_ascii=False).encode("utf-8", "replace")
    return Test(
        settings=settings,
        classes=len(run.classes),
        classes_sha256=hashlib.sha256(names).hexdigest(),
        against=against,
        surrogates=list(surrogates),
    )


def _caution(run: Run, name: str, own: str) -> str:
    """Why the oracle may be biased for this model: what the run found out of its own, or that it is of the same name."""
    told = run.provenance.get("caution")
    if name == own:
        return str(told or "")
    later = next((each.caution for each in asked_of(run.path) if (each.role, each.name) == ("model", name)), "")
    if later:
        return f"the model is {later}"
    oracle = part_name(run.spec.get("oracle"))
    return f"the oracle {oracle} is this model" if name == oracle else ""


def _weights(run: Run, role: str) -> str | None:
    found = _mapping(_mapping(run.provenance.get("parts")).get(role)).get("weights")
    return found if isinstance(found, str) and len(found) == 64 else None


def _speed(path: Path) -> Speed | None:
    try:
        return Speed.model_validate(json.loads((path / SPEED).read_bytes()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise BadRun(f"{path / SPEED}: damaged ({type(error).__name__}); delete it") from None


def _pixels(run: Run) -> dict[int, tuple[str, str]]:
    """Each image's id and the hash of its pixels, by the key that outcomes have."""
    found = {}
    for batch in run.table("trials", columns=["image_id", "arm", "source_sha256"]):
        for image_id, arm, digest in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            if arm == "guided":
                found[key_of(image_id)] = (image_id, digest)
    return found


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
