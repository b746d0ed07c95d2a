from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from counterfoil.core.errors import BadData, BadImage
from counterfoil.parts.datasets.shards import expand
from counterfoil.parts.datasets.webdataset import webdataset
from counterfoil.testing import check_dataset
from tests.datasets.made import number_of, png, shard

Files = Mapping[str, bytes]


@pytest.fixture
def two(tmp_path: Path) -> str:
    """Two shards of two samples."""
    shard(tmp_path / "photos-000.tar", {"a.png": png(0), "a.cls": b"dog\n", "b.png": png(1), "b.cls": b"cat"})
    shard(
        tmp_path / "photos-001.tar",
        {"in/a.cls": b"dog", "in/a.png": png(2), "._x.png": b"junk", "c.cls": b"elk", "c.jpg": png(3)},
    )
    return str(tmp_path / "photos-{000..001}.tar")


def test_samples_are_the_files_of_one_name(two: str) -> None:
    data = webdataset(two)
    assert list(data.classes) == ["cat", "dog", "elk"]
    assert [(sample.image_id, data.classes[sample.label]) for sample in data] == [
        ("photos-000/a", "dog"),
        ("photos-000/b", "cat"),
        ("photos-001/in/a", "dog"),
        ("photos-001/c", "elk"),
    ]
    assert [number_of(data.load(sample, 8)) for sample in data] == [0, 1, 2, 3]
    check_dataset(data)


def test_patterns_are_written_out(tmp_path: Path, two: str) -> None:
    names = [path.name for path in expand(two)]
    assert names == ["photos-000.tar", "photos-001.tar"]
    assert [path.name for path in expand(str(tmp_path / "photos-00{1,0}.tar"))] == ["photos-001.tar", "photos-000.tar"]
    assert [path.name for path in expand(str(tmp_path / "*.tar"))] == names
    with pytest.raises(BadData, match=r"no such file: .*photos-002\.tar"):
        expand(str(tmp_path / "photos-{000..002}.tar"))
    with pytest.raises(BadData, match="no such file"):
        expand(str(tmp_path / "*.zip"))


def test_numbers_count_the_names_given(tmp_path: Path) -> None:
    file = shard(tmp_path / "x.tar", {"a.png": png(0), "a.cls": b"1", "b.png": png(1), "b.cls": b"0"})
    assert [sample.label for sample in webdataset(str(file), classes=["cat", "dog", "elk"])] == [1, 0]


def test_labels_may_be_in_a_json_file(tmp_path: Path) -> None:
    texts = [json.dumps({"species": name, "n": at}).encode() for at, name in enumerate(("dog", "cat"))]
    file = shard(tmp_path / "x.tar", {"a.png": png(0), "a.json": texts[0], "b.png": png(1), "b.json": texts[1]})
    assert [sample.label for sample in webdataset(str(file), label="json.species")] == [1, 0]
    assert list(webdataset(str(file), label="json.n").classes) == ["0", "1"]
    with pytest.raises(BadData, match=r"the label of sample 'a' cannot be read from \.json"):
        webdataset(str(file), label="json.genus")


def test_the_picture_is_chosen_by_its_ending(tmp_path: Path) -> None:
    files = {
        "a.png": png(0),
        "a.mask.png": png(9),
        "a.jpg": png(5),
        "a.cls": b"0",
        "b.png": png(1),
        "b.jpg": png(6),
        "b.cls": b"1",
    }
    file = shard(tmp_path / "x.tar", files)
    with pytest.raises(BadData, match=r"sample 'a' has several pictures among .*give image: the ending"):
        webdataset(str(file))
    data = webdataset(str(file), image="jpg")
    assert [number_of(data.load(sample, 8)) for sample in data] == [5, 6]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a.png": png(0)}, r"sample 'a' has no label among \.png; give label"),
        ({"a.cls": b"0"}, r"sample 'a' has no picture among \.cls"),
        ({"a.png": png(0), "a.cls": b"0", "b.png": png(1), "b.cls": b"0"}, "only one class"),
        ({"a.pickle": b"x"}, "no picture"),
        ({}, "no images"),
    ],
)
def test_shards_that_are_no_data_set_are_refused(tmp_path: Path, files: Files, message: str) -> None:
    with pytest.raises(BadData, match=message):
        webdataset(str(shard(tmp_path / "x.tar", files)))


def test_damaged_and_compressed_shards_are_refused(tmp_path: Path, two: str) -> None:
    (tmp_path / "bad.tar").write_bytes(b"not a tar file" * 100)
    with pytest.raises(BadData, match=r"bad\.tar: cannot be read as a tar file"):
        webdataset(str(tmp_path / "bad.tar"))
    with pytest.raises(BadData, match="gunzip"):
        webdataset(str(shard(tmp_path / "x.tar.gz", {"a.png": png(0), "a.cls": b"0"})))
    with pytest.raises(BadData, match="name tar files"):
        webdataset("")
    data = webdataset(two)
    (tmp_path / "photos-001.tar").write_bytes(b"")
    with pytest.raises(BadImage, match="cut short"):
        data.load(list(data)[-1], 8)


def test_provenance_tells_other_shards(tmp_path: Path, two: str) -> None:
    before = webdataset(two).provenance()
    assert before == webdataset(two).provenance()
    shard(tmp_path / "photos-001.tar", {"a.png": png(0), "a.cls": b"elk"})
    assert webdataset(two).provenance()["listing"] != before["listing"]
