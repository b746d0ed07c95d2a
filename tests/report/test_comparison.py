"""Several runs side by side: all numbers, a page for each, and a warning where they don't compare."""

from __future__ import annotations

from pathlib import Path

import pytest

from counterfoil.report import write_report
from counterfoil.report.comparison import labels
from counterfoil.store import Run

from .made import Plan, build, replace_results
from .pages import read


def test_one_row_a_run_with_all_numbers(run: Run, pair: Path) -> None:
    rows = read(pair / "index.html").rows
    assert run.results is not None
    row = next(row for row in rows if row.startswith("python:m 100.0"))
    for key in ("SA", "PA", "FMR", "FMR_matched", "FMR_random", "PA_reconstruction", "PA_random", "VR", "steps"):
        found = run.results[key]
        assert f"{found['value']:.1f} {found['low']:.1f} to {found['high']:.1f}" in row
    assert "18 of 24" in row


def test_every_run_has_its_own_page(pair: Path) -> None:
    assert read(pair / "run-1.html").all("h1")[0].text == "python:m"
    assert read(pair / "run-2.html").all("h1")[0].text == "python:n"


def test_runs_that_differ_in_more_than_the_model_are_marked(pair: Path, run: Run, tmp_path: Path) -> None:
    assert "These runs differ in more than the model" in read(pair / "index.html").words
    assert "search.step (0.01 / 0.5)" in read(pair / "index.html").words
    alike = write_report([run, build(tmp_path / "alike", Plan(model="python:n"))], tmp_path / "report")
    assert "differ in more than the model" not in read(alike).words


def test_overlapping_intervals_leave_the_order_open(tmp_path: Path) -> None:
    one, two, three = (build(tmp_path / name, Plan(model=f"python:{name}")) for name in ("a", "b", "c"))
    replace_results(one, FMR_matched={"value": 80.0, "low": 75.0, "high": 85.0, "n": 99})
    replace_results(two, FMR_matched={"value": 40.0, "low": 35.0, "high": 45.0, "n": 99})
    replace_results(three, FMR_matched={"value": 44.0, "low": 38.0, "high": 49.0, "n": 99})
    words = read(write_report([one, two, three], tmp_path / "report")).words
    assert "python:a keeps the largest share of its accuracy (80.0 %) and python:b the smallest (40.0 %)" in words
    assert "the order is open, between python:c and python:b." in words


def test_an_unfinished_run_beside_a_finished_one(run: Run, tmp_path: Path) -> None:
    other = build(tmp_path / "half", Plan(model="python:half", finish=False))
    words = read(write_report([run, other], tmp_path / "report")).words
    assert "python:half: This run is not finished" in words


@pytest.mark.parametrize(
    ("folders", "expected"),
    [
        (("x/a", "x/b"), ["python:m · a", "python:m · b"]),
        (("x/a", "y/a"), ["python:m · a · run 1", "python:m · a · run 2"]),
    ],
)
def test_runs_of_one_model_are_told_apart(tmp_path: Path, folders: tuple[str, ...], expected: list[str]) -> None:
    assert labels([build(tmp_path / name, Plan(images=1)) for name in folders]) == expected
