from __future__ import annotations

import json
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from counterfoil.core.errors import BadData, BadImage
from counterfoil.testing import check_dataset
from tests.parts.created import webdataset
from tests.parts.datasets.made import number_of, png, shard

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
    def shards(pattern: str) -> list[str]:
        return list(dict.fromkeys(sample.image_id.partition("/")[0] for sample in webdataset(pattern)))

    names = ["photos-000", "photos-001"]
    assert shards(two) == names
    assert shards(str(tmp_path / "photos-00{1,0}.tar")) == names[::-1]
    assert shards(str(tmp_path / "*.tar")) == names


def test_numbers_count_the_names_given(tmp_path: Path) -> None:
    file = shard(tmp_path / "x.tar", {"a.png": png(0), "a.cls": b"1", "b.png": png(1), "b.cls": b"0"})
    assert [sample.label for sample in webdataset(str(file), classes=["cat", "dog", "elk"])] == [1, 0]


def test_labels_may_be_in_a_json_file(tmp_path: Path) -> None:
    texts = [json.dumps({"species": name, "n": at}).encode() for at, name in enumerate(("dog", "cat"))]
    file = shard(tmp_path / "x.tar", {"a.png": png(0), "a.json": texts[0], "b.png": png(1), "b.json": texts[1]})
    assert [sample.label for sample in webdataset(str(file), label="json.species")] == [1, 0]
    assert list(webdataset(str(file), label="json.n").classes) == ["0", "1"]


def test_the_image_is_chosen_by_its_ending(tmp_path: Path) -> None:
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
    data = webdataset(str(file), image="jpg")
    assert [number_of(data.load(sample, 8)) for sample in data] == [5, 6]


def test_a_shard_cut_short_is_noticed(tmp_path: Path, two: str) -> None:
    data = webdataset(two)
    (tmp_path / "photos-001.tar").write_bytes(b"")
    with pytest.raises(BadImage, match="cut short"):
        data.load(list(data)[-1], 8)


def flip(content: bytearray, at: int) -> bytes:
    content[at] ^= 1
    return bytes(content)


def one_less(content: bytearray, at: int) -> bytes:
    return bytes(content[:at])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda content, header: flip(content, header + 120), "damaged at byte"),
        (lambda content, header: flip(content, header + 1), "damaged at byte"),
        (lambda content, header: one_less(content, header), "cut off at byte"),
        (lambda content, header: one_less(content, header + 200), "damaged at byte|truncated header"),
        (lambda content, header: bytes(content[:header]) + bytes(1024) + bytes(content[header:]), "damaged at byte"),
        (lambda content, header: one_less(content, header + 512 + 3), "unexpected end of data"),
    ],
    ids=["a bit of a header", "a bit of a name", "cut between files", "cut in a header", "zeros in the middle", "cut in a file"],
)
def test_no_sample_is_lost_without_a_word(tmp_path: Path, damage: Callable[[bytearray, int], bytes], message: str) -> None:
    files: dict[str, bytes] = {}
    for number in range(6):
        files |= {f"{number}.png": png(number), f"{number}.cls": b"cat" if number % 2 else b"dog"}
    file = shard(tmp_path / "x.tar", files)
    assert len(webdataset(str(file))) == 6
    with tarfile.open(file) as archive:
        header = archive.getmember("3.png").offset
    file.write_bytes(damage(bytearray(file.read_bytes()), header))
    with pytest.raises(BadData, match=message) as caught:
        webdataset(str(file))
    assert "\n" not in str(caught.value) and "copy it again" in str(caught.value)


def test_provenance_tells_other_shards(tmp_path: Path, two: str) -> None:
    before = webdataset(two).provenance()
    assert before == webdataset(two).provenance()
    shard(tmp_path / "photos-001.tar", {"a.png": png(0), "a.cls": b"elk"})
    assert webdataset(two).provenance()["listing"] != before["listing"]
