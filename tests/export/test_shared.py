"""Reports, sets, boards, results and pages of the server name no folder of this machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.stored import call
from tests.report.made import Plan, build
from tests.web.world import world

PRIVATE = "/home/somebody/work"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run whose parts are files."""
    monkeypatch.chdir(tmp_path)
    run = build(tmp_path / "one", Plan(model=f"python:{PRIVATE}/models.py:Mine")).path / "run.json"
    content = json.loads(run.read_text())
    content["spec"]["data"]["name"] = f"folder:{PRIVATE}/photos"
    content["spec"]["generator"] = {"name": f"autoencoder:{PRIVATE}/vae", "options": {"weights": f"{PRIVATE}/w.safetensors"}}
    run.write_text(json.dumps(content))
    return tmp_path


def test_files_for_others_name_no_folder_of_this_machine(folder: Path) -> None:
    for words in (
        ["report", "one", "-o", "page"],
        ["export", "one", "-o", "set"],
        ["export", "one", "--format", "result", "-o", "result.json"],
        ["board", "one", "-o", "site", "--images", "4"],
    ):
        code, problem = call(*words)
        assert code == 0, problem
    written = [path for path in folder.rglob("*") if path.is_file() and not path.is_relative_to(folder / "one")]
    private = [path for path in written if PRIVATE.encode() in path.read_bytes() or "somebody" in path.name]
    assert {path.name for path in private} == {"spec.yaml"}  # which has to run again here
    assert "models.py:Mine" in (folder / "page" / "index.html").read_text()
    assert call("board", "--check", "result.json")[0] == 0


def test_pages_of_the_server_name_none_either(folder: Path) -> None:
    owner = world(folder).owner()
    for path in ("/", "/runs/one"):
        assert PRIVATE not in (shown := owner.get(path).text) and "models.py:Mine" in shown
