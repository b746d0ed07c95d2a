from __future__ import annotations

import os
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from PIL import Image

from counterfoil.core.errors import BadData, BadImage, LabelMismatch
from counterfoil.parts.contracts import Dataset
from counterfoil.parts.datasets.folder import folder


def fill(root: Path, files: Sequence[str]) -> Path:
    """Pictures at the given paths, each of a grey of its own."""
    for shade, name in enumerate(files):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (12, 10), (shade, shade, shade)).save(path, format="PNG")
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


def test_a_sample_loads_its_own_picture(tmp_path: Path) -> None:
    data = folder(str(fill(tmp_path, ["cat/a.png", "dog/b.png"])))
    second = list(data)[1]
    assert data.load(second, None).shape == (3, 10, 12)
    assert torch.allclose(data.load(second, 8), torch.full((3, 8, 8), 1 / 255))


def test_hidden_files_other_files_and_empty_folders_are_passed_over(tmp_path: Path) -> None:
    fill(
        tmp_path, ["cat/a.png", "dog/b.png", "cat/.hidden.png", ".git/c.png", "__MACOSX/d.png", "cat/.thumbs/e.png", "loose.png"]
    )
    (tmp_path / "cat" / "notes.txt").write_text("no picture")
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


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("folder,name\nc1,cat\n", "no name for the folders 'c2'"),
        ("folder,name\nc1,cat\nc2,cat\n", "'c1' and 'c2' are both named 'cat'"),
    ],
)
def test_names_that_do_not_fit_are_refused(tmp_path: Path, content: str, message: str) -> None:
    fill(tmp_path / "data", ["c1/a.png", "c2/a.png"])
    (tmp_path / "names.csv").write_text(content)
    with pytest.raises(LabelMismatch, match=message):
        folder(str(tmp_path / "data"), names=str(tmp_path / "names.csv"))


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([], "no images in sub-folders; it needs a sub-folder"),
        (["a.png"], "no images in sub-folders; put them in one sub-folder a class"),
        (["cat/a.png"], "only one class, 'cat'"),
    ],
)
def test_a_folder_that_is_no_data_set_is_refused(tmp_path: Path, files: list[str], message: str) -> None:
    with pytest.raises(BadData, match=message):
        folder(str(fill(tmp_path, files)))


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="nowhere: no such folder"):
        folder(str(tmp_path / "nowhere"))
    with pytest.raises(BadData, match="name a folder"):
        folder("")


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "photos.zip").touch()
    with pytest.raises(BadData, match=r"photos\.zip: not a folder; give one with a sub-folder"):
        folder(str(tmp_path / "photos.zip"))


def test_a_name_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    fill(tmp_path, ["cat/a.png", "dog/b.png"])
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/dog/caf\xe9.png")).write_bytes(b"")
    with pytest.raises(BadData, match=r"caf\\udce9.png' is not in UTF-8; rename it"):
        len(folder(str(tmp_path)))


def test_a_link_that_leads_nowhere_is_a_bad_picture_and_no_more(tmp_path: Path) -> None:
    fill(tmp_path, ["cat/a.png", "dog/b.png"])
    (tmp_path / "dog" / "c.png").symlink_to(tmp_path / "gone.png")
    data = folder(str(tmp_path))
    assert data.provenance()["files"] == "3"
    with pytest.raises(BadImage, match="no such file"):
        data.load(list(data)[2], 8)


def test_a_bad_picture_shows_when_it_is_loaded(tmp_path: Path) -> None:
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


def test_a_listing_of_many_pictures_takes_little_memory(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        for index in range(2000):
            (tmp_path / name / f"picture-{index:06d}.png").touch()
    tracemalloc.start()
    data = folder(str(tmp_path))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(data) == 4000
    assert held / len(data) < 40  # bytes a picture; the file name alone takes 18
