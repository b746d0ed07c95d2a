"""`counterfoil study paper`: published rows, ours beside them, and what differs."""

from __future__ import annotations

from pathlib import Path

import pytest

from counterfoil import store
from tests.cli.stored import call, stored


@pytest.mark.parametrize("number", range(1, 16))
def test_every_table_prints_by_itself(number: int) -> None:
    code, output = call("paper", "--table", number)
    assert code == 0
    assert output.startswith(f"Table {number}: ")
    assert "our runs" not in output


def test_values_that_contradict_each_other_are_all_shown() -> None:
    output = call("paper", "--table", 1)[1]
    assert "30.28*" in output
    for value in ("54.88*", "54.17", "57.8 ", "57.79", "23.94"):
        assert value in output


def test_a_run_stands_beside_the_row_it_is_meant_for_and_says_what_differs(tmp_path: Path) -> None:
    path = stored(tmp_path / "a", "timm:lenet")
    values = store.open_run(path).results
    code, output = call("paper", path)
    assert code == 0
    row = next(line for line in output.splitlines() if line.startswith("MNIST"))
    assert row.split()[1:5] == ["LeNet", "99.09", "27.78", "28.04"]
    assert f"{values['SA']['value']:.1f} ({values['SA']['low']:.1f} to {values['SA']['high']:.1f})" in row
    differences = (
        "data lab:wardrobe, 60 images",
        "oracle o",
        "generator lab:vqgan",
        "step 0.01, unit scale",
        "budget of 3 steps",
        "gradient normalised by l2",
        "pictures of 64 px",
    )
    for mark, said in zip(row.split()[-7:], differences, strict=True):
        assert f"  {mark}  {said} (published: " in output
    assert "model timm:lenet (published" not in output


def test_a_run_may_be_put_beside_a_row_by_name(tmp_path: Path) -> None:
    path = stored(tmp_path / "a")
    output = call("paper", f"Swin={path}")[1]
    row = next(line for line in output.splitlines() if " Swin " in line)
    assert row.count(" to ") == 3
    assert "model lab:narrow (published: Swin)" in output
    code, complaint = call("paper", f"Swan={path}")
    assert code == 2
    assert "'Swan': no such row in Table 1; it has LeNet" in complaint


def test_a_run_of_no_published_model_gets_a_row_of_its_own(tmp_path: Path) -> None:
    lines = call("paper", stored(tmp_path / "a"), stored(tmp_path / "b", "timm:resnet18"))[1].splitlines()
    for name in ("lab:narrow", "timm:resnet18"):  # there are two ResNet18, on data that this run has not seen
        row = next(line for line in lines if line.split()[1:2] == [name])
        assert row.split()[2:5] == ["–", "–", "–"]
    assert sum(" to " in line for line in lines) == 2


def test_tables_by_class_and_by_scored_model(tmp_path: Path) -> None:
    path = stored(tmp_path / "a", "timm:resnet18")
    output = call("paper", "--table", 13, path)[1]
    assert next(line for line in output.splitlines() if " Cat " in line).count(" to ") == 3  # the run has cats
    assert next(line for line in output.splitlines() if " all " in line).count(" to ") == 3
    assert sum(" to " in line and "timm:resnet18  ant" in line for line in output.splitlines()) == 1
    output = call("paper", "--table", 8, path)[1]
    assert "timm:resnet18  timm:resnet18" in output


def test_wrong_use(tmp_path: Path) -> None:
    assert call("paper", "--table", 16) == (2, call("paper", "--table", 16)[1])
    assert "it has 1 to 15" in call("paper", "--table", 16)[1]
    code, complaint = call("paper", "--table", 12, stored(tmp_path / "a"))
    assert (code, "leave the runs out" in complaint) == (2, True)
    assert call("paper", tmp_path / "nowhere")[0] == 2
