"""The gallery's data, as scripts: an overview that filters work on, and each image's history in parts loaded when asked for.

data/run-1.js              names: the run's label, models, oracle and classes
data/gallery-1.js          an entry a trial, enough to filter by and to draw a card
data/history-1-001.js      entries and histories of some images, all trials of an image together: what the page of one needs
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

from counterfoil.core.records import Prediction, Verdict
from counterfoil.report.collect import Collected, Shown, part_name, path_answers
from counterfoil.report.pictures import Album, Stored, Strip, strip

PART = 60  # images whose histories are in one file


def write_gallery(collected: Collected, out: Path, album: Album) -> list[str]:
    """Write a run's pictures and data; the scripts that the page has to load, as paths from the report's folder."""
    (out / "data").mkdir(parents=True, exist_ok=True)
    number, run = collected.number, collected.run
    names = {
        "run": number,
        "label": collected.label,
        "model": part_name(run, "model"),
        "oracle": part_name(run, "oracle"),
        "scored": sorted(collected.answers.other_models),
        "classes": list(run.classes),
    }
    entries: list[dict[str, Any]] = []
    histories: dict[int, list[dict[str, Any]]] = {}
    images: dict[str, int] = {}
    for shown in collected.shown:
        part = images.setdefault(shown.trial.image_id, len(images)) // PART + 1
        entries.append({**_entry(shown, strip(album, run.path, shown.trial)), "part": part})
        histories.setdefault(part, []).append({**entries[-1], "history": _history(shown)})
    _script(out / f"data/run-{number}.js", "name", names)
    _script(out / f"data/gallery-{number}.js", "add", {"run": number, "entries": entries})
    for part, told in histories.items():
        _script(out / f"data/history-{number}-{part:03d}.js", "history", {"run": number, "entries": told})
    return [f"data/run-{number}.js", f"data/gallery-{number}.js"]


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
        **({"rejected": [trial.rejected_as, _short(trial.rejected_score)]} if trial.ending == "oracle" else {}),
        **{name: getattr(trial, name) for name in ("factor", "value", "reason") if getattr(trial, name)},
        "pictures": {name: [each.full, each.thumb] if each.thumb else [each.full] for name, each in found.items() if each},
        "missing": [name for name, path in named.items() if path and found[name] is None],
        "model": {picture: _prediction(each) for picture, each in said.model.items()},
        "scored": {who: {picture: _prediction(each) for picture, each in told.items()} for who, told in shown.scored().items()},
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
        "predicted": [said or index for index, said in path_answers(trial)],
        "score": [_short(value) for value in trial.path_score],
        "others": [_other(each) for each in shown.others],
        **{name: getattr(trial, name) for name in ("variant", "caption", "prompt", "quality") if getattr(trial, name)},
    }


def _prediction(said: Prediction) -> list[Any]:
    """The class by its number; one outside the run's by its name, where that is known."""
    return [said.said or said.predicted, said.correct, _short(said.confidence), _short(said.truth)]


def _verdict(said: Verdict) -> list[Any]:
    return [said.predicted, said.keeps_label, _short(said.score)]


def _other(said: Prediction | Verdict) -> dict[str, Any]:
    if isinstance(said, Prediction):
        return {"who": said.model, "role": "model", "picture": said.picture, "said": _prediction(said)}
    return {"who": said.oracle, "role": "oracle", "picture": said.picture, "said": _verdict(said)}


def _short(value: float) -> float | None:
    """Five significant digits; nothing for what is not a number."""
    return float(f"{value:.5g}") if math.isfinite(value) else None
