"""The gallery's data, as scripts: an overview that filters work on, and each image's history in parts loaded when asked for."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

from counterfoil.records import Prediction, Verdict
from counterfoil.report.collect import Collected, Shown, part_name
from counterfoil.report.pictures import Album, Stored, Strip, strip

PART = 100  # histories in one file


def write_gallery(collected: Collected, out: Path, album: Album) -> list[str]:
    """Write a run's pictures and data; the scripts that the page has to load, as paths from the report's folder."""
    (out / "data").mkdir(parents=True, exist_ok=True)
    run = collected.run.path
    entries = []
    for index, shown in enumerate(collected.shown):
        entries.append({**_entry(shown, strip(album, run, shown.trial)), "part": index // PART + 1})
    overview = {
        "run": collected.number,
        "label": collected.label,
        "model": part_name(collected.run, "model"),
        "oracle": part_name(collected.run, "oracle"),
        "classes": list(collected.run.classes),
        "entries": entries,
    }
    path = f"data/gallery-{collected.number}.js"
    _script(out / path, "add", overview)
    for part, start in enumerate(range(0, len(collected.shown), PART), start=1):
        histories = {shown.key: _history(shown) for shown in collected.shown[start : start + PART]}
        _script(out / f"data/history-{collected.number}-{part:03d}.js", "history", histories)
    return [path]


def _script(path: Path, call: str, data: Any) -> None:
    """A script that hands `data` over. JSON in ASCII is also valid JavaScript, whatever the text in it."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    path.write_text(f"counterfoil.{call}({text});\n", encoding="ascii")


def _entry(shown: Shown, pictures: Strip) -> dict[str, Any]:
    trial, said = shown.trial, shown.said
    named = {"clean": trial.clean, "reconstruction": trial.reconstruction, "made": trial.image}
    found: dict[str, Stored | None] = {name: getattr(pictures, name) for name in asdict(pictures)}
    return {
        "key": shown.key,
        "id": trial.image_id,
        "arm": trial.arm,
        "label": trial.label,
        "outcome": shown.outcome,
        "ending": trial.ending,
        "steps": trial.steps,
        "rejected": [trial.rejected_as, trial.rejected_score] if trial.ending == "oracle" else None,
        "pictures": {name: [each.full, each.thumb] if each.thumb else [each.full] for name, each in found.items() if each},
        "missing": [name for name, path in named.items() if path and found[name] is None],
        "model": {picture: _prediction(each) for picture, each in said.model.items()},
        "oracle": {picture: _verdict(each) for picture, each in said.oracle.items()},
    }


def _history(shown: Shown) -> dict[str, Any]:
    trial = shown.trial
    return {
        "queries": trial.queries,
        "seed": str(trial.seed),  # too long for a JavaScript number
        "source": trial.source,
        "sha256": trial.source_sha256,
        "loss": [_short(value) for value in trial.path_loss],
        "predicted": list(trial.path_predicted),
        "score": [_short(value) for value in trial.path_score],
        "others": [_other(each) for each in shown.others],
    }


def _prediction(said: Prediction) -> list[Any]:
    return [said.predicted, said.correct, _short(said.confidence), _short(said.truth)]


def _verdict(said: Verdict) -> list[Any]:
    return [said.predicted, said.keeps_label, _short(said.score)]


def _other(said: Prediction | Verdict) -> dict[str, Any]:
    if isinstance(said, Prediction):
        return {"who": said.model, "role": "model", "picture": said.picture, "said": _prediction(said)}
    return {"who": said.oracle, "role": "oracle", "picture": said.picture, "said": _verdict(said)}


def _short(value: float) -> float | None:
    """Five significant digits; nothing for what is not a number."""
    return float(f"{value:.5g}") if math.isfinite(value) else None
