"""A result file: its numbers follow from its answers, and whoever changes one of them is found out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from counterfoil.core.errors import UsageError
from counterfoil.report.board import entries_of, read_entry, schema
from counterfoil.report.board.entry import NUMBERS, Entry
from counterfoil.store import open_run
from counterfoil.store.files import canonical
from tests.cli.stored import stored
from tests.report.made import Plan, build


@pytest.fixture(scope="module")
def entry(tmp_path_factory: pytest.TempPathFactory) -> Entry:
    """The result of a small run."""
    (found,) = entries_of(open_run(stored(tmp_path_factory.mktemp("runs") / "one")))
    return found


def written(path: Path, entry: Entry, **changed: Any) -> Path:
    """The result as a file, with something changed."""
    path.write_bytes(canonical({**entry.model_dump(mode="json"), **changed}))
    return path


def test_numbers_are_those_of_the_run(tmp_path: Path) -> None:
    run = build(tmp_path / "run")
    (found,) = entries_of(run)
    assert run.results is not None
    for name in NUMBERS:
        assert {key: found.numbers[name].model_dump()[key] for key in run.results[name]} == run.results[name]  # type: ignore[index]
    read_entry(written(tmp_path / "r.json", found))  # and they follow from the answers


def test_a_file_reads_back_as_it_was_written(entry: Entry, tmp_path: Path) -> None:
    again = read_entry(written(tmp_path / "r.json", entry))
    assert again.identity == entry.identity
    assert again.answers == entry.answers


def test_the_schema_takes_what_the_program_takes(entry: Entry) -> None:
    check = jsonschema_rs.validator_for(schema())
    good = json.loads(canonical(entry.model_dump(mode="json")))
    assert check.is_valid(good)
    for broken in _broken(good):
        assert not check.is_valid(broken), broken
        with pytest.raises(ValueError):
            Entry.model_validate(broken)


def _broken(good: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in good.items() if key != "answers"},
        {**good, "extra": 1},
        {**good, "seed": -1},
        {**good, "model": {"name": ""}},
        {**good, "report": "javascript:alert(1)"},
        {**good, "answers": {**good["answers"], "clean": "yes"}},
        {**good, "answers": {**good["answers"], "images": ["../../etc"]}},
        {**good, "numbers": {**good["numbers"], "SA": {"value": "high"}}},
    ]


def test_a_number_that_does_not_follow_is_named(entry: Entry, tmp_path: Path) -> None:
    numbers = {name: each.model_dump() for name, each in entry.numbers.items()}
    better = {**numbers, "FMR": {**numbers["FMR"], "value": 99.0, "high": 99.5}}
    with pytest.raises(UsageError, match=r"numbers\.FMR: says 99 .* but the answers come to"):
        read_entry(written(tmp_path / "r.json", entry, numbers=better))
    narrow = {**numbers, "FMR": {**numbers["FMR"], "low": numbers["FMR"]["value"]}}
    with pytest.raises(UsageError, match=r"numbers\.FMR"):
        read_entry(written(tmp_path / "r.json", entry, numbers=narrow))
    missing = {name: each for name, each in numbers.items() if name != "VR"}
    with pytest.raises(UsageError, match="no VR"):
        read_entry(written(tmp_path / "r.json", entry, numbers=missing))


def test_answers_that_do_not_fit_together_are_refused(entry: Entry, tmp_path: Path) -> None:
    answers = entry.answers.model_dump()
    for changed, complaint in (
        ({"clean": answers["clean"][:-1]}, "60 images, but clean has 59 letters"),
        ({"images": answers["images"][::-1]}, "not in rising order"),
        ({name: type(value)() for name, value in answers.items()}, "no images"),
    ):
        with pytest.raises(UsageError, match=complaint):
            read_entry(written(tmp_path / "r.json", entry, answers={**answers, **changed}))


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"{", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "not a result"),
        (b'{"format": "counterfoil-result-7"}', "newer Counterfoil"),
        (b'{"format": "counterfoil-result-1"}', "model: field required"),
        (b"\xff\xfe\x00", "not JSON"),
    ],
)
def test_other_files_are_refused_in_one_line(tmp_path: Path, content: bytes, complaint: str) -> None:
    (tmp_path / "r.json").write_bytes(content)
    with pytest.raises(UsageError, match=complaint) as error:
        read_entry(tmp_path / "r.json")
    assert "\n" not in str(error.value)
    with pytest.raises(UsageError, match="cannot be read"):
        read_entry(tmp_path / "none.json")


def test_unfinished_runs_and_other_protocols_have_no_result(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not finished"):
        entries_of(build(tmp_path / "half", Plan(finish=False, images=3)))
    other = build(tmp_path / "other", Plan(images=3))
    other.spec = {**other.spec, "protocol": "lance"}
    with pytest.raises(UsageError, match="protocol 'lance'"):
        entries_of(other)
