"""Result files whose numbers follow from their rows, and the board that ranks them, for every protocol."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from counterfoil import protocols
from counterfoil.core.errors import UsageError
from counterfoil.protocols.reading import result_files, write_board
from counterfoil.report.board import board_page
from counterfoil.report.result_file import ResultFile, read, schema
from counterfoil.store import open_run
from counterfoil.store.files import canonical
from tests.cli.stored import call, store_run
from tests.protocols.imagenet_d import world as squares
from tests.protocols.lance import world as pets

from .made import Plan, build
from .pages import read as read_page


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("board")
    found = {
        name: store_run(folder / name, f"python:{name}", kept=kept)
        for name, kept in (("good", 0.9), ("fair", 0.5), ("poor", 0.1))
    }
    found["lance"] = protocols.run(pets.spec(), folder / "lance", given=pets.make_parts()).path
    found["imagenet-d"] = protocols.run(squares.spec(), folder / "imagenet-d", given=squares.make_parts()).path
    return found


@pytest.fixture(scope="module")
def result(folders: dict[str, Path]) -> ResultFile:
    (found,) = result_files(open_run(folders["good"]))
    return found


def write_result(path: Path, result: ResultFile, **changed: Any) -> Path:
    path.write_bytes(canonical({**result.model_dump(mode="json"), **changed}))
    return path


@pytest.mark.parametrize("name", ["good", "lance", "imagenet-d"])
def test_a_results_numbers_are_the_runs_and_follow_from_its_rows(folders: dict[str, Path], tmp_path: Path, name: str) -> None:
    run = open_run(folders[name])
    for each in result_files(run):
        read(write_result(tmp_path / "r.json", each))
        if each.model.name == str(run.spec.get("model", {}).get("name")):
            for measure, described in each.measures.items():
                if measure in run.results:
                    assert described.found.estimate.to_dict() == run.results[measure]


def test_a_file_reads_back_as_it_was_written_and_fits_the_schema(result: ResultFile, tmp_path: Path) -> None:
    again = read(write_result(tmp_path / "r.json", result))
    assert again.identity == result.identity and again.columns == result.columns
    check = jsonschema_rs.validator_for(schema())
    good = json.loads(canonical(result.model_dump(mode="json")))
    assert check.is_valid(good)
    assert not check.is_valid({**good, "keys": ["x"]}) and not check.is_valid({**good, "unknown": 1})


def change_column(content: dict[str, Any], name: str) -> dict[str, Any]:
    letters = content["columns"]["made_right"]
    match name:
        case "a number":
            content["measures"]["FMR"]["found"]["value"] += 5
        case "a bound":
            content["measures"]["FMR"]["found"]["low"] = 0.0
        case "an answer":
            content["columns"]["made_right"] = letters[:-1] + ("0" if letters[-1] == "1" else "1")
        case "a row less":
            content["columns"]["made_right"] = letters[:-1]
        case "keys twice":
            content["keys"][1] = content["keys"][0]
        case "another formula":
            content["measures"]["FMR"]["formula"] = content["measures"]["SA"]["formula"]
        case "a group without a name":
            content["groups"]["class"]["rows"][0] = 99
        case "no columns":
            content["measures"]["SA"]["formula"]["columns"] = ["x", "y"]
        case "no ranking":
            content["ranked"] = ["XYZ"]
    return content


CHANGES = ("a number", "a bound", "an answer", "a row less", "keys twice", "another formula", "no columns", "no ranking",
           "a group without a name")  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_whoever_changes_a_result_is_found_out_in_one_line(result: ResultFile, tmp_path: Path, name: str) -> None:
    content = change_column(json.loads(canonical(result.model_dump(mode="json"))), name)
    if name == "an answer":
        content["columns"]["made"] = "1" * len(content["keys"])
        content["columns"]["made_right"] = "1" * len(content["keys"])
    (tmp_path / "r.json").write_text(json.dumps(content))
    with pytest.raises(UsageError) as raised:
        read(tmp_path / "r.json")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not JSON"),
        ("[1, 2]", "not a result"),
        ('{"format": "counterfoil-result-1"}', "written by another Counterfoil"),
        ("[" * 5000 + "]" * 5000, "nested"),
        ('{"format": "counterfoil-result-2"}', "field required"),
    ],
)
def test_what_is_no_result_is_refused_in_one_line(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "r.json").write_text(content)
    with pytest.raises(UsageError, match=message) as raised:
        read(tmp_path / "r.json")
    assert "\n" not in str(raised.value)


def test_models_are_ranked_as_far_as_the_images_tell_them_apart(folders: dict[str, Path], tmp_path: Path) -> None:
    site = write_board([folders[name] for name in ("poor", "fair", "good")], tmp_path / "site", images=2).parent
    rows = [row for row in read_page(site / "index.html").rows if "python:" in row]
    order = [next(name for name in ("good", "fair", "poor") if f"python:{name}" in row) for row in rows[:3]]
    assert order == ["good", "fair", "poor"]
    assert "1" in rows[0].split() or "1–2" in rows[0].split()
    assert len(list((site / "results").glob("*.json"))) == 3 == len(list((site / "reports").iterdir()))
    assert jsonschema_rs.validator_for(json.loads((site / "schema.json").read_text()))
    write_board([folders["good"]], tmp_path / "site", images=0)  # over the earlier one
    assert len(list((site / "results").glob("*.json"))) == 1 and not (site / "reports").exists()


def test_every_protocol_has_a_board_and_surrogates_are_marked(folders: dict[str, Path], tmp_path: Path) -> None:
    page = read_page(write_board(list(folders.values()), tmp_path / "site", images=0))
    titles = [element.text for element in page.all("h2")]
    assert sum(title.startswith("fmr") for title in titles) == 1 and any(title.startswith("lance") for title in titles)
    assert any(title.startswith("imagenet-d") for title in titles)
    marked = [row for row in page.rows if "surrogate" in row]
    assert {name for row in marked for name in ("fake:a", "fake:b") if name in row} == {"fake:a", "fake:b"}
    assert not any("fake:unseen surrogate" in row for row in page.rows)


def test_several_tests_begin_with_models_by_tests_and_slices_are_listed(folders: dict[str, Path], tmp_path: Path) -> None:
    page = read_page(write_board(list(folders.values()), tmp_path / "site", images=0))
    assert page.all("h2")[0].text == "Models by tests"
    first = next(row for row in page.rows if row.startswith("python:good"))
    assert "not run" in first and "rank 1" in first
    assert "Results of surrogates are left out." in page.words
    for each in result_files(open_run(folders["lance"])):
        groups = each.observations().groups
        assert set(groups) == {"class", "factor"} and "" in groups["factor"]  # sources have no factor


def test_slices_lead_to_their_images_in_the_report(tmp_path: Path) -> None:
    run = build(tmp_path / "run", Plan(images=120, classes=tuple("abcd")))
    site = write_board([run.path], tmp_path / "site", images=10).parent
    page = read_page(site / "index.html")
    links = [link.attributes["href"] for link in page.all("a") if link.text.startswith("class=")]
    assert {link.partition("#")[2] for link in links} == {"show=class=b&run=1", "show=class=d&run=1"}
    assert all((site / link.partition("#")[0]).is_file() for link in links)
    assert "corrected for 4 slices (Holm)" in page.words
    pairs = [link.attributes["href"] for link in page.all("a") if link.attributes.get("class") == "two"]
    assert len(pairs) == 6 and all((site / pair.partition("#image=")[0]).is_file() for pair in pairs)
    assert all((site / image.attributes["src"]).is_file() for image in page.all("img"))


def test_results_of_others_stand_next_to_ones_own(result: ResultFile, folders: dict[str, Path], tmp_path: Path) -> None:
    theirs = write_result(tmp_path / "theirs.json", result, submitter="Ada", comment="<script>alert(1)</script>")
    page = read_page(write_board([folders["fair"], theirs], tmp_path / "site", images=0))
    assert "handed in by Ada" in page.words and "<script>alert(1)</script>" in page.words  # as text
    assert all(script.attributes.get("src") for script in page.all("script"))


def test_the_same_result_twice_and_an_unfinished_run_are_refused(
    result: ResultFile, folders: dict[str, Path], tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="same result twice"):
        board_page([result, result], {}, {}, title="Leaderboard")
    import shutil

    shutil.copytree(folders["good"], tmp_path / "run")
    (tmp_path / "run" / "results.json").unlink()
    with pytest.raises(UsageError, match="not finished"):
        result_files(open_run(tmp_path / "run"))


def test_the_command_writes_and_checks_results(folders: dict[str, Path], tmp_path: Path) -> None:
    code, output = call("export", folders["good"], "--format", "result", "-o", tmp_path / "r.json", "--submitter", "Ada")
    assert code == 0, output
    code, output = call("board", "--check", tmp_path / "r.json")
    assert code == 0 and "fits; python:good" in output and "FMR_matched" in output
    (tmp_path / "bad.json").write_text("{}")
    assert call("board", "--check", tmp_path / "bad.json")[0] == 1
