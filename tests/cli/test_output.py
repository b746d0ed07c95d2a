"""Files that commands write at their end are refused before any work."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from counterfoil.cli.app import app
from counterfoil.cli.output import output
from counterfoil.core.errors import UsageError


def test_a_file_is_left_alone_until_it_is_written(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old")
    write, first = output(tmp_path / "old", "--json"), output(tmp_path / "new" / "file", "--json")
    assert (tmp_path / "old").read_text() == "old" and not list((tmp_path / "new").iterdir())
    write(b"1")
    first(b"2")
    assert (tmp_path / "old").read_text() == "1" and (tmp_path / "new" / "file").read_text() == "2"
    output(None, "--json")(b"nothing is asked for")


def test_what_goes_wrong_later_is_said_in_a_line_too(tmp_path: Path) -> None:
    write = output(tmp_path / "file", "--json")
    (tmp_path / "file").mkdir()
    with pytest.raises(UsageError, match=r"--json .*file: cannot be written \(Is a directory\); choose another file"):
        write(b"")


@pytest.mark.parametrize(
    "words",
    [
        ["gate", "missing", "--min", "sa=1", "--junit"],
        ["export", "missing", "--format", "result", "--out"],
    ],
)
def test_commands_look_at_their_file_before_anything_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("taken").write_text("a file, where a folder is needed")
    for path, said in (
        ("taken/x", "cannot be written (Not a directory); choose another file"),
        (".", "is a folder; name a file in it"),
    ):
        refused = CliRunner().invoke(app, [*words, path]).exception
        assert isinstance(refused, UsageError) and str(refused) == f"{words[-1]} {path}: {said}"
