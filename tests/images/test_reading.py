"""Images of every kind become RGB values from 0 to 1, upright and at the size asked for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import PIL
import pytest
import torch
from PIL import Image

from counterfoil.parts import images

from .made import save, scene, tensor


def test_a_png_comes_back_pixel_by_pixel(tmp_path: Path) -> None:
    picture = scene(50, 40)
    read = images.read(save(picture, tmp_path / "a.png"))
    assert read.shape == (3, 40, 50)
    assert read.dtype == torch.float32
    assert torch.equal(read, tensor(picture))


def test_bytes_are_read_like_a_file(tmp_path: Path) -> None:
    path = save(scene(50, 40), tmp_path / "a.png")
    assert torch.equal(images.read(path.read_bytes()), images.read(path))


def test_with_a_size_the_centre_square_is_resized(tmp_path: Path) -> None:
    picture = scene(100, 60)
    read = images.read(save(picture, tmp_path / "a.png"), 30)
    expected = picture.resize((50, 30), Image.Resampling.BICUBIC).crop((10, 0, 40, 30))
    assert read.shape == (3, 30, 30)
    assert (read - tensor(expected)).abs().max() <= 1 / 255


def test_a_small_picture_is_enlarged(tmp_path: Path) -> None:
    assert images.read(save(scene(10, 12), tmp_path / "a.png"), 64).shape == (3, 64, 64)


OLD_PILLOW = pytest.mark.skipif(int(PIL.__version__.partition(".")[0]) < 13, reason="cannot read the YCbCr TIFF that it writes")


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "CMYK", pytest.param("YCbCr", marks=OLD_PILLOW)])
def test_colour_modes_become_rgb(tmp_path: Path, mode: str) -> None:
    picture = scene(32, 32).convert(mode)
    path = save(picture, tmp_path / ("a.tif" if mode in ("CMYK", "YCbCr") else "a.png"))
    assert torch.equal(images.read(path), tensor(picture.convert("RGB")))


def test_a_cmyk_jpeg_keeps_its_colours(tmp_path: Path) -> None:
    red = Image.new("RGB", (32, 32), (200, 30, 40)).convert("CMYK")
    read = images.read(save(red, tmp_path / "a.jpg", quality=95))
    assert (read.mean(dim=(1, 2)) - torch.tensor([200, 30, 40]) / 255).abs().max() < 0.03


@pytest.mark.parametrize("name", ["deep.png", "deep.tif"])
def test_sixteen_bits_are_scaled_not_cut(tmp_path: Path, name: str) -> None:
    values = np.linspace(0, 65535, 64 * 64).reshape(64, 64).astype(np.uint16)
    read = images.read(save(Image.fromarray(values), tmp_path / name))
    assert torch.allclose(read[1], torch.from_numpy(values / 65535).float(), atol=0.51 / 255)
    assert torch.equal(read[0], read[2])


def test_thirty_two_bit_integers_are_scaled(tmp_path: Path) -> None:
    values = np.array([[0, 2**30], [2**31 - 1, 2**29]], dtype=np.int32)
    read = images.read(save(Image.fromarray(values), tmp_path / "a.tif"))
    assert torch.allclose(read[0], torch.tensor([[0, 0.5], [1, 0.25]]), atol=0.51 / 255)


@pytest.mark.parametrize("top", [1.0, 255.0, 65535.0])
def test_floats_count_in_a_usual_unit(tmp_path: Path, top: float) -> None:
    values = (np.linspace(0, 1, 16).reshape(4, 4) * top).astype(np.float32)
    read = images.read(save(Image.fromarray(values), tmp_path / "a.tif"))
    assert torch.allclose(read[0], torch.linspace(0, 1, 16).reshape(4, 4), atol=0.51 / 255)


def test_transparency_lies_on_white(tmp_path: Path) -> None:
    picture = Image.new("RGBA", (2, 1))
    picture.putpixel((0, 0), (255, 0, 0, 255))
    picture.putpixel((1, 0), (0, 0, 0, 0))
    read = images.read(save(picture, tmp_path / "a.png"))
    assert read[:, 0, 0].tolist() == [1, 0, 0]
    assert read[:, 0, 1].tolist() == [1, 1, 1]


def test_a_transparent_palette_colour_lies_on_white(tmp_path: Path) -> None:
    picture = Image.new("P", (2, 1))
    picture.putpalette([0, 0, 0, 10, 20, 30])
    picture.putpixel((1, 0), 1)
    read = images.read(save(picture, tmp_path / "a.png", transparency=0))
    assert read[:, 0, 0].tolist() == [1, 1, 1]
    assert torch.allclose(read[:, 0, 1], torch.tensor([10, 20, 30]) / 255)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_way_the_camera_was_held_is_undone(tmp_path: Path, orientation: int) -> None:
    from PIL import ImageOps

    exif = Image.Exif()
    exif[0x0112] = orientation
    path = save(scene(48, 32), tmp_path / "a.png", exif=exif)
    with Image.open(path) as stored:
        expected = tensor(ImageOps.exif_transpose(stored))
    assert torch.equal(images.read(path), expected)
    assert (expected.shape == (3, 48, 32)) == (orientation > 4)


@pytest.mark.parametrize("name", ["a.gif", "a.webp", "a.png"])
def test_of_an_animation_the_first_frame_is_read(tmp_path: Path, name: str) -> None:
    first, second = Image.new("RGB", (16, 16), (255, 0, 0)), Image.new("RGB", (16, 16), (0, 0, 255))
    path = save(first, tmp_path / name, save_all=True, append_images=[second], duration=100, lossless=True)
    assert images.read(path).mean(dim=(1, 2)).tolist() == pytest.approx([1, 0, 0], abs=0.02)


def test_a_large_jpeg_is_downscaled_while_it_is_read(tmp_path: Path) -> None:
    picture = scene(3000, 2000)
    path = save(picture, tmp_path / "a.jpg", quality=95)
    expected = picture.crop((500, 0, 2500, 2000)).resize((64, 64), Image.Resampling.BICUBIC)
    assert (images.read(path, 64) - tensor(expected)).abs().mean() < 2 / 255


def test_a_picture_thirty_thousand_pixels_long_is_read_at_the_size_asked_for(tmp_path: Path) -> None:
    picture = Image.new("L", (30_000, 100), 128)
    read = images.read(save(picture, tmp_path / "long.png"), 32)
    assert read.shape == (3, 32, 32)
    assert torch.allclose(read, torch.tensor(128 / 255))
