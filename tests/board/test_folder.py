"""The site: complete in itself, the same every time, and everything in it shown as text."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from counterfoil.cli.app import app
from counterfoil.core.errors import CounterfoilError, UsageError
from counterfoil.protocols.reading import write_board
from counterfoil.report.board import entries_of
from counterfoil.store import open_run
from counterfoil.store.files import canonical
from tests.cli.stored import stored
from tests.report.made import Plan, build
from tests.report.pages import fingerprint, read

EVIL = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    path = tmp_path_factory.mktemp("runs")
    return [build(path / "one").path, build(path / "two", Plan(model="python:n")).path]


@pytest.fixture(scope="module")
def site(runs: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_board(runs, tmp_path_factory.mktemp("site") / "board", pictures=4).parent


RESULT = ("export", "--format", "result")


def test_every_row_has_its_numbers_and_leads_to_report_result_and_command(site: Path) -> None:
    page = read(site / "index.html")
    for model in ("python:m", "python:n"):
        assert any(row.startswith(f"{model} report JSON command") for row in page.rows)
        assert f"counterfoil run --protocol fmr --model {model} --data folder:photos" in page.words
    links = [link.attributes["href"] for link in page.all("a")]
    files = [link for link in links if not link.startswith("#")]
    assert len([link for link in files if link.startswith("reports/")]) == 2
    assert all((site / link).is_file() for link in files)
    ids = {element.attributes["id"] for element in page.elements if "id" in element.attributes}
    assert all(link[1:] in ids for link in links if link.startswith("#"))


def test_result_files_are_the_ones_a_board_takes(site: Path, tmp_path: Path) -> None:
    again = write_board(sorted((site / "results").iterdir()), tmp_path / "board")
    assert fingerprint(again.parent / "results") == fingerprint(site / "results")
    assert not (tmp_path / "board" / "reports").exists()
    assert json.loads((site / "schema.json").read_bytes())["title"] == "Entry"


def test_the_same_runs_give_the_same_bytes(runs: list[Path], site: Path, tmp_path: Path) -> None:
    write_board(runs[:1], tmp_path / "board", pictures=2)
    write_board(runs, tmp_path / "board", pictures=4)
    assert fingerprint(tmp_path / "board") == fingerprint(site)


def test_names_and_comments_are_text(runs: list[Path], tmp_path: Path) -> None:
    run = build(tmp_path / "evil", Plan(model=f"python:{EVIL}", images=6))
    arguments = [
        "export",
        str(run.path),
        "--format",
        "result",
        "-o",
        str(tmp_path / "r.json"),
        "--submitter",
        EVIL,
        "--note",
        f"</p>{EVIL}",
    ]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    page = write_board([tmp_path / "r.json"], tmp_path / "board", title=EVIL)
    document = read(page)
    assert not document.all("img")
    assert document.words.count(EVIL) >= 4
    assert not [element for element in document.elements if any(name.startswith("on") for name in element.attributes)]
    assert all("src" in script.attributes for script in document.all("script"))
    policy = next(each for each in document.all("meta") if each.attributes.get("http-equiv") == "Content-Security-Policy")
    assert "unsafe" not in policy.attributes["content"]
    assert "default-src 'none'" in policy.attributes["content"]


def test_marks_are_explained(runs: list[Path], tmp_path: Path) -> None:
    (entry,) = entries_of(open_run(runs[0]))
    marked = entry.model_copy(update={"caution": "the oracle is not independent"})
    (tmp_path / "r.json").write_bytes(canonical(marked.model_dump(mode="json")))
    words = read(write_board([tmp_path / "r.json"], tmp_path / "board")).words
    assert words.count("shares weights with the oracle") == 2
    assert "its numbers are too good" in words
    assert "Note: the oracle is not independent." in words


def test_other_folders_are_left_alone(runs: list[Path], tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(UsageError, match="not empty and not a board"):
        write_board(runs, tmp_path)
    with pytest.raises(UsageError, match="is a file"):
        write_board(runs, tmp_path / "thesis.txt")
    with pytest.raises(UsageError, match="not empty and not a board"):
        write_board(runs, runs[0])
    assert [each.name for each in tmp_path.iterdir()] == ["thesis.txt"]


def test_bad_sources_are_one_line(runs: list[Path], tmp_path: Path) -> None:
    with pytest.raises(CounterfoilError, match="not a run directory"):
        write_board([tmp_path], tmp_path / "board")
    with pytest.raises(UsageError, match="at least one"):
        write_board([], tmp_path / "board")
    with pytest.raises(UsageError, match="twice"):
        write_board([runs[0], runs[0]], tmp_path / "board")
    half = build(tmp_path / "half", Plan(finish=False, images=3))
    with pytest.raises(UsageError, match="not finished"):
        write_board([half.path], tmp_path / "board")
    assert not (tmp_path / "board").exists()


def test_no_accepted_image_is_a_row_without_an_fmr(tmp_path: Path) -> None:
    run = build(tmp_path / "run", Plan(accept=False, images=8))
    rows = read(write_board([run.path], tmp_path / "board", pictures=1)).rows
    assert any(row.startswith("python:m report JSON command – – – – 100.0") for row in rows)


def test_commands(tmp_path: Path) -> None:
    run = stored(tmp_path / "run", images=12)
    for arguments, code, said in (
        (["board", str(run), "-o", str(tmp_path / "site"), "--pictures", "0"], 0, "index.html"),
        (["export", str(run), "--format", "result", "-o", str(tmp_path / "r.json")], 0, "r.json"),
        (["board", "--check", str(tmp_path / "r.json")], 0, "fits; lab:narrow, 12 images, FMR"),
        (["board", "--check", str(tmp_path / "r.json"), str(tmp_path / "none.json")], 1, "cannot be read"),
    ):
        result = CliRunner().invoke(app, arguments)
        assert (result.exit_code, said in result.output) == (code, True), result.output
    wrong = CliRunner().invoke(app, [*RESULT, str(run), "-o", str(tmp_path / "r.json"), "--report", "javascript:x"])
    assert isinstance(wrong.exception, UsageError)


def test_a_board_is_made_without_torch(runs: list[Path], tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from counterfoil.protocols.reading import write_board; "
        "write_board([Path(sys.argv[1])], Path(sys.argv[2]), pictures=0); print('torch' in sys.modules)"
    )
    command = [sys.executable, "-c", code, str(runs[0]), str(tmp_path / "board")]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "False\n"
