"""Plain tables of predictions as observations: the same paired tests and gates without a run directory.

Read are CSV and Parquet with a row per image (an id, a label and a prediction, or whether it is right, and optionally a
cluster), the JSONL samples that lm-evaluation-harness logs, and FiftyOne's exported samples.json.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from counterfoil.core.errors import BadData, one_line
from counterfoil.core.tables import parse_json, read_json, unescape_formula
from counterfoil.metrics.estimate import Share
from counterfoil.metrics.observations import Measure, Observations
from counterfoil.store.files import key_of

MEASURES: Mapping[str, Measure] = {
    "accuracy": Measure("accuracy", Share("right", "answered", "no prediction"), "accuracy on the predictions of the file"),
}
SUFFIXES = (".csv", ".parquet", ".jsonl", ".json")

IDS = ("image_id", "id", "image", "doc_id", "filepath", "file_name")
LABELS = ("label", "ground_truth", "target", "truth", "class")
PREDICTIONS = ("prediction", "predicted", "pred", "predictions")
RIGHT = ("correct", "right", "acc", "exact_match")
CLUSTERS = ("cluster", "source", "source_image", "group")
"""Names under which each column is looked for, the first that is there."""


def read_predictions(path: Path) -> Observations:
    """Read a file of predictions of one model, named after the file."""
    rows = list(_rows(path))
    if not rows:
        raise BadData(f"{path}: holds no prediction")
    names = {name: _column(rows[0], known) for name, known in
             (("id", IDS), ("label", LABELS), ("prediction", PREDICTIONS), ("right", RIGHT), ("cluster", CLUSTERS))}  # fmt: skip
    if not names["id"] or not (names["right"] or (names["label"] and names["prediction"])):
        raise BadData(
            f"{path}: needs an id ({IDS[0]}) and either a {LABELS[0]} and a {PREDICTIONS[0]} or whether it is {RIGHT[0]}; "
            f"it has {', '.join(map(str, rows[0]))}"
        )
    ids = [str(row.get(names["id"])) for row in rows]
    if len(set(ids)) < len(ids):
        twice = next(name for name in ids if ids.count(name) > 1)
        raise BadData(f"{path}: {twice} is there twice; give one prediction per image")
    right, answered = zip(*(_is_right(path, row, names) for row in rows), strict=True)
    keys = np.array([key_of(name) for name in ids], dtype=np.uint64)
    order = np.argsort(keys)
    labels = [str(row.get(names["label"]) or "") if names["label"] else "" for row in rows]
    clusters = None
    if names["cluster"]:
        of = [str(row.get(names["cluster"])) for row in rows]
        clusters = np.array([key_of(name) for name in of], dtype=np.uint64).astype(np.int64)[order]
        clusters = np.unique(clusters, return_inverse=True)[1].astype(np.int64)
    return Observations(
        model=path.stem,
        keys=keys[order],
        columns={"answered": np.array(answered, dtype=bool)[order], "right": np.array(right, dtype=bool)[order]},
        groups={"class": np.array(labels, dtype=object)[order]} if names["label"] else {},
        cluster=clusters,
    )


def _rows(path: Path) -> Iterator[Mapping[str, Any]]:
    try:
        if path.suffix == ".csv":
            texts = pyarrow.csv.ConvertOptions(strings_can_be_null=True)
            for row in pyarrow.csv.read_csv(path, convert_options=texts).to_pylist():
                yield {name: unescape_formula(cell) if isinstance(cell, str) else cell for name, cell in row.items()}
        elif path.suffix == ".parquet":
            yield from pq.read_table(path).to_pylist()
        elif path.suffix == ".jsonl":
            for at, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
                if line.strip():
                    yield _flat(parse_json(line, what=f"{path}, line {at}"))
        else:
            content = read_json(path)
            samples = content.get("samples", []) if isinstance(content, Mapping) else content
            yield from (_flat(sample) for sample in samples)
    except (OSError, pa.ArrowInvalid, UnicodeError, TypeError, AttributeError) as error:
        raise BadData(f"{path}: cannot be read as predictions ({one_line(error)})") from None


def _flat(sample: Any) -> dict[str, Any]:
    """A sample with the label inside FiftyOne's classifications in its place."""
    if not isinstance(sample, Mapping):
        raise TypeError("a sample is no object")
    found = {}
    for name, value in sample.items():
        inner = value.get("label") if isinstance(value, Mapping) else None
        found[name] = value if inner is None else inner
    return found


def _column(row: Mapping[str, Any], known: tuple[str, ...]) -> str:
    spelt = {str(name).lower(): str(name) for name in row}
    return next((spelt[name] for name in known if name in spelt), "")


def _is_right(path: Path, row: Mapping[str, Any], names: Mapping[str, str]) -> tuple[bool, bool]:
    """Tell whether a prediction is right, and whether there is one."""
    if names["right"]:
        value = row.get(names["right"])
        if value is None or value == "":
            return False, False
        known = {"true": True, "false": False, "1": True, "0": False, "1.0": True, "0.0": False}
        if (word := str(value).lower()) not in known:
            raise BadData(f"{path}: {names['right']} is {json.dumps(value)}, where true, false, 0 or 1 is needed")
        return known[word], True
    label, prediction = row.get(names["label"]), row.get(names["prediction"])
    if label is None or prediction is None or prediction == "":
        return False, False
    return str(label) == str(prediction), True
