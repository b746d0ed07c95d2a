"""Images: read, refused, resized, normalised and written."""

from __future__ import annotations

import hashlib
import io
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from counterfoil.core.errors import BadImage, BadPart
from counterfoil.parts import images
from counterfoil.parts.images import resize, resize_by_products
from tests.parts.scenes import header_of_png, save, scene, tensor


def test_a_png_comes_back_pixel_by_pixel(tmp_path: Path) -> None:
    picture = scene(50, 40)
    read = images.read(save(picture, tmp_path / "a.png"))
    assert read.shape == (3, 40, 50)
    assert read.dtype == torch.float32
    assert torch.equal(read, tensor(picture))


def test_with_a_size_the_centre_square_is_resized(tmp_path: Path) -> None:
    picture = scene(100, 60)
    read = images.read(save(picture, tmp_path / "a.png"), 30)
    expected = picture.resize((50, 30), Image.Resampling.BICUBIC).crop((10, 0, 40, 30))
    assert read.shape == (3, 30, 30)
    assert (read - tensor(expected)).abs().max() <= 1 / 255


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


def grey(value: float) -> Callable[[Path], Any]:
    return lambda file: Image.fromarray(np.array([[0.0, value]], dtype=np.float32)).save(file)


POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n"


def half(file: Path) -> None:
    file.write_bytes(save(scene(200, 200), file).read_bytes()[: file.stat().st_size // 2])


@pytest.mark.parametrize(
    ("name", "write", "message"),
    [
        *(("a.tif", grey(value), "grey values") for value in (-1.0, float("nan"), float("inf"), 1e9)),
        ("huge.png", lambda file: file.write_bytes(header_of_png(30_000, 30_000)), "more than 178 megapixels"),
        *((f"cut.{ending}", half, "") for ending in ("jpg", "png", "gif", "tif", "webp")),
        *(("odd.jpg", lambda file, text=text: file.write_bytes(text), "") for text in (b"", b"hello", b"\x89PNG\r\n\x1a\n")),
        ("a.eps", lambda file: file.write_bytes(POSTSCRIPT), "EPS format are not read"),
        ("nowhere.png", lambda file: None, "no such file"),
    ],
)
@pytest.mark.parametrize("limited", [True, False])
def test_what_cannot_be_read_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, write: Callable[[Path], Any], message: str, limited: bool
) -> None:
    if not limited:  # our own limit holds where Pillow's is off
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    write(tmp_path / name)
    with pytest.raises(BadImage, match=rf"{name}: .*{message}"):
        images.read(tmp_path / name, 224)


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


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("target", [(40, 40), (20, 70), (150, 150), (100, 64)])
def test_resizing_agrees_with_pillow(interpolation: str, target: tuple[int, int]) -> None:
    picture = scene(100, 80)
    expected = tensor(picture.resize((target[1], target[0]), getattr(Image.Resampling, interpolation.upper())))
    resized = images.resize(tensor(picture)[None], target, interpolation=interpolation)[0]
    assert (resized - expected).abs().max() <= 1.6 / 255  # Pillow rounds to 8 bits after the width and after the height


def test_resizing_to_one_number_brings_the_shorter_side_there() -> None:
    assert images.resize(torch.rand(1, 3, 100, 151), 50).shape == (1, 3, 50, 75)
    assert images.resize(torch.rand(1, 3, 151, 100), 50).shape == (1, 3, 75, 50)


def test_an_unknown_interpolation_is_refused() -> None:
    with pytest.raises(BadPart, match="no interpolation named 'cubist'"):
        images.resize(torch.rand(1, 3, 8, 8), 4, interpolation="cubist")


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_gradients_pass_through_resizing_and_normalisation(interpolation: str) -> None:
    batch = (torch.rand(1, 3, 6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 0.4 + 0.3).requires_grad_()

    def prepare(values: torch.Tensor) -> torch.Tensor:
        fitted = images.centre_crop(images.resize(values, 5, interpolation=interpolation), 4)
        return images.normalise(fitted, (0.5, 0.4, 0.3), (0.2, 0.2, 0.1))

    assert torch.autograd.gradcheck(prepare, (batch,))


def test_normalising_without_gradients_first_does_not_harm_gradients_later() -> None:
    batch = torch.rand(1, 3, 4, 4)
    with torch.inference_mode():
        images.normalise(batch, (0.11, 0.22, 0.33), (0.44, 0.55, 0.66))
    leaf = batch.clone().requires_grad_()
    images.normalise(leaf, (0.11, 0.22, 0.33), (0.44, 0.55, 0.66)).sum().backward()
    assert leaf.grad is not None
    assert torch.allclose(leaf.grad[0, :, 0, 0], 1 / torch.tensor([0.44, 0.55, 0.66]))


def test_grey_is_pillows() -> None:
    picture = scene(40, 30)
    expected = torch.from_numpy(np.array(picture.convert("L"))).float()
    assert (images.to_grey(tensor(picture)[None])[0, 0] * 255 - expected).abs().max() <= 0.51


@pytest.mark.parametrize(("height", "width", "size"), [(7, 9, 4), (8, 8, 8), (9, 6, (5, 3)), (5, 5, 8), (4, 9, 7)])
def test_the_centre_crop_is_torchvisions(height: int, width: int, size: int | tuple[int, int]) -> None:
    from torchvision.transforms.functional import center_crop

    batch = torch.rand(2, 3, height, width)
    assert torch.equal(images.centre_crop(batch, size), center_crop(batch, [size] if isinstance(size, int) else list(size)))


def test_what_is_missing_around_a_crop_is_filled() -> None:
    filled = images.centre_crop(torch.zeros(1, 3, 2, 2), 4, fill=(0.1, 0.2, 0.3))
    assert torch.allclose(filled[0, :, 0, 0], torch.tensor([0.1, 0.2, 0.3]))
    assert filled[0, :, 1:3, 1:3].abs().max() == 0


def gradient(pictures: Tensor, wanted: Tensor) -> Tensor:
    (found,) = torch.autograd.grad((wanted * torch.linspace(-1, 1, wanted.numel()).view_as(wanted)).sum(), pictures)
    return found


@pytest.mark.parametrize("antialias", [True, False])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(24, 24), (24, 40), (51, 33), (40, 40), (7, 90)])
def test_products_are_what_interpolation_makes(size: tuple[int, int], mode: str, antialias: bool) -> None:
    pictures = torch.rand(2, 3, 40, 33, generator=torch.Generator().manual_seed(0)).requires_grad_()
    exact = functional.interpolate(pictures, size, mode=mode, align_corners=False, antialias=antialias)
    found = resize_by_products(pictures, size, mode=mode, antialias=antialias)
    assert found.shape == exact.shape
    assert torch.allclose(found, exact, atol=2e-6)
    assert torch.allclose(gradient(pictures, found), gradient(pictures, exact), atol=2e-5)


def test_a_picture_is_not_rounded_where_networks_compute_in_half_precision() -> None:
    pictures = torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    exact = resize_by_products(pictures, (24, 24), mode="bicubic", antialias=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(resize_by_products(pictures, (24, 24), mode="bicubic", antialias=True), exact)


def test_what_was_kept_without_gradients_serves_where_they_are_taken() -> None:
    with torch.inference_mode():
        resize_by_products(torch.rand(1, 3, 21, 21), (13, 13), mode="bicubic", antialias=True)
    pictures = torch.rand(1, 3, 21, 21, requires_grad=True)
    resize_by_products(pictures, (13, 13), mode="bicubic", antialias=True).sum().backward()
    assert pictures.grad is not None and pictures.grad.sum() == pytest.approx(3 * 13 * 13, rel=1e-4)


class Called(TorchDispatchMode):
    """Notes the names of what is called on whole images."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if isinstance(args[0], Tensor) and args[0].shape[:2] == (2, 3):
            self.names.add(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_on_a_card_no_kernel_whose_gradient_has_no_order_touches_pictures(interpolation: str, monkeypatch) -> None:
    monkeypatch.setattr(images, "_filter", images._filter.__wrapped__)  # nothing that is not there is to be kept
    with FakeTensorMode(), Called() as called:
        assert resize(torch.empty(2, 3, 256, 256, device="cuda"), 224, interpolation=interpolation).shape == (2, 3, 224, 224)
    assert called.names and not [name for name in called.names if "upsample" in name]


def test_a_written_picture_reads_back_exactly() -> None:
    picture = tensor(scene(33, 21))
    assert torch.equal(images.read(images.png(picture)), picture)


def test_values_are_rounded_to_the_nearest_level() -> None:
    levels = torch.tensor([0.0, 0.4, 0.6, 1.4, 254.6, 255.0]) / 255
    assert images.to_uint8(levels.expand(3, 1, 6))[0, :, 0].tolist() == [0, 0, 1, 1, 255, 255]


def test_the_digest_is_that_of_the_decoded_pixels() -> None:
    picture = tensor(scene(33, 21))
    with Image.open(io.BytesIO(images.png(picture))) as decoded:
        assert images.digest(picture) == hashlib.sha256(np.asarray(decoded).tobytes()).hexdigest()


def test_the_digest_sees_one_level_in_one_pixel() -> None:
    picture = tensor(scene(33, 21))
    other = picture.clone()
    other[2, 20, 32] = (other[2, 20, 32] + 1 / 255) if other[2, 20, 32] < 0.5 else (other[2, 20, 32] - 1 / 255)
    assert images.digest(picture) != images.digest(other)
    assert images.digest(picture) == images.digest(picture + 1e-5)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (torch.zeros(3, 8, 8), "shape"),
        (torch.zeros(1, 1, 8, 8), "shape"),
        (torch.zeros(1, 3, 8, 8, dtype=torch.uint8), "divide 8-bit images by 255"),
        (torch.full((1, 3, 8, 8), 200.0), "divide 8-bit images by 255"),
        (torch.full((1, 3, 8, 8), -0.5), "undo normalisation"),
        (torch.full((1, 3, 8, 8), float("nan")), "must lie in"),
        (torch.zeros(1, 3, 0, 8), "have no pixels"),
        (torch.zeros(0, 3, 0, 0), "have no pixels"),
    ],
)
def test_what_breaks_the_convention_is_refused(batch: torch.Tensor, message: str) -> None:
    with pytest.raises(BadImage, match=message):
        images.check(batch)
