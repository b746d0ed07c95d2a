"""Images in class folders, in CSV files and in tar files."""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from PIL import Image

from counterfoil.core.errors import BadData, BadImage
from counterfoil.parts.contracts import Dataset
from counterfoil.testing import check_dataset
from tests.parts.created import csv_dataset, folder, webdataset
from tests.parts.datasets.made import number_of, png, shade, shard


def fill(root: Path, files: Sequence[str]) -> Path:
    """Images at the given paths, each of a grey of its own."""
    for grey, name in enumerate(files):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (12, 10), (grey, grey, grey)).save(path, format="PNG")
    return root


def test_each_sub_folder_is_a_class(tmp_path: Path) -> None:
    data = folder(str(fill(tmp_path, ["dog/b.png", "cat/z.png", "cat/a.jpg", "dog/deep/c.PNG"])))
    assert isinstance(data, Dataset)
    assert list(data.classes) == ["cat", "dog"]
    assert [(sample.image_id, sample.label) for sample in data] == [
        ("cat/a.jpg", 0),
        ("cat/z.png", 0),
        ("dog/b.png", 1),
        ("dog/deep/c.PNG", 1),
    ]
    assert len(data) == 4


def test_hidden_files_other_files_and_empty_folders_are_passed_over(tmp_path: Path) -> None:
    fill(
        tmp_path, ["cat/a.png", "dog/b.png", "cat/.hidden.png", ".git/c.png", "__MACOSX/d.png", "cat/.thumbs/e.png", "loose.png"]
    )
    (tmp_path / "cat" / "notes.txt").write_text("no image")
    (tmp_path / "empty").mkdir()
    data = folder(str(tmp_path))
    assert list(data.classes) == ["cat", "dog"]
    assert [sample.image_id for sample in data] == ["cat/a.png", "dog/b.png"]


def test_linked_class_folders_are_followed(tmp_path: Path) -> None:
    fill(tmp_path / "store", ["x/a.png"])
    fill(tmp_path / "data", ["cat/a.png"])
    (tmp_path / "data" / "dog").symlink_to(tmp_path / "store" / "x", target_is_directory=True)
    assert [sample.image_id for sample in folder(str(tmp_path / "data"))] == ["cat/a.png", "dog/a.png"]


def test_wordnet_ids_are_put_into_words_and_kept_as_aliases(tmp_path: Path) -> None:
    data = folder(str(fill(tmp_path, ["n01440764/a.png", "n02012849/a.png", "n03126707/a.png"])))
    assert list(data.classes) == ["tench", "crane bird", "crane"]
    assert list(data.aliases) == [("n01440764",), ("n02012849",), ("n03126707",)]


def test_names_come_from_a_file(tmp_path: Path) -> None:
    fill(tmp_path / "data", ["c1/a.png", "c2/a.png"])
    (tmp_path / "names.csv").write_text("folder,name\nc2,dog\nc1,cat\nc9,bird\n")
    (tmp_path / "names.txt").write_text("c1 cat\nc2 dog\n")
    for file in ("names.csv", "names.txt"):
        assert list(folder(str(tmp_path / "data"), names=str(tmp_path / file)).classes) == ["cat", "dog"]


def test_a_name_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    fill(tmp_path, ["cat/a.png", "dog/b.png"])
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/dog/caf\xe9.png")).write_bytes(b"")
    with pytest.raises(BadData, match=r"caf\\udce9.png' is not in UTF-8; rename it"):
        len(folder(str(tmp_path)))


def test_a_link_that_leads_nowhere_is_a_bad_image_and_no_more(tmp_path: Path) -> None:
    fill(tmp_path, ["cat/a.png", "dog/b.png"])
    (tmp_path / "dog" / "c.png").symlink_to(tmp_path / "gone.png")
    data = folder(str(tmp_path))
    assert data.provenance()["files"] == "3"
    with pytest.raises(BadImage, match="no such file"):
        data.load(list(data)[2], 8)


def test_a_bad_image_shows_when_it_is_loaded(tmp_path: Path) -> None:
    fill(tmp_path, ["cat/a.png", "dog/b.png"])
    (tmp_path / "cat" / "a.png").write_bytes(b"broken")
    data = folder(str(tmp_path))
    with pytest.raises(BadImage, match=r"cat/a\.png: "):
        data.load(next(iter(data)), 8)


def test_provenance_tells_other_files(tmp_path: Path) -> None:
    data = folder(str(fill(tmp_path, ["cat/a.png", "dog/b.png"])))
    first = data.provenance()
    assert first == folder(str(tmp_path)).provenance()
    fill(tmp_path, ["dog/c.png"])
    assert folder(str(tmp_path)).provenance()["listing"] != first["listing"]


def test_a_class_folder_that_cannot_be_listed_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, ["bag/a.png", "boot/b.png", "dress/deep/c.png"])
    scan = os.scandir

    def scan_locked(path: os.PathLike[str]) -> object:
        if str(path).rstrip("/").endswith(locked):
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", scan_locked)
    for locked in ("boot", "deep"):
        with pytest.raises(BadData, match=rf"{locked}/?: cannot be listed \(Permission denied\)"):
            folder(str(tmp_path))


def test_what_is_no_regular_file_is_left_out(tmp_path: Path) -> None:
    fill(tmp_path, ["cat/a.png", "dog/b.png"])
    os.mkfifo(tmp_path / "cat" / "fifo.png")
    (tmp_path / "cat" / "self.png").symlink_to(tmp_path / "cat" / "self.png")
    (tmp_path / "cat" / "to-fifo.png").symlink_to(tmp_path / "cat" / "fifo.png")
    data = folder(str(tmp_path))
    assert [sample.image_id for sample in data] == ["cat/a.png", "cat/self.png", "cat/to-fifo.png", "dog/b.png"]
    for bad in list(data)[1:3]:
        with pytest.raises(BadImage, match=r"Too many levels|not a regular file"):
            data.load(bad, 8)


def test_folders_may_be_nested_as_deep_as_the_system_lets_them(tmp_path: Path) -> None:
    fill(tmp_path, ["cat/a.png", "dog/b.png"])
    here = os.open(tmp_path / "dog", os.O_RDONLY)
    for _ in range(1200):  # more than Python's limit on recursion
        os.mkdir("d", dir_fd=here)
        deeper = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = deeper
    try:
        assert len(folder(str(tmp_path))) == 2
    finally:  # from below, as a removal from above would recurse
        for _ in range(1200):
            above = os.open("..", os.O_RDONLY, dir_fd=here)
            os.close(here)
            os.rmdir("d", dir_fd=above)
            here = above
        os.close(here)


def write_list(folder: Path, text: str, name: str = "list.csv") -> str:
    """A table next to three images."""
    (folder / "sub").mkdir(exist_ok=True)
    for number, path in enumerate(("a.png", "b.png", "sub/c.png")):
        shade(number).save(folder / path)
    (folder / name).write_text(text)
    return str(folder / name)


def test_pictures_and_labels_come_from_the_table(tmp_path: Path) -> None:
    data = csv_dataset(write_list(tmp_path, "path,label\na.png,dog\nb.png,cat\nsub/c.png,dog\n"))
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
    data = csv_dataset(write_list(tmp_path, text, name))
    assert [(sample.image_id, data.classes[sample.label], sample.source) for sample in data] == [
        ("x", "dog", "a.png"),
        ("y", "cat", "b.png"),
    ]


def test_columns_root_and_names_may_be_given(tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    write_list(tmp_path / "pictures", "")
    file = write_list(tmp_path, "where,what\na.png,1\nb.png,0\n")
    data = csv_dataset(file, columns=["where", "what"], root=str(tmp_path / "pictures"), classes=["cat", "dog", "elk"])
    assert [data.classes[sample.label] for sample in data] == ["dog", "cat"]
    assert list(data.classes) == ["cat", "dog", "elk"]


def test_numbers_count_the_classes_listed_beside_the_table(tmp_path: Path) -> None:
    (tmp_path / "classes.txt").write_text("cat\ndog\nelk\n")
    assert list(csv_dataset(write_list(tmp_path, "path,label\na.png,1\nb.png,0\n")).classes) == ["cat", "dog", "elk"]
    assert list(csv_dataset(write_list(tmp_path, "path,label\na.png,owl\nb.png,ant\n")).classes) == [
        "ant",
        "owl",
    ]  # words name themselves


def test_a_missing_picture_is_named(tmp_path: Path) -> None:
    file = write_list(tmp_path, "path,label\na.png,dog\nlost.png,cat\n")
    data = csv_dataset(file)
    with pytest.raises(BadImage, match=r"lost\.png: no such file"):
        data.load(list(data)[1], 8)


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
