"""A set that was painted and mined on the board: every model that looked at it, surrogates marked."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from counterfoil import protocols
from counterfoil.cli.app import app
from counterfoil.core.errors import UsageError
from counterfoil.protocols.reading import write_board
from counterfoil.report.board import entries_of, read_entry
from counterfoil.report.board.entry import Answers, Entry
from counterfoil.report.board.tables import tables
from counterfoil.store import Run
from tests.protocols.imagenet_d.world import given, spec
from tests.report.pages import read


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return protocols.run(spec(), tmp_path_factory.mktemp("runs") / "painted", given=given())


def test_accuracy_on_the_set_and_before_mining_are_those_of_the_run(run: Run) -> None:
    assert run.results is not None
    found = {entry.model.name: entry for entry in entries_of(run)}
    assert set(found) == set(run.results["models"])
    for name, told in run.results["models"].items():
        for ours, theirs in (("PA", "mined"), ("SA", "painted")):
            said = found[name].numbers[ours]  # type: ignore[index]
            assert said.value == pytest.approx(told[theirs]["value"]), (name, ours)
            assert said.n == told[theirs]["n"]


def test_surrogates_are_marked_and_the_best_is_first(run: Run) -> None:
    (table,) = tables(entries_of(run), {})
    assert {row.label for row in table.rows if row.marks == ("surrogate",)} == {"fake:a", "fake:b"}
    assert table.rows[0].label == "fake:good"
    assert table.rows[0].rank("PA").startswith("1")


def test_pictures_of_one_prompt_are_ranked_as_one(run: Run) -> None:
    entries = [each for each in entries_of(run) if each.model.name in ("fake:good", "fake:shortcut")]
    (table,) = tables([_two_prompts(each) for each in entries], {})
    assert {row.label: row.rank("PA") for row in table.rows} == {"fake:good": "1–2", "fake:shortcut": "1–2"}


def _two_prompts(entry: Entry) -> Entry:
    """Twelve pictures of two prompts, right throughout for one model and wrong throughout for the other."""
    said = ("1" if entry.model.name == "fake:good" else "0") * 12
    told = {"images": entry.answers.images[:12], "clean": said, "made": said, "accepted": "1" * 12, "clusters": [0, 1] * 6}
    return entry.model_copy(update={"answers": Answers(**told, reconstruction="-" * 12, random="-" * 12)})


def test_the_page_and_the_result_files(run: Run, tmp_path: Path) -> None:
    page = write_board([run.path], tmp_path / "site", pictures=3)
    words = read(page).words
    assert "kept because fake:a, fake:b missed them" in words
    assert "Accuracy before mining" in words
    assert " pictures that all results have in common" in words
    files = sorted((tmp_path / "site" / "results").iterdir())
    assert len(files) == 5
    assert {read_entry(path).model.name for path in files} == {entry.model.name for entry in entries_of(run)}


def test_one_of_several_models_is_chosen(run: Run, tmp_path: Path) -> None:
    arguments = ["export", str(run.path), "--format", "result", "-o", str(tmp_path / "r.json")]
    for more, complaint in (([], "choose one by --model: fake:"), (["--model", "nobody"], "no result of 'nobody'")):
        wrong = CliRunner().invoke(app, [*arguments, *more])
        assert isinstance(wrong.exception, UsageError)
        assert complaint in str(wrong.exception)
    assert CliRunner().invoke(app, [*arguments, "--model", "fake:good"]).exit_code == 0
    assert read_entry(tmp_path / "r.json").model.name == "fake:good"
