"""Images as arrays, in memory and in files, and the sets of torchvision."""

from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision
from safetensors.numpy import save_file

from counterfoil.core.errors import BadData, BadImage
from counterfoil.parts.contracts import Dataset
from counterfoil.parts.datasets.arrays import ArrayReader, FileRows, from_arrays
from counterfoil.testing import check_dataset
from tests.parts.created import tensors, torchvision_dataset
from tests.parts.datasets.made import DIGITS, idx, noise

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


@pytest.mark.parametrize("write", [as_folder, as_safetensors])
def test_uncompressed_files_are_left_on_disk(tmp_path: Path, write: Callable[[Path, np.ndarray], Path]) -> None:
    data = tensors(str(write(tmp_path, PIXELS)))
    reader = data.reader()
    assert isinstance(reader, ArrayReader) and isinstance(reader.rows, FileRows)
    assert len(pickle.dumps(reader)) < 1000


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
    data = from_arrays(torch.rand(3, 3, 8, 8), torch.tensor([0, 1, 0]))
    assert list(data.classes) == ["0", "1"]
    assert data.load(list(data)[2], None).shape == (3, 8, 8)


def test_provenance_holds_the_files_hashes(tmp_path: Path) -> None:
    data = tensors(str(as_folder(tmp_path, PIXELS)))
    assert data.provenance().keys() == {"images.npy", "labels.npy"}
    images = torch.rand(2, 3, 8, 8)
    told = [
        from_arrays(pixels, marks).provenance() for pixels, marks in ((images, [0, 1]), (images, [1, 0]), (1 - images, [0, 1]))
    ]
    assert len({each["content"] for each in told}) == 3
    assert from_arrays(images.clone(), [0, 1]).provenance() == told[0]


FLOATS = torch.rand(4, 3, 8, 8)


@pytest.mark.parametrize(
    ("images", "labels", "classes", "message"),
    [
        (FLOATS, [0, 1, 2, 3], ["a", "b"], "labels run from 0 to 3, but there are 2 classes"),
        (FLOATS, [0, -1, 1, 1], ["a", "b"], "labels run from -1"),
        (FLOATS, [0, 1, 1], None, "4 images but 3 labels"),
        (FLOATS, [0, 0, 0, 0], None, "only one class"),
        (FLOATS, [0, 1, 0, 1], ["a", "a"], "2 classes are called 'a'"),
        (FLOATS, [0.5, 1.0, 0.0, 1.0], None, "labels are one whole number per image"),
        (FLOATS[:0], torch.zeros(0, dtype=torch.long), None, "no images"),
        (FLOATS[:, :1], [0, 1, 0, 1], None, "images have the shape"),
        (FLOATS[0], [0, 1, 0], None, "images have the shape"),
        (FLOATS[:, :, :, :0], [0, 1, 0, 1], None, "have no pixels"),
        (FLOATS, [0, 1, 0, 200_000_000], None, "200000000 is no class number"),
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
        from_arrays(images, labels, classes=classes)  # type: ignore[arg-type]


def test_one_bad_row_among_many_shows_when_it_is_loaded() -> None:
    images = torch.rand(100, 3, 4, 4)
    images[41] = 3
    data = from_arrays(images, [0, 1] * 50, name="some")
    samples = list(data)
    data.load(samples[40], None)
    with pytest.raises(BadImage, match=r"some\[00000041\]: pixel values must lie in"):
        data.load(samples[41], None)


def test_a_file_cut_short_is_noticed(tmp_path: Path) -> None:
    path = as_folder(tmp_path, PIXELS) / "images.npy"
    data = tensors(str(tmp_path))
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(BadImage, match="ends before row 4"):
        data.load(list(data)[4], None)
    with pytest.raises(BadData, match="the file is truncated"):
        tensors(str(tmp_path))


def cifar(root: Path, monkeypatch: pytest.MonkeyPatch, batch: bytes | None = None) -> np.ndarray:
    """CIFAR-10's test files with random images, and their hashes as torchvision's own."""
    folder, rows = root / "cifar-10-batches-py", noise(len(DIGITS), 3072)
    folder.mkdir(parents=True, exist_ok=True)
    names = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    published = {"test_batch": {"data": rows, "labels": DIGITS.tolist()}, "batches.meta": {"label_names": names}}
    for name, content in published.items():
        (folder / name).write_bytes(pickle.dumps(content, protocol=2))
    hashes = {name: hashlib.md5((folder / name).read_bytes()).hexdigest() for name in published}
    own = torchvision.datasets.CIFAR10
    monkeypatch.setattr(own, "train_list", [])
    monkeypatch.setattr(own, "test_list", [["test_batch", hashes["test_batch"]]])
    monkeypatch.setattr(own, "meta", {"filename": "batches.meta", "key": "label_names", "md5": hashes["batches.meta"]})
    if batch is not None:
        (folder / "test_batch").write_bytes(batch)
    return rows.reshape(-1, 3, 32, 32)


@pytest.mark.parametrize("name", ["MNIST", "FashionMNIST", "KMNIST"])
def test_images_are_those_torchvision_reads(tmp_path: Path, name: str) -> None:
    idx(tmp_path / name / "raw"), idx(tmp_path / name / "raw", "train")  # torchvision wants all of them
    data = torchvision_dataset(name, root=str(tmp_path))
    own = getattr(torchvision.datasets, name)(str(tmp_path), train=False)
    assert [sample.label for sample in data] == [int(label) for _, label in own]
    for sample, (picture, _) in zip(data, own, strict=True):
        grey = torch.from_numpy(np.array(picture)).float() / 255
        assert torch.equal(data.load(sample, None), grey.expand(3, 28, 28))
    check_dataset(data)


def test_digits_are_called_by_their_digits(tmp_path: Path) -> None:
    for name in ("MNIST", "FashionMNIST"):
        idx(tmp_path / name / "raw"), idx(tmp_path / name / "raw", "train")
    assert list(torchvision_dataset("MNIST", root=str(tmp_path)).classes) == [str(digit) for digit in range(10)]
    assert torchvision_dataset("FashionMNIST", root=str(tmp_path)).classes[9] == "Ankle boot"


def test_cifar_is_read_in_colour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = cifar(tmp_path, monkeypatch)
    data = torchvision_dataset("CIFAR10", root=str(tmp_path))
    assert [sample.label for sample in data] == DIGITS.tolist()
    loaded = torch.stack([data.load(sample, None) for sample in data])
    assert torch.equal((loaded * 255).round(), torch.from_numpy(images).float())
    assert data.classes[3] == "cat"
    check_dataset(data)


def test_a_pickle_of_anything_else_is_refused_and_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str, str]]:
            return open, (str(tmp_path / "ran"), "w")

    cifar(tmp_path, monkeypatch, pickle.dumps({"data": Trap(), "labels": []}))
    with pytest.raises(BadData, match=r"its test files cannot be read from .*corrupted"):
        torchvision_dataset("CIFAR10", root=str(tmp_path))
    assert not (tmp_path / "ran").exists()


def test_nothing_is_downloaded_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(
        torchvision.datasets.cifar, "download_and_extract_archive", lambda url, *rest, **options: asked.append(url)
    )
    with pytest.raises(BadData, match=r"its test files cannot be read from .*download: true"):
        torchvision_dataset("CIFAR10", root=str(tmp_path))
    assert not asked
    with pytest.raises(BadData):
        torchvision_dataset("CIFAR10", root=str(tmp_path), download=True)
    assert asked == [torchvision.datasets.CIFAR10.url]
