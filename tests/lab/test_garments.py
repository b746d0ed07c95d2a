"""Where the wardrobe's shapes come from: shipped sets, Fashion-MNIST's files, and the rules that choose among them."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
import torch
from lab.training import fashion_mnist
from lab.training.fashion_mnist import DEBIAN_FOLDER, ENVIRONMENT, clean, fresh, from_idx, read_split, usable, whole
from torch import Tensor

from counterfoil.core.errors import BadData, UnknownName
from counterfoil_lab.world import GARMENTS, Garments, shipped

HAS_DATA = (Path(DEBIAN_FOLDER) / "train-images-idx3-ubyte.gz").is_file()


def prints(garments: Garments) -> set[bytes]:
    return {bytes(pixels.flatten().tolist()) for pixels in garments.pixels}


def square(size: int, label: str) -> tuple[Tensor, Tensor]:
    """One garment: a bright square in the middle."""
    pixels = torch.zeros(1, 28, 28, dtype=torch.uint8)
    low = 14 - size // 2
    pixels[:, low : low + size, low : low + size] = 200
    return pixels, torch.tensor([GARMENTS.index(label)])


@pytest.mark.parametrize(("split", "count"), [("report", 1000), ("tune", 600)])
def test_shipped_garments_are_balanced(split: str, count: int) -> None:
    garments = shipped(split)
    assert garments.pixels.shape == (count, 28, 28)
    assert garments.pixels.dtype == torch.uint8
    assert garments.labels.dtype == torch.int64
    assert torch.bincount(garments.labels).tolist() == [count // len(GARMENTS)] * len(GARMENTS)
    assert ((garments.pixels > 0).sum((1, 2)) >= fashion_mnist.SURFACE).all()


def test_shipped_splits_share_no_garment() -> None:
    report, tune = prints(shipped("report")), prints(shipped("tune"))
    assert len(report) == 1000
    assert len(tune) == 600
    assert not report & tune


def test_unknown_shipped_split_is_refused() -> None:
    with pytest.raises(UnknownName, match=r"'train'.*'report' or 'tune'"):
        shipped("train")


@pytest.mark.skipif(not HAS_DATA, reason="needs dataset-fashion-mnist")
def test_shipped_garments_come_from_the_test_split_alone() -> None:
    ours = prints(shipped("report")) | prints(shipped("tune"))
    train, test = from_idx(split="train"), from_idx(split="test")
    assert ours <= prints(test)
    assert not ours & prints(train)
    assert torch.bincount(train.labels, minlength=len(GARMENTS)).min() > 1500


@pytest.mark.skipif(not HAS_DATA, reason="needs dataset-fashion-mnist")
def test_fresh_garments_are_those_of_the_test_split_that_do_not_ship() -> None:
    ours, others = prints(shipped("report")) | prints(shipped("tune")), prints(fresh())
    assert others == prints(from_idx(split="test")) - ours
    assert len(fresh()) == 3678


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files in Fashion-MNIST's form: every garment of the test split is a full square, classes in turn."""
    pixels = bytearray(28 * 28)
    for row in range(4, 24):
        pixels[row * 28 + 4 : row * 28 + 24] = bytes([180]) * 20
    images = bytes((0, 0, 8, 3, 0, 0, 39, 16, 0, 0, 0, 28, 0, 0, 0, 28)) + bytes(pixels) * 10_000
    labels = bytes((0, 0, 8, 1, 0, 0, 39, 16)) + bytes(range(10)) * 1000
    (tmp_path / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(images, compresslevel=1))
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(labels)
    return tmp_path


def test_idx_files_are_read_plain_or_gzipped(folder: Path) -> None:
    pixels, labels = read_split(folder, "test")
    assert pixels.shape == (10_000, 28, 28)
    assert pixels[0, 3, 4] == 0
    assert pixels[0, 4, 4] == 180
    assert labels[:10].tolist() == [0, 1, 2, 3, -1, 4, -1, 5, 6, 7]


def test_what_ships_is_not_fresh(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    every = from_idx(folder, "test")
    assert len(fresh(folder)) == len(every)
    monkeypatch.setattr(fashion_mnist, "shipped", lambda split: every[:1])
    assert not len(fresh(folder))


def test_the_whole_split_leaves_out_two_classes_and_nothing_else(folder: Path) -> None:
    every = whole(folder)
    assert torch.bincount(every.labels).tolist() == [1000] * len(GARMENTS)
    assert every.pixels.shape == (8000, 28, 28)


def test_how_many_are_usable_follows_from_the_list_that_ships(folder: Path) -> None:
    assert usable("test") == (len(from_idx(folder, "test")), len(whole(folder)))
    assert usable("train")[1] == 48_000


def test_folder_may_come_from_the_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENVIRONMENT, str(folder))
    pixels, _ = read_split(None, "test")
    assert pixels[9_999, 23, 23] == 180


def test_missing_files_name_the_package(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="dataset-fashion-mnist"):
        from_idx(tmp_path, "train")


def test_files_of_another_shape_are_refused(folder: Path) -> None:
    (folder / "t10k-labels-idx1-ubyte").write_bytes(bytes((0, 0, 8, 1, 0, 0, 0, 2, 1, 2)))
    with pytest.raises(BadData, match="t10k-labels-idx1-ubyte: not Fashion-MNIST"):
        from_idx(folder, "test")


def test_unknown_split_is_refused(folder: Path) -> None:
    with pytest.raises(UnknownName, match=r"'tune'.*'train' or 'test'"):
        from_idx(folder, "tune")  # type: ignore[arg-type]


def test_cleaning_removes_the_halo_and_fills_closed_holes() -> None:
    pixels, label = square(10, "dress")
    pixels[0, 12:15, 12:15] = 0
    pixels[0, 2, 2] = 9
    cleaned = clean(pixels, label)
    assert cleaned[0, 2, 2] == 0
    assert (cleaned[0, 9:19, 9:19] > 0).all()
    assert int((cleaned > 0).sum()) == 100
    assert torch.equal(clean(cleaned, label), cleaned)


def test_cleaning_leaves_the_gap_under_a_handle_open() -> None:
    pixels, label = square(10, "bag")
    pixels[0, 12:15, 12:15] = 0
    assert int((clean(pixels, label) > 0).sum()) == 91


def test_cleaning_joins_a_sole_to_its_shoe() -> None:
    pixels, label = square(10, "sneaker")
    pixels[0, 15:17] = 0
    assert int((clean(pixels, label) > 0).sum()) == 100


def test_only_garments_with_surface_are_kept() -> None:
    assert fashion_mnist.has_surface(square(14, "bag")[0]).all()
    assert not fashion_mnist.has_surface(square(13, "bag")[0]).any()
    thin = torch.zeros(1, 28, 28, dtype=torch.uint8)
    thin[:, ::3] = 200  # 280 pixels, none of them away from an edge
    assert not fashion_mnist.has_surface(thin).any()


def test_a_print_is_louder_than_plain_cloth() -> None:
    plain, _ = square(16, "dress")
    printed = plain.clone()
    printed[:, ::2] //= 2
    assert fashion_mnist.loudness(plain).item() == pytest.approx(0, abs=1e-6)
    assert fashion_mnist.loudness(printed).item() > 0.1


def test_agreement_counts_neighbours_of_the_same_class() -> None:
    large, _ = square(20, "bag")
    small, _ = square(14, "bag")
    reference = torch.cat([large] * 11 + [small] * 11)
    labels = torch.tensor([0] * 11 + [1] * 11)
    kin = fashion_mnist.agreement(reference, labels, reference, labels, same=True)
    assert kin.tolist() == [10] * 22
    stranger = fashion_mnist.agreement(large, torch.tensor([1]), reference, labels, same=False)
    assert stranger.tolist() == [0]


def test_shipped_choice_is_disjoint_and_balanced() -> None:
    labels = torch.arange(8).repeat(250)
    kept = torch.ones(2000, dtype=torch.bool)
    kept[:80] = False
    chosen = fashion_mnist.choose_shipped(kept, labels)
    together = torch.cat(list(chosen.values()))
    assert len(together.unique()) == len(together) == 1600
    assert together.min() >= 80
    for name, count in fashion_mnist.SHIPPED.items():
        assert torch.bincount(labels[chosen[name]]).tolist() == [count] * 8
