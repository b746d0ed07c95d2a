from __future__ import annotations

from pathlib import Path

import pytest

from counterfoil.core.errors import BadData, LabelMismatch
from counterfoil.parts.datasets.labelling import labelling


def test_words_are_the_classes_sorted() -> None:
    found = labelling(["dog", "cat", "dog"], None, what="x")
    assert (found.classes, found.numbers) == (["cat", "dog"], {"cat": 0, "dog": 1})


def test_wordnet_ids_are_put_into_words() -> None:
    found = labelling(["n02012849", "n01440764"], None, what="x")
    assert found.classes == ["tench", "crane bird"]
    assert found.aliases == [("n01440764",), ("n02012849",)]


def test_numbers_name_themselves_or_count_the_names_given(tmp_path: Path) -> None:
    assert labelling(["2", "0"], None, what="x").classes == ["0", "1", "2"]
    (tmp_path / "names.txt").write_text("cat\ndog\nelk\n")
    found = labelling(["2", "0"], str(tmp_path / "names.txt"), what="x")
    assert (found.classes, found.numbers) == (["cat", "dog", "elk"], {"0": 0, "2": 2})


def test_words_are_found_among_the_names_given() -> None:
    found = labelling(["Hot-Dog", "cat"], ["cat", "dog", "hot_dog"], what="x")
    assert found.numbers == {"Hot-Dog": 2, "cat": 0}
    assert found.classes == ["cat", "dog", "hot_dog"]


def test_numbers_that_are_names_are_names() -> None:
    assert labelling(["10", "20"], ["10", "20"], what="x").numbers == {"10": 0, "20": 1}


@pytest.mark.parametrize(
    ("written", "classes", "message"),
    [
        ([], None, "no images"),
        (["cat"], None, "only one class"),
        (["0", "5"], ["a", "b"], "labels go up to 5, but there are 2 classes"),
        (["cat", "cow"], ["cat", "dog"], "'cow'"),
    ],
)
def test_labels_that_make_no_sense_are_refused(written: list[str], classes: list[str] | None, message: str) -> None:
    with pytest.raises((BadData, LabelMismatch), match=message):
        labelling(written, classes, what="x")
