"""The published tables: that they were copied right, as far as their own arithmetic can say, and where they contradict."""

from __future__ import annotations

import pytest

from counterfoil.core.errors import UsageError
from counterfoil.studies import papers
from counterfoil.studies.papers.ours import same_words

PAPER = papers.load("fmr")


def rows(number: int) -> list[dict]:
    table = PAPER.table(number)
    return [table.row(place) for place in range(len(table.rows))]


def test_all_fifteen_tables_are_there_and_rectangular() -> None:
    assert sorted(PAPER.tables) == list(range(1, 16))
    for table in PAPER.tables.values():
        assert all(len(row) == len(table.columns) for row in table.rows)
        assert table.labels
        assert table.numbers or table.number == 4
        for column in zip(*table.rows, strict=True):
            assert len({isinstance(cell, str) for cell in column}) == 1
        for each in table.elsewhere:
            assert each.value != table.row(each.row)[each.column]


@pytest.mark.parametrize("number", [1, 2])
def test_fmr_is_pa_over_sa(number: int) -> None:
    for row in rows(number):
        assert row["FMR"] == pytest.approx(100 * row["PA"] / row["SA"], abs=0.011), row


def test_table_three_has_the_sa_of_table_two_and_its_vqgan_column() -> None:
    second = {row["model"]: row for row in rows(2)}
    for row in rows(3):
        assert row["FMR"] == pytest.approx(100 * row["PA"] / second[row["model"]]["SA"], abs=0.011), row
        if row["generator"] == "VQGAN":
            assert (row["PA"], row["FMR"]) == (second[row["model"]]["PA"], second[row["model"]]["FMR"])
    assert len(rows(3)) == 35


def test_the_nine_class_row_is_the_run_with_the_large_step() -> None:
    """Pooled over accepted images, Table 13 gives Table 1's PA and FMR; Table 14 gives another FMR."""
    classes = [row for row in rows(13) if row["class"] != "all"]
    accepted = sum(row["VR"] for row in classes)
    pooled = sum(row["SA"] * row["FMR"] / 100 * row["VR"] for row in classes) / accepted
    first = next(row for row in rows(1) if row["data"] == "9-class ImageNet")
    assert first["PA"] == pytest.approx(pooled, abs=0.01)
    assert first["FMR"] == rows(13)[-1]["FMR"] != rows(14)[-1]["FMR"]
    assert [each.value for each in PAPER.table(1).elsewhere if each.row == 2] == [rows(14)[-1]["FMR"]]


def test_table_fourteens_mean_needs_the_value_from_the_text() -> None:
    classes = [row["FMR"] for row in rows(14) if row["class"] != "all"]
    printed, text = rows(14)[5]["FMR"], 28.11
    assert sum(classes) / 9 == pytest.approx(23.83, abs=0.005)
    assert (sum(classes) - printed + text) / 9 == pytest.approx(rows(14)[-1]["FMR"], abs=0.005)


def test_one_saving_is_of_time_and_the_other_of_speed() -> None:
    nine, imagenet = rows(12)
    assert nine["saving % as printed"] == pytest.approx(100 * (1 - nine["sparse s"] / nine["dense s"]), abs=0.05)
    assert imagenet["saving % as printed"] == pytest.approx(100 * (imagenet["dense s"] / imagenet["sparse s"] - 1), abs=0.05)
    assert PAPER.table(12).elsewhere[0].value == pytest.approx(100 * (1 - imagenet["sparse s"] / imagenet["dense s"]), abs=0.05)


def test_every_value_for_the_cifar_model_is_named_where_one_of_them_stands() -> None:
    values = {54.88, 54.17, 57.79, 57.80}
    assert {each.value for each in PAPER.table(1).elsewhere if each.row == 1} == values - {54.88}
    assert {each.value for each in PAPER.table(6).elsewhere} == values - {54.17}


def test_no_such_table() -> None:
    with pytest.raises(UsageError, match="it has 1 to 15"):
        PAPER.table(16)


@pytest.mark.parametrize(
    ("published", "ours", "same"),
    [
        ("ResNet50", "timm:resnet50.a1_in1k", True),
        ("CIFAR-10", "torchvision-data:CIFAR10", True),
        ("CIFAR-10", "torchvision-data:CIFAR100", False),
        ("MNIST", "torchvision-data:FashionMNIST", False),
    ],
)
def test_names_are_the_same_in_other_spellings(published: str, ours: str, same: bool) -> None:
    assert same_words(published, ours) is same
