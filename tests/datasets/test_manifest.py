from __future__ import annotations

from pathlib import Path

import pytest

from counterfoil.core.errors import BadData, BadImage
from counterfoil.parts.datasets.manifest import csv_dataset
from counterfoil.testing import check_dataset
from tests.datasets.made import number_of, shade


def listed(folder: Path, text: str, name: str = "list.csv") -> str:
    """A table beside three pictures."""
    (folder / "sub").mkdir(exist_ok=True)
    for number, path in enumerate(("a.png", "b.png", "sub/c.png")):
        shade(number).save(folder / path)
    (folder / name).write_text(text)
    return str(folder / name)


def test_pictures_and_labels_come_from_the_table(tmp_path: Path) -> None:
    data = csv_dataset(listed(tmp_path, "path,label\na.png,dog\nb.png,cat\nsub/c.png,dog\n"))
    assert list(data.classes) == ["cat", "dog"]
    assert [(sample.image_id, sample.label) for sample in data] == [("a.png", 1), ("b.png", 0), ("sub/c.png", 1)]
    assert [number_of(data.load(sample, 8)) for sample in data] == [0, 1, 2]
    check_dataset(data)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("wnid,extra,filename,id\ndog,1,a.png,x\ncat,2,b.png,y\n", "list.csv"),
        ("filename\tclass\tid\na.png\tdog\tx\nb.png\tcat\ty\n", "list.tsv"),
        ("a.png,dog,x\nb.png,cat,y\n", "list.csv"),
        ("\ufeffpath,label,id\r\n\r\na.png,dog,x\r\nb.png,cat,y\r\n", "list.csv"),
    ],
)
def test_headings_ids_and_other_spellings(tmp_path: Path, text: str, name: str) -> None:
    data = csv_dataset(listed(tmp_path, text, name))
    assert [(sample.image_id, data.classes[sample.label], sample.source) for sample in data] == [
        ("x", "dog", "a.png"),
        ("y", "cat", "b.png"),
    ]


def test_columns_root_and_names_may_be_given(tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    listed(tmp_path / "pictures", "")
    file = listed(tmp_path, "where,what\na.png,1\nb.png,0\n")
    data = csv_dataset(file, columns=["where", "what"], root=str(tmp_path / "pictures"), classes=["cat", "dog", "elk"])
    assert [data.classes[sample.label] for sample in data] == ["dog", "cat"]
    assert list(data.classes) == ["cat", "dog", "elk"]


def test_numbers_count_the_classes_listed_beside_the_table(tmp_path: Path) -> None:
    (tmp_path / "classes.txt").write_text("cat\ndog\nelk\n")
    assert list(csv_dataset(listed(tmp_path, "path,label\na.png,1\nb.png,0\n")).classes) == ["cat", "dog", "elk"]
    assert list(csv_dataset(listed(tmp_path, "path,label\na.png,owl\nb.png,ant\n")).classes) == [
        "ant",
        "owl",
    ]  # words name themselves


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("path,label\na.png,\nb.png,cat\n", "line 2: no label"),
        ("path,label\n,dog\nb.png,cat\n", "line 2: no path"),
        ("path,label\na.png,dog\na.png,cat\n", "'a.png' is listed twice"),
        ("path,label\na.png,dog\nb.png,dog\n", "only one class"),
        ("path,colour\na.png,red\n", "its columns are path, colour; call them path and label"),
        ("a,b,c,d\n1,2,3,4\n", "its columns are a, b, c, d"),
    ],
)
def test_tables_that_are_no_data_set_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(BadData, match=message):
        csv_dataset(listed(tmp_path, text))


def test_missing_tables_columns_and_pictures_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadData, match=r"none\.csv: cannot be read"):
        csv_dataset(str(tmp_path / "none.csv"))
    with pytest.raises(BadData, match="name a file"):
        csv_dataset("")
    file = listed(tmp_path, "path,label\na.png,dog\nlost.png,cat\n")
    with pytest.raises(BadData, match=r"columns are \[path, label\]"):
        csv_dataset(file, columns=["path", "nothing"])
    data = csv_dataset(file)
    with pytest.raises(BadImage, match=r"lost\.png: no such file"):
        data.load(list(data)[1], 8)
