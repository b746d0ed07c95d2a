"""`counterfoil run --protocol lance`, and what compare and gate make of such runs."""

from __future__ import annotations

import shutil

import pytest
from typer.testing import CliRunner

from counterfoil import rescoring, store
from counterfoil.cli.app import app
from counterfoil.errors import BadSpec, UsageError
from counterfoil.protocols import lance
from counterfoil.spec import PartSpec
from tests.protocols.lance import world

OTHER = f"python:{world.__file__}:Looking"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("cli") / "run"
    finished = lance.run(world.spec(), out, given=world.given())
    rescoring.score(finished, PartSpec(name=OTHER))
    return store.open_run(out)


def invoke(*words: str):
    return CliRunner().invoke(app, list(words), catch_exceptions=False)


def test_dry_run_prints_the_specification_and_the_cost():
    parts = ["--model", "lab:diverse", "--data", "lab:wardrobe", "--captioner", "lab:blip", "--editor", "lab:diffusion"]
    said = invoke(
        "run", "--protocol", "lance", *parts, "--encoder", "lab:clip", "--oracle", "lab:clip", "--limit", "10", "--dry-run",
        "--set", "per_factor={adjective: 3}",
    ).output  # fmt: skip
    assert "preset: paper" in said and "directional: 0.2" in said
    assert "edits, at most" in said and "70" in said


def test_what_is_missing_or_misspelt_is_named():
    with pytest.raises(BadSpec, match=r"no model, data, .* given; name each"):
        invoke("run", "--protocol", "lance")
    with pytest.raises(BadSpec, match="no protocol named 'lanse'; did you mean 'lance'"):
        invoke("run", "--protocol", "lanse")
    with pytest.raises(UsageError, match="fmr has no stages"):
        invoke(
            "run", "--stage", "edits", "--model", "lab:narrow", "--data", "lab:wardrobe", "--generator", "lab:vqgan",
            "--oracle", "lab:clip",
        )  # fmt: skip


def test_compare_tells_models_on_the_same_edits_apart(run):
    said = invoke("compare", str(run.path), "--scored", "--metric", "drop_matched", "--metric", "PA").output
    assert "drop_matched" in said and OTHER in said


def test_gate_takes_bars_by_factor(run):
    said = invoke("gate", str(run.path), "--max", "drop_matched.background=10", "--max", "drop_matched.adjective=50")
    assert said.exit_code == 1
    assert "FAIL  drop_matched.background at most 10 points" in said.output
    assert "pass  drop_matched.adjective at most 50 points" in said.output


def test_a_run_of_an_unknown_protocol_is_refused(run, tmp_path):
    shutil.copytree(run.path, tmp_path / "run")
    path = tmp_path / "run" / "run.json"
    path.write_text(path.read_text().replace('"protocol": "lance"', '"protocol": "dance"'))
    with pytest.raises(UsageError, match="a run of protocol 'dance', which this version does not know"):
        invoke("report", str(tmp_path / "run"))
