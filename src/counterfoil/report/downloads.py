"""The files a reader takes along: every trial with what was said of it, the numbers, and the specification."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from counterfoil.core.records import Trial
from counterfoil.report.collect import Collected, path_answers
from counterfoil.store.files import canonical

PICTURES = ("clean", "reconstruction", "made")
ROWS = 4096  # in one group of the Parquet file

_TRIAL = {
    "image_id": pa.string(),
    "arm": pa.string(),
    "class": pa.string(),
    "label": pa.int64(),
    "outcome": pa.string(),
    "ending": pa.string(),
    "steps": pa.int64(),
    "queries": pa.int64(),
}
_MODEL = {"predicted": pa.string(), "correct": pa.bool_(), "confidence": pa.float64(), "truth": pa.float64()}
_ORACLE = {"keeps_label": pa.bool_(), "sees": pa.string(), "score": pa.float64()}
_ORIGIN = {
    "reason": pa.string(),
    "seed": pa.int64(),
    "source": pa.string(),
    "source_sha256": pa.string(),
    "image": pa.string(),
    "image_sha256": pa.string(),
    "path_loss": pa.list_(pa.float64()),
    "path_predicted": pa.list_(pa.string()),
    "path_score": pa.list_(pa.float64()),
    "variant": pa.string(),
    "factor": pa.string(),
    "value": pa.string(),
    "caption": pa.string(),
    "prompt": pa.string(),
    "quality": pa.float64(),
}
SCHEMA = pa.schema(
    {
        **_TRIAL,
        **{f"model_{picture}_{name}": kind for picture in PICTURES for name, kind in _MODEL.items()},
        **{f"oracle_{picture}_{name}": kind for picture in PICTURES for name, kind in _ORACLE.items()},
        **_ORIGIN,
    }
)


@dataclass(frozen=True)
class Download:
    """One file to take along."""

    path: str  # from the report's folder
    what: str


def write_downloads(collected: Collected, out: Path) -> list[Download]:
    """Write a run's files and list them."""
    slug = re.sub(r"[^A-Za-z0-9.]+", "-", collected.label).strip("-.")[:40] or "run"
    folder = f"downloads/{collected.number}-{slug}"
    (out / folder).mkdir(parents=True, exist_ok=True)
    found = [
        Download(f"{folder}/trials.csv", "every trial, one line each"),
        Download(f"{folder}/trials.parquet", "the same, typed"),
    ]
    _write_trials(collected, out / found[0].path, out / found[1].path)
    if collected.results is not None:
        found.append(Download(f"{folder}/results.json", "the numbers of this page"))
        (out / found[-1].path).write_bytes(canonical(collected.results))
    found.append(Download(f"{folder}/spec.yaml", "the specification, to run it again"))
    text = yaml.safe_dump(_plain(collected.run.spec), sort_keys=False, allow_unicode=True)
    (out / found[-1].path).write_text(text, encoding="utf-8")
    return found


def _write_trials(collected: Collected, as_csv: Path, as_parquet: Path) -> None:
    rows = _rows(collected)
    with (
        as_csv.open("w", encoding="utf-8", newline="") as stream,
        pq.ParquetWriter(as_parquet, SCHEMA, compression="zstd") as parquet,
    ):
        lines = csv.writer(stream, lineterminator="\n")
        lines.writerow(SCHEMA.names)
        while group := list(islice(rows, ROWS)):
            lines.writerows([_cell(value) for value in row.values()] for row in group)
            parquet.write_table(pa.Table.from_pylist(group, schema=SCHEMA))


def _rows(collected: Collected) -> Iterator[dict[str, Any]]:
    for trial in collected.run.trials:
        yield _row(collected, trial)


def _row(collected: Collected, trial: Trial) -> dict[str, Any]:
    said = collected.answers.of(trial)
    row: dict[str, Any] = dict.fromkeys(SCHEMA.names)
    for name in SCHEMA.names:
        if hasattr(trial, name):
            row[name] = getattr(trial, name)
    row["class"] = collected.class_name(trial.label)
    row["outcome"] = said.outcome(trial)
    row["path_predicted"] = [collected.class_name(*answer) for answer in path_answers(trial)]
    for picture, prediction in said.model.items():
        row[f"model_{picture}_predicted"] = collected.class_name(prediction.predicted, prediction.said)
        for name in ("correct", "confidence", "truth"):
            row[f"model_{picture}_{name}"] = getattr(prediction, name)
    for picture, verdict in said.oracle.items():
        row[f"oracle_{picture}_keeps_label"] = verdict.keeps_label
        row[f"oracle_{picture}_sees"] = collected.class_name(verdict.predicted)
        row[f"oracle_{picture}_score"] = verdict.score
    return row


def _cell(value: Any) -> Any:
    """A value as CSV has it: nothing for None, words for truth, a path's steps with bars between them."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple | list):
        return " | ".join(str(each) for each in value)
    return value


def _plain(value: Any) -> Any:
    """Mappings as dictionaries, which YAML can write; part options that are empty are left out."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items() if not (key == "options" and not each)}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value
