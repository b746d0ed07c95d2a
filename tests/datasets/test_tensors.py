from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from counterfoil.core.errors import BadData, BadImage
from counterfoil.parts.contracts import Dataset
from counterfoil.parts.datasets import rows
from counterfoil.parts.datasets.tensors import ArrayDataset, tensors

PIXELS = np.random.default_rng(0).integers(0, 256, (5, 8, 6, 3), dtype=np.uint8)
LABELS = np.array([0, 1, 1, 2, 0])
CLASSES = ["cat", "dog", "bird"]


def as_npz(folder: Path, pixels: np.ndarray) -> Path:
    np.savez(folder / "a.npz", images=pixels, labels=LABELS, classes=np.array(CLASSES))
    return folder / "a.npz"


def as_compressed(folder: Path, pixels: np.ndarray) -> Path:
    np.savez_compressed(folder / "a.npz", images=pixels, labels=LABELS, classes=np.array(CLASSES))
    return folder / "a.npz"


def as_folder(folder: Path, pixels: np.ndarray) -> Path:
    np.save(folder / "images.npy", pixels)
    np.save(folder / "labels.npy", LABELS)
    (folder / "classes.txt").write_text("\n".join(CLASSES))
    return folder


def as_safetensors(folder: Path, pixels: np.ndarray) -> Path:
    arrays = {"images": np.ascontiguousarray(pixels), "labels": LABELS}
    save_file(arrays, folder / "a.safetensors", metadata={"classes": json.dumps(CLASSES)})
    return folder / "a.safetensors"


WRITERS = [as_npz, as_compressed, as_folder, as_safetensors]


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("floating", [False, True])
@pytest.mark.parametrize("channels_first", [False, True])
def test_every_format_and_layout_gives_the_same_pictures(
    tmp_path: Path, write: Callable[[Path, np.ndarray], Path], floating: bool, channels_first: bool
) -> None:
    pixels = PIXELS.transpose(0, 3, 1, 2) if channels_first else PIXELS
    pixels = (pixels / 255).astype(np.float32) if floating else pixels
    data = tensors(str(write(tmp_path, pixels)))
    assert isinstance(data, Dataset)
    assert list(data.classes) == CLASSES
    assert [sample.label for sample in data] == LABELS.tolist()
    loaded = torch.stack([data.load(sample, None) for sample in data])
    assert torch.allclose(loaded, torch.from_numpy(PIXELS).permute(0, 3, 1, 2) / 255)


def test_image_ids_are_row_numbers(tmp_path: Path) -> None:
    assert [sample.image_id for sample in tensors(str(as_npz(tmp_path, PIXELS)))][:2] == ["00000000", "00000001"]


def test_pictures_are_brought_to_the_size_asked_for(tmp_path: Path) -> None:
    data = tensors(str(as_npz(tmp_path, PIXELS)))
    assert data.load(next(iter(data)), 4).shape == (3, 4, 4)


@pytest.mark.parametrize("write", [as_npz, as_folder, as_safetensors])
def test_uncompressed_files_are_left_on_disk(tmp_path: Path, write: Callable[[Path, np.ndarray], Path]) -> None:
    data = tensors(str(write(tmp_path, PIXELS)))
    assert isinstance(data._images, rows.FileRows)


def test_arrays_in_fortran_order_are_read_too(tmp_path: Path) -> None:
    path = as_folder(tmp_path, np.asfortranarray(PIXELS))
    data = tensors(str(path))
    assert torch.allclose(data.load(list(data)[3], None), torch.from_numpy(PIXELS[3]).permute(2, 0, 1) / 255)


def test_classes_may_be_given(tmp_path: Path) -> None:
    names = tmp_path / "names.txt"
    names.write_text("x\ny\nz\n")
    path = str(as_npz(tmp_path, PIXELS))
    assert (
        list(tensors(path, classes=["x", "y", "z"]).classes) == list(tensors(path, classes=str(names)).classes) == ["x", "y", "z"]
    )


def test_tensors_in_memory_make_a_data_set() -> None:
    data = ArrayDataset(torch.rand(3, 3, 8, 8), torch.tensor([0, 1, 0]))
    assert list(data.classes) == ["0", "1"]
    assert data.load(list(data)[2], None).shape == (3, 8, 8)


def test_provenance_holds_the_files_hashes(tmp_path: Path) -> None:
    data = tensors(str(as_folder(tmp_path, PIXELS)))
    assert data.provenance().keys() == {"images.npy", "labels.npy"}
    images = torch.rand(2, 3, 8, 8)
    told = [
        ArrayDataset(pixels, marks).provenance() for pixels, marks in ((images, [0, 1]), (images, [1, 0]), (1 - images, [0, 1]))
    ]
    assert len({each["content"] for each in told}) == 3
    assert ArrayDataset(images.clone(), [0, 1]).provenance() == told[0]


FLOATS = torch.rand(4, 3, 8, 8)


@pytest.mark.parametrize(
    ("images", "labels", "classes", "message"),
    [
        (FLOATS, [0, 1, 2, 3], ["a", "b"], "labels run from 0 to 3, but there are 2 classes"),
        (FLOATS, [0, -1, 1, 1], ["a", "b"], "labels run from -1"),
        (FLOATS, [0, 1, 1], None, "4 images but 3 labels"),
        (FLOATS, [0, 0, 0, 0], None, "only one class"),
        (FLOATS, [0, 1, 0, 1], ["a", "a"], "two classes are called 'a'"),
        (FLOATS, [0.5, 1.0, 0.0, 1.0], None, "labels are one whole number an image"),
        (FLOATS[:0], torch.zeros(0, dtype=torch.long), None, "no images"),
        (FLOATS[:, :1], [0, 1, 0, 1], None, "images have the shape"),
        (FLOATS[0], [0, 1, 0], None, "images have the shape"),
        (FLOATS * 255, [0, 1, 0, 1], None, "divide 8-bit images by 255"),
        (FLOATS - 1, [0, 1, 0, 1], None, "undo normalisation"),
        (FLOATS * float("nan"), [0, 1, 0, 1], None, "must lie in"),
        ((FLOATS * 255).long(), [0, 1, 0, 1], None, "images are uint8, or floating point"),
    ],
)
def test_arrays_that_make_no_data_set_are_refused(
    images: torch.Tensor, labels: object, classes: list[str] | None, message: str
) -> None:
    with pytest.raises(BadData, match=message):
        ArrayDataset(images, labels, classes=classes)  # type: ignore[arg-type]


def test_one_bad_row_among_many_shows_when_it_is_loaded() -> None:
    images = torch.rand(100, 3, 4, 4)
    images[41] = 3
    data = ArrayDataset(images, [0, 1] * 50, name="some")
    samples = list(data)
    data.load(samples[40], None)
    with pytest.raises(BadImage, match=r"some\[41\]: pixel values must lie in"):
        data.load(samples[41], None)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.npz", b"nonsense", "cannot be read as arrays"),
        ("a.safetensors", b"nonsense and more nonsense", "cannot be read as arrays"),
        ("a.mat", b"", "unknown kind of file"),
        ("b.npz", None, "no such file"),
        ("c.safetensors", None, "no such file"),
    ],
)
def test_files_that_hold_no_arrays_are_refused(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(BadData, match=f"{name}: {message}"):
        tensors(str(tmp_path / name))


def test_python_objects_are_not_loaded(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=np.array([{"a": 1}, None], dtype=object), labels=np.array([0, 1]))
    with pytest.raises(BadData, match="Python objects"):
        tensors(str(tmp_path / "a.npz"))


def test_a_missing_array_is_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=PIXELS, targets=LABELS)
    with pytest.raises(BadData, match="no array named 'labels'; it has 'images', 'targets'"):
        tensors(str(tmp_path / "a.npz"))


def test_a_file_cut_short_is_noticed(tmp_path: Path) -> None:
    path = as_folder(tmp_path, PIXELS) / "images.npy"
    data = tensors(str(tmp_path))
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(BadImage, match="ends before row 4"):
        data.load(list(data)[4], None)
    with pytest.raises(BadData, match="the file is truncated"):
        tensors(str(tmp_path))
