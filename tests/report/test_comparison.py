"""Several runs side by side: all numbers, a page for each, and a warning where they don't compare."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from counterfoil.protocols.reading import write_report
from counterfoil.report.comparison import labels, short_name
from counterfoil.store import Run, open_run
from tests.cli.stored import stored

from .made import Plan, build
from .pages import read


def test_one_row_a_run_with_all_numbers(run: Run, pair: Path) -> None:
    rows = read(pair / "index.html").rows
    assert run.results is not None
    row = next(row for row in rows if row.startswith("python:m 1–2 100.0"))
    for key in ("SA", "PA", "FMR", "FMR_matched", "FMR_random", "PA_reconstruction", "PA_random", "VR", "steps"):
        found = run.results[key]
        assert f"{found['value']:.1f} {found['low']:.1f} to {found['high']:.1f}" in row
    assert "18 of 24" in row


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("python:/home/me/nets/lite.py:lite0", "python:lite.py:lite0"),
        ("python:examples/real_photos/lite.py:lite0", "python:lite.py:lite0"),
        ("grouped:onnx:~/nets/lite0.onnx", "grouped:onnx:lite0.onnx"),
        ("timm:/weights/narrow", "timm:narrow"),
        ("hf:google/vit-base-patch16-224", "hf:google/vit-base-patch16-224"),
        ("openclip:ViT-B-32/openai", "openclip:ViT-B-32/openai"),
        ("http://host:8000/predict", "http://host:8000/predict"),
        ("ensemble:", "ensemble"),
    ],
)
def test_a_name_is_shown_without_the_folders_of_its_file(name: str, short: str) -> None:
    assert short_name(name) == short


def test_files_of_one_name_keep_their_folders(tmp_path: Path) -> None:
    names = ("python:/a/nets.py:n", "python:/b/nets.py:n", "python:/b/nets.py:m")
    runs = [build(tmp_path / str(number), Plan(model=name)) for number, name in enumerate(names)]
    assert labels(runs) == [names[0], names[1], "python:nets.py:m"]


def test_every_run_has_its_own_page(pair: Path) -> None:
    assert read(pair / "run-1.html").all("h1")[0].text == "python:m"
    assert read(pair / "run-2.html").all("h1")[0].text == "python:n"


def test_runs_that_differ_in_more_than_the_model_are_marked(pair: Path, run: Run, tmp_path: Path) -> None:
    assert "These runs differ in more than the model" in read(pair / "index.html").words
    assert "search.step (0.01 / 0.5)" in read(pair / "index.html").words
    alike = write_report([run, build(tmp_path / "alike", Plan(model="python:n"))], tmp_path / "report")
    assert "differ in more than the model" not in read(alike).words


def test_parts_of_one_name_and_other_weights_are_marked(run: Run, tmp_path: Path) -> None:
    other = build(tmp_path / "other", Plan(model="python:n"))
    described = json.loads((other.path / "run.json").read_text())
    described["provenance"]["parts"]["oracle"] = {"weights": "f" * 64}
    (other.path / "run.json").write_text(json.dumps(described))
    words = read(write_report([run, open_run(other.path)], tmp_path / "report")).words
    assert "These runs differ in more than the model" in words and "oracle weights (" in words


def test_what_holds_for_every_run_is_said_once(pair: Path) -> None:
    words = read(pair / "index.html").words
    few = "18 images were accepted by the oracle. Intervals are wide, and numbers for parts of them say little."
    assert words.count(few) == 1 and f"Every run: Only {few}" in words


def test_runs_that_cannot_be_told_apart_share_a_range_of_ranks(tmp_path: Path) -> None:
    shares = {"a": 0.3, "b": 0.95, "c": 0.33}
    runs = [open_run(stored(tmp_path / name, name, kept=kept, images=90)) for name, kept in shares.items()]
    page = read(write_report(runs, tmp_path / "report"))
    assert "By matched FMR, b keeps the largest share of its accuracy" in page.words
    assert "Compared image by image, these cannot be told apart: c and a." in page.words
    for start in ("a 2–3 ", "b 1 ", "c 2–3 "):
        assert any(row.startswith(start) for row in page.rows), start


def test_runs_over_other_images_are_not_ranked(tmp_path: Path) -> None:
    runs = [build(tmp_path / "one"), build(tmp_path / "two", Plan(model="python:n", prefix="photo"))]
    page = read(write_report(runs, tmp_path / "report"))
    assert "no source image in common" in page.words
    assert not any("Rank" in head.text for head in page.all("th"))


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
