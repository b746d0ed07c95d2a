"""`counterfoil export` and an ImageNet-D run from the command line, over the lab's parts that cost nothing to paint."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from counterfoil import protocols
from counterfoil.cli.app import app
from counterfoil.core.errors import CounterfoilError, UsageError
from tests.protocols.imagenet_d.world import given, spec


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export") / "run"
    protocols.run(spec(), folder, given=given())
    return folder


def test_a_set_is_written_and_said_so(run_folder: Path, tmp_path: Path) -> None:
    found = CliRunner().invoke(app, ["export", str(run_folder), "--out", str(tmp_path / "set"), "--licence", "cc0-1.0"])
    assert found.exit_code == 0, found.output
    assert "21 images of 4 classes" in found.output
    assert (tmp_path / "set" / "SHA256SUMS").is_file()


def test_of_a_run_that_is_not_finished_it_says_so(run_folder: Path, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    shutil.copytree(run_folder, begun)
    for folder, said in ((run_folder, False), (begun, True)):
        (begun / "results.json").unlink(missing_ok=True)
        found = CliRunner().invoke(app, ["export", str(folder), "--out", str(tmp_path / f"set of {folder.name}")])
        assert ("the run is not finished" in found.output) is said


def test_the_run_is_shown_and_reported_like_any_other(run_folder: Path, tmp_path: Path) -> None:
    found = CliRunner().invoke(app, ["report", str(run_folder), "--out", str(tmp_path / "page")])
    assert found.exit_code == 0, found.output
    page = (tmp_path / "page" / "index.html").read_text()
    assert "Selection bias" in page and "fake:shortcut" in page
    assert "<script>" not in page


@pytest.mark.parametrize("words", [["export", "nowhere"], ["run", "--protocol", "imagenet-d", "--painter", "lab:diffusion"]])
def test_wrong_use_is_one_line(words: list[str]) -> None:
    found = CliRunner().invoke(app, words)
    assert isinstance(found.exception, CounterfoilError) and found.exception.exit_code == UsageError.exit_code
    assert "\n" not in str(found.exception)
