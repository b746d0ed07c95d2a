"""The files to take along hold every trial, and lead back to the same run."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from counterfoil import protocols
from counterfoil.protocols.fmr import FmrSpec
from counterfoil.protocols.reading import write_report
from counterfoil.report.provenance import facts, reproducible
from counterfoil.report.site import SCHEMA, _plain
from counterfoil.store import Run

from .made import Plan, build, expected_outcome, image_id


def folder(report: Path) -> Path:
    return report / "downloads" / "1-python-m"


def test_csv_has_every_trial_with_what_was_said(run: Run, report: Path) -> None:
    with (folder(report) / "trials.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [(row["image_id"], row["arm"]) for row in rows] == [(trial.image_id, trial.arm) for trial in run.trials]
    guided = {row["image_id"]: row for row in rows if row["arm"] == "guided"}
    for number in range(Plan().images):
        assert guided[image_id(Plan(), number)]["outcome"] == expected_outcome(Plan(), number)
    fooled = guided["img 1.png"]
    assert (fooled["class"], fooled["model_made_predicted"], fooled["model_made_correct"]) == ("bee", "cat", "false")
    assert (fooled["oracle_made_keeps_label"], fooled["oracle_made_score"]) == ("true", "0.75")
    assert fooled["path_loss"] == "0.0 | 0.25 | 0.5 | 0.75"
    assert guided["img 10.png"]["reason"] == "truncated after 12 bytes; replace the file"
    assert guided["img 10.png"]["model_clean_correct"] == ""


def test_parquet_has_the_same_rows(report: Path) -> None:
    table = pq.read_table(folder(report) / "trials.parquet")
    assert table.schema.equals(SCHEMA)
    with (folder(report) / "trials.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert table.column("image_id").to_pylist() == [row["image_id"] for row in rows]
    told = table.column("model_made_correct").to_pylist()
    assert [{"true": True, "false": False, "": None}[row["model_made_correct"]] for row in rows] == told


def test_results_are_the_runs_own(run: Run, report: Path) -> None:
    assert json.loads((folder(report) / "results.json").read_bytes()) == run.results


def test_specification_reads_back_as_the_runs(run: Run, report: Path) -> None:
    values = yaml.safe_load((folder(report) / "spec.yaml").read_text(encoding="utf-8"))
    assert protocols.parse(values).model_dump(mode="json") == run.spec


@pytest.mark.parametrize(
    "values",
    [
        {
            "protocol": "lance",
            "model": "lab:narrow",
            "data": "lab:wardrobe",
            "oracle": {"name": "lab:clip", "templates": ["a {} or: so"]},
            "captioner": "lab:blip",
            "rewriter": "lab:rewriter",
            "encoder": "lab:clip",
            "editor": {"name": "lab:diffusion", "steps": 7},
            "limit": 3,
            "preset": "released",
        },
        {
            "protocol": "imagenet-d",
            "painter": "lab:diffusion",
            "grid": "wardrobe",
            "surrogates": ["lab:narrow", {"name": "timm:x", "pretrained": False}],
            "models": ["lab:vit"],
            "oracle": "lab:clip",
            "mining": {"misses": 1},
            "seed": 4,
        },
        {
            "model": "lab:narrow",
            "data": "lab:wardrobe",
            "generator": "lab:vqgan",
            "oracle": "lab:clip",
            "force": True,
            "strict": True,
            "engine": {"slots": 3},
            "search": {"norm": "sign", "queries": 9},
        },
        {
            "model": "lab:narrow",
            "data": "lab:wardrobe",
            "generator": "pixels:",
            "oracle": "lab:clip",
            "device": "cuda",
            "engine": {"precision": "float32"},
            "search": {"step": 0.03},
        },
    ],
    ids=["lance", "imagenet-d", "fmr", "defaults that depend on others"],
)
def test_the_specification_among_the_downloads_is_that_of_the_run_for_every_protocol(values: dict[str, Any]) -> None:
    spec = protocols.parse(values).model_dump(mode="json")
    written = yaml.safe_dump(_plain(spec), sort_keys=False, allow_unicode=True)
    assert protocols.parse(yaml.safe_load(written)).model_dump(mode="json") == spec


def test_facts_name_no_folder_of_this_machine(tmp_path: Path) -> None:
    run = build(tmp_path / "run", Plan(images=1, model="python:/home/ada/models/lite.py:lite0"))
    found = list(facts(run, FmrSpec))
    assert all(fact.value for fact in found)
    assert not [fact for fact in found if "/home/" in fact.value], "a page that is shared does not tell where its files lie"
    assert any(fact.value == "python:lite.py:lite0" for fact in found)


def test_objects_have_no_name_to_run_again(run: Run, tmp_path: Path) -> None:
    assert reproducible(run)
    assert not reproducible(build(tmp_path / "run", Plan(images=1, model="object:ModuleModel-abc")))


def test_a_text_that_a_spreadsheet_would_run_is_escaped(tmp_path: Path) -> None:
    run = build(tmp_path / "run", Plan(classes=("=cmd|'/C calc'!A0", "bee", "cat"), images=3))
    folder = write_report([run], tmp_path / "report").parent
    text = next(folder.glob("downloads/*/trials.csv")).read_text()
    assert "'=cmd|" in text and not re.search(r'(^|,)"?=cmd', text, flags=re.MULTILINE)
