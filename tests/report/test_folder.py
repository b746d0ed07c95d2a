"""The folder: the same every time, written over only where it is a report, and made without torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from counterfoil.core.errors import UsageError
from counterfoil.protocols.reading import write_report
from counterfoil.store import Run

from .made import Plan, build
from .pages import fingerprint


def test_the_same_runs_give_the_same_bytes_wherever_they_are(run: Run, report: Path, tmp_path: Path) -> None:
    again = write_report([build(tmp_path / "elsewhere" / "one")], tmp_path / "report").parent
    assert fingerprint(again) == fingerprint(report)


def test_an_earlier_report_is_written_over_and_leaves_nothing_behind(run: Run, report: Path, tmp_path: Path) -> None:
    two = build(tmp_path / "two", Plan(model="python:n", side=200, images=4))
    write_report([run, two], tmp_path / "report")
    write_report([run], tmp_path / "report")
    assert fingerprint(tmp_path / "report") == fingerprint(report)


def test_a_folder_with_other_things_is_refused_and_left_alone(run: Run, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    (tmp_path / "report.json").write_text('{"report": "of something else"}')
    with pytest.raises(UsageError, match="not empty and not a report"):
        write_report([run], tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.json", "thesis.txt"]


def test_a_file_in_the_way_is_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "report").write_text("a file")
    with pytest.raises(UsageError, match="is a file"):
        write_report([run], tmp_path / "report")


def test_a_run_directory_is_not_overwritten(run: Run) -> None:
    before = fingerprint(run.path)
    with pytest.raises(UsageError):
        write_report([run], run.path)
    assert fingerprint(run.path) == before


def test_reports_are_made_without_torch(run: Run, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from counterfoil.store import open_run; "
        "from counterfoil.protocols.reading import write_report; "
        "write_report([open_run(sys.argv[1])], Path(sys.argv[2])); print('torch' in sys.modules)"
    )
    command = [sys.executable, "-c", code, str(run.path), str(tmp_path / "report")]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "False\n"
