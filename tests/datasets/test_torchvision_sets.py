from __future__ import annotations

import gzip
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision

from counterfoil.core.errors import BadData, UnknownName
from counterfoil.parts.datasets.torchvision_sets import torchvision_dataset
from counterfoil.testing import check_dataset
from tests.datasets.made import noise

LABELS = np.array([3, 0, 9, 1, 2, 3], dtype=np.uint8)


def idx(folder: Path, prefix: str = "t10k", *, compressed: bool = False) -> np.ndarray:
    """MNIST's files with random pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    pictures = noise(len(LABELS), 28, 28)
    for name, values in (("images-idx3", pictures), ("labels-idx1", LABELS)):
        content = struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape) + values.tobytes()
        file = folder / f"{prefix}-{name}-ubyte"
        if compressed:
            file.with_name(f"{file.name}.gz").write_bytes(gzip.compress(content))
        else:
            file.write_bytes(content)
    return pictures


def cifar(folder: Path, *, python: bool = True) -> np.ndarray:
    """CIFAR-10's test files with random pictures, in planes of colour."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = noise(len(LABELS), 3072)
    if python:
        (folder / "test_batch").write_bytes(pickle.dumps({"data": rows, "labels": LABELS.tolist()}, protocol=2))
    else:
        (folder / "test_batch.bin").write_bytes(np.concatenate([LABELS[:, None], rows], axis=1).tobytes())
    return rows.reshape(-1, 3, 32, 32)


@pytest.mark.parametrize("name", ["MNIST", "FashionMNIST", "KMNIST"])
def test_pictures_are_those_torchvision_reads(tmp_path: Path, name: str) -> None:
    idx(tmp_path / name / "raw"), idx(tmp_path / name / "raw", "train")  # torchvision wants all of them
    data = torchvision_dataset(name, root=str(tmp_path))
    own = getattr(torchvision.datasets, name)(str(tmp_path), train=False)
    assert [sample.label for sample in data] == [int(label) for _, label in own]
    for sample, (picture, _) in zip(data, own, strict=True):
        grey = torch.from_numpy(np.array(picture)).float() / 255
        assert torch.equal(data.load(sample, None), grey.expand(3, 28, 28))
    check_dataset(data)


def test_digits_are_called_by_their_digits(tmp_path: Path) -> None:
    idx(tmp_path)
    assert list(torchvision_dataset("MNIST", root=str(tmp_path)).classes) == [str(digit) for digit in range(10)]
    assert torchvision_dataset("FashionMNIST", root=str(tmp_path)).classes[9] == "Ankle boot"


@pytest.mark.parametrize("place", ["", "MNIST/raw", "raw"])
def test_compressed_files_and_other_places_are_found(tmp_path: Path, place: str) -> None:
    pictures = idx(tmp_path / place, "train", compressed=True)
    data = torchvision_dataset("MNIST", root=str(tmp_path), split="train")
    assert torch.equal((data.load(next(iter(data)), None)[0] * 255).round(), torch.from_numpy(pictures[0]).float())


@pytest.mark.parametrize("python", [True, False])
def test_cifar_is_read_in_both_versions(tmp_path: Path, python: bool) -> None:
    pictures = cifar(tmp_path / ("cifar-10-batches-py" if python else "cifar-10-batches-bin"), python=python)
    data = torchvision_dataset("CIFAR10", root=str(tmp_path))
    assert [sample.label for sample in data] == LABELS.tolist()
    loaded = torch.stack([data.load(sample, None) for sample in data])
    assert torch.equal((loaded * 255).round(), torch.from_numpy(pictures).float())
    assert data.classes[3] == "cat"
    check_dataset(data)


def test_cifar_100_takes_the_fine_labels(tmp_path: Path) -> None:
    folder, rows = tmp_path / "cifar-100-binary", noise(3, 3072)
    folder.mkdir()
    labels = np.array([[1, 70], [2, 5], [3, 99]], dtype=np.uint8)
    (folder / "test.bin").write_bytes(np.concatenate([labels, rows], axis=1).tobytes())
    with pytest.raises(BadData, match=r"neither fine_label_names\.txt nor meta"):
        torchvision_dataset("CIFAR100", root=str(tmp_path))
    (folder / "fine_label_names.txt").write_text("\n".join(f"thing {number}" for number in range(100)) + "\n\n")
    data = torchvision_dataset("CIFAR100", root=str(tmp_path))
    assert [data.classes[sample.label] for sample in data] == ["thing 70", "thing 5", "thing 99"]
    python = tmp_path / "cifar-100-python"
    python.mkdir()
    (folder / "test.bin").unlink()
    (python / "test").write_bytes(pickle.dumps({"data": rows, "fine_labels": [70, 5, 99], "coarse_labels": [1, 2, 3]}))
    (python / "meta").write_bytes(pickle.dumps({"fine_label_names": [f"thing {number}" for number in range(100)]}))
    assert [sample.label for sample in torchvision_dataset("CIFAR100", root=str(tmp_path))] == [70, 5, 99]


def test_a_pickle_of_anything_else_is_refused_and_not_run(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str, str]]:
            return open, (str(tmp_path / "ran"), "w")

    cifar(tmp_path / "cifar-10-batches-py")
    (tmp_path / "cifar-10-batches-py" / "test_batch").write_bytes(pickle.dumps({"data": Trap(), "labels": []}))
    with pytest.raises(BadData, match="refused, the file wants to run"):
        torchvision_dataset("CIFAR10", root=str(tmp_path))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("content", "message"), [(struct.pack(">BBBB3I", 0, 0, 8, 3, 6, 28, 28), "truncated"), (b"hello, world", "not an idx file")]
)
def test_damaged_files_are_named(tmp_path: Path, content: bytes, message: str) -> None:
    idx(tmp_path)
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(content)
    with pytest.raises(BadData, match=message):
        torchvision_dataset("MNIST", root=str(tmp_path))


def test_damaged_cifar_files_are_named(tmp_path: Path) -> None:
    cifar(tmp_path, python=False)
    (tmp_path / "test_batch.bin").write_bytes(b"\0" * 1000)
    with pytest.raises(BadData, match="not of whole pictures"):
        torchvision_dataset("CIFAR10", root=str(tmp_path))
    (tmp_path / "test_batch.bin").unlink()
    (tmp_path / "test_batch").write_bytes(pickle.dumps({"other": 1}))
    with pytest.raises(BadData, match="holds no arrays data and labels"):
        torchvision_dataset("CIFAR10", root=str(tmp_path))


def test_nothing_is_fetched_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def fetch(url: str, root: str, **options: str) -> None:
        asked.append(url)
        cifar(Path(root) / "cifar-10-batches-py")

    monkeypatch.setattr(torchvision.datasets.utils, "download_and_extract_archive", fetch)
    with pytest.raises(BadData, match=r"no test files of it in .*; give root, the folder they are in, or download: true"):
        torchvision_dataset("CIFAR10", root=str(tmp_path))
    assert not asked
    assert len(torchvision_dataset("CIFAR10", root=str(tmp_path), download=True)) == 6
    assert asked == [torchvision.datasets.CIFAR10.url]


def test_unknown_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="no torchvision data set named 'CIFAR'; did you mean 'CIFAR10'"):
        torchvision_dataset("CIFAR", root=str(tmp_path))
    with pytest.raises(BadData, match="split is train or test"):
        torchvision_dataset("MNIST", root=str(tmp_path), split="valid")  # type: ignore[arg-type]
