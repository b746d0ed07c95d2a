"""Files that are no image, too large or damaged are refused by name, without a warning."""

from __future__ import annotations

import threading
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from counterfoil.core.errors import BadImage
from counterfoil.parts import images

from .made import header_of_png, save, scene


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf"), 1e9])
def test_floats_that_mean_no_brightness_are_refused(tmp_path: Path, value: float) -> None:
    path = save(Image.fromarray(np.array([[0.0, value]], dtype=np.float32)), tmp_path / "a.tif")
    with pytest.raises(BadImage, match=r"a\.tif.*grey values"):
        images.read(path)


def test_a_huge_picture_is_refused_by_name_before_it_is_decoded(tmp_path: Path) -> None:
    path = tmp_path / "huge.png"
    path.write_bytes(header_of_png(30_000, 30_000))
    with pytest.raises(BadImage, match=r"huge\.png: more than 178 megapixels"):
        images.read(path, 224)


def test_the_limit_holds_where_pillows_own_is_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    path = tmp_path / "huge.png"
    path.write_bytes(header_of_png(30_000, 30_000))
    with pytest.raises(BadImage, match="more than 178 megapixels"):
        images.read(path)


@pytest.mark.parametrize("name", ["a.jpg", "a.png", "a.gif", "a.tif", "a.webp"])
def test_a_truncated_picture_is_refused_by_name(tmp_path: Path, name: str) -> None:
    content = save(scene(200, 200), tmp_path / name).read_bytes()
    cut = tmp_path / f"cut-{name}"
    cut.write_bytes(content[: len(content) // 2])
    with pytest.raises(BadImage, match=f"cut-{name}: "):
        images.read(cut)


@pytest.mark.parametrize("content", [b"", b"hello, I am a text", b"\x89PNG\r\n\x1a\n"])
def test_what_is_no_picture_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "odd.jpg"
    path.write_bytes(content)
    with pytest.raises(BadImage, match=r"odd\.jpg: "):
        images.read(path)


def test_formats_that_start_programs_are_not_opened() -> None:
    postscript = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n"
    with pytest.raises(BadImage, match="EPS format are not read"):
        images.read(postscript, name="a.eps")


def test_a_missing_file_is_named() -> None:
    with pytest.raises(BadImage, match=r"nowhere\.png: no such file"):
        images.read("nowhere.png")


def test_pillow_does_not_warn(tmp_path: Path) -> None:
    large = tmp_path / "large.png"
    large.write_bytes(header_of_png(10_000, 10_000))  # Pillow warns from 89 megapixels on
    palette = Image.new("P", (4, 4))
    palette.putpalette(list(range(12)))
    path = save(palette, tmp_path / "p.png", transparency=bytes([0, 128, 255]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(BadImage, match="damaged or truncated"):
            images.read(large)
        images.read(path)


def test_many_threads_leave_the_warning_filters_as_they_were(tmp_path: Path) -> None:
    path = save(scene(64, 64), tmp_path / "a.png")
    before = list(warnings.filters)
    threads = [threading.Thread(target=lambda: [images.read(path, 16) for _ in range(40)]) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(warnings.filters) == before


@pytest.mark.parametrize("shape", [(1, 3, 0, 8), (1, 3, 8, 0), (0, 3, 0, 0)])
def test_images_without_pixels_are_refused(shape: tuple[int, ...]) -> None:
    for work in (images.check, lambda given: images.resize(given, 4)):
        with pytest.raises(BadImage, match="have no pixels"):
            work(torch.zeros(shape))
