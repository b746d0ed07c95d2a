"""The one image convention: float32, NCHW, RGB, values in [0, 1]; reading, writing and differentiable resizing.

`read` takes the images people have: any orientation, colour mode and bit depth, on white where they are transparent,
the first frame where they move. An image that cannot be used raises BadImage, which names it. Images of more than
`MAX_PIXELS` pixels are refused by their header, before anything is decoded.
"""

from __future__ import annotations

import hashlib
import io
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, wraps
from pathlib import Path
from typing import BinaryIO, Protocol, TypeVarTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import ExifTags, Image, UnidentifiedImageError
from torch import Tensor
from torch.nn import functional

from counterfoil.core.errors import BadImage, BadPart, one_line
from counterfoil.core.tables import open_regular

MAX_PIXELS = 178_956_970
"""The largest image read, in pixels: about 179 megapixels, where Pillow too starts to suspect an attack."""

EXTENSIONS = frozenset(
    {".avif", ".bmp", ".dib", ".gif", ".jfif", ".jp2", ".jpe", ".jpeg", ".jpg"}
    | {".pbm", ".pgm", ".png", ".pnm", ".ppm", ".qoi", ".tif", ".tiff", ".webp"}
)
"""File names that count as images, in lower case."""

# Only plain raster formats: some of Pillow's others start programs (EPS) or need libraries of their own.
_FORMATS = ("AVIF", "BMP", "DIB", "GIF", "JPEG", "JPEG2000", "MPO", "PNG", "PPM", "QOI", "TIFF", "WEBP")
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}  # by EXIF orientation
_INTERPOLATIONS = ("bilinear", "bicubic")


Given = TypeVarTuple("Given")


def _keep(make: Callable[[*Given], Tensor]) -> Callable[[*Given], Tensor]:
    """The same function, which makes a tensor once. The compiler, which looks through a cache, gets a new one."""

    @lru_cache(maxsize=64)
    def once(*given: *Given) -> Tensor:
        with torch.inference_mode(False), torch.no_grad():  # it may later be needed where gradients are taken
            return make(*given)

    @wraps(make)
    def get(*given: *Given) -> Tensor:
        return make(*given) if torch.compiler.is_compiling() else once(*given)

    return get


@_keep
def _filter(before: int, after: int, mode: str, antialias: bool, device: torch.device) -> Tensor:
    """The weight of each place in each new one: images that are white at one place each, resized."""
    places = torch.eye(before, device=device)[None, None]
    return functional.interpolate(places, (after, before), mode=mode, align_corners=False, antialias=antialias)[0, 0]


class Readable(Protocol):
    """Something with a file's content that need not be a file, such as an image in a run's pack."""

    def read_bytes(self) -> bytes: ...


def read(
    source: str | Path | bytes | Readable,
    size: int | None = None,
    *,
    name: str | None = None,
    max_side: int | None = None,
) -> Tensor:
    """An image as a tensor; with `size`, the centre square at that side, antialiased.  # → (3, H, W)

    `source` is a path or a file's content; `name` is what errors call it. Beyond `max_side` the header is refused.
    """
    name = name or ("picture" if isinstance(source, bytes) else str(source))
    try:
        if isinstance(source, str | Path):
            file: BinaryIO = open_regular(Path(source))
        else:
            file = io.BytesIO(source if isinstance(source, bytes) else source.read_bytes())
        with file, _quiet_pillow(), Image.open(file) as picture:
            if max_side is not None and max(picture.size) > max_side:
                width, height = picture.size
                raise BadImage(f"{name}: {width}×{height} pixels, where at most {max_side}×{max_side} are taken")
            pixels = _decode(picture, name, size)
    except BadImage:
        raise
    except Image.DecompressionBombError:
        raise _too_large(name) from None
    except UnidentifiedImageError:
        raise BadImage(f"{name}: not an image in a format that can be read; convert it to PNG or JPEG") from None
    except FileNotFoundError:
        raise BadImage(f"{name}: no such file") from None
    except MemoryError:
        raise BadImage(f"{name}: not enough memory to decode it; scale it down first") from None
    except Exception as error:  # decoders meet damaged files with almost any exception
        raise BadImage(f"{name}: damaged or truncated ({one_line(error)}); replace the file") from None
    return torch.from_numpy(pixels).permute(2, 0, 1).float() / 255  # (3, H, W)


def to_uint8(image: Tensor) -> NDArray[np.uint8]:
    """The image in 8 bits: each value to the nearest of 256 levels, ties to the even one.  # (3, H, W) → (H, W, 3)"""
    if image.ndim != 3 or image.shape[0] != 3:
        raise BadImage(f"one image has the shape (3, H, W), got {tuple(image.shape)}")
    check(image[None])
    levels = (image.detach().float() * 255).round().clamp(0, 255).to(torch.uint8)
    return np.ascontiguousarray(levels.permute(1, 2, 0).cpu().numpy())


def png(image: Tensor) -> bytes:
    """The image as a PNG file, lossless once rounded to 8 bits; packed for speed, not for size.  # (3, H, W)"""
    file = io.BytesIO()
    Image.fromarray(to_uint8(image)).save(file, format="PNG", compress_level=1)
    return file.getvalue()


def digest(image: Tensor) -> str:
    """SHA-256 of the 8-bit pixels, row by row, RGB: what NumPy gives for the decoded PNG.  # (3, H, W)"""
    return hashlib.sha256(to_uint8(image).tobytes()).hexdigest()


def check(images: Tensor) -> None:
    """Raise BadImage unless `images` follows the convention; rounding errors of 1e-3 beyond [0, 1] are let through."""
    if images.ndim != 4 or images.shape[1] != 3:
        raise BadImage(f"images have the shape (N, 3, H, W), got {tuple(images.shape)}")
    if not images.is_floating_point():
        raise BadImage(f"images are floating point in [0, 1], got {images.dtype}; divide 8-bit images by 255")
    _check_pixels(images)
    if images.numel() == 0:
        return
    low, high = (float(value) for value in torch.aminmax(images.detach()))
    if not (low >= -1e-3 and high <= 1 + 1e-3):  # also false for NaN
        raise BadImage(
            f"pixel values must lie in [0, 1], got {low:.3g} to {high:.3g}; divide 8-bit images by 255, undo normalisation"
        )


def resize(images: Tensor, size: int | tuple[int, int], *, interpolation: str = "bicubic", antialias: bool = True) -> Tensor:
    """Images resized differentiably: to (height, width), or with the shorter side at `size`.  # (N, C, H, W)

    Agrees with Pillow's filters when antialiased, save for rounding to 8 bits; like Pillow's, the result stays in [0, 1].
    """
    if interpolation not in _INTERPOLATIONS:
        raise BadPart(f"no interpolation named {interpolation!r}; there are {', '.join(_INTERPOLATIONS)}")
    _check_pixels(images)
    height, width = images.shape[-2:]
    target = shorter_side(height, width, size) if isinstance(size, int) else size
    if (height, width) == tuple(target):
        return images
    # First the width, then the height: the bicubic filter overshoots at edges, and Pillow cuts that off after each.
    for partial in (target,) if interpolation == "bilinear" else ((height, target[1]), target):
        if images.is_cuda:
            images = resize_by_products(images, partial, mode=interpolation, antialias=antialias)
        else:
            images = functional.interpolate(images, partial, mode=interpolation, align_corners=False, antialias=antialias)
        images = images if interpolation == "bilinear" else images.clamp(0, 1)
    return images


def resize_by_products(images: Tensor, size: tuple[int, int], *, mode: str, antialias: bool) -> Tensor:
    """Resize images as `functional.interpolate` does, by products with matrices.  # (N, C, H, W) → (N, C, *size)

    PyTorch's own kernels add up gradients on a GPU in whatever order threads come: the last digit may be another each time.
    """
    height, width = images.shape[-2:]
    with torch.autocast(images.device.type, enabled=False):
        if width != size[1]:
            images = images @ _filter(width, size[1], mode, antialias, images.device).mT
        if height != size[0]:
            images = _filter(height, size[0], mode, antialias, images.device) @ images
    return images


def centre_crop(
    images: Tensor,
    size: int | tuple[int, int],
    *,
    fill: float | Sequence[float] = 0.0,
    rounding: Callable[[float], int] = round,
) -> Tensor:
    """The middle of the images; where they are smaller than `size`, the rest is filled.  # (N, C, H, W)

    Where the middle falls between two pixels, `rounding` decides: `round` as torchvision does, `int` as transformers.
    """
    height, width = (size, size) if isinstance(size, int) else size
    images = _pad(images, height, width, fill)
    top, left = rounding((images.shape[-2] - height) / 2), rounding((images.shape[-1] - width) / 2)
    return images[..., top : top + height, left : left + width]


def fit(images: Tensor, size: int) -> Tensor:
    """The centre square of the images at side `size`, differentiably.  # (N, C, H, W) → (N, C, size, size)"""
    return centre_crop(resize(images, size), size)


def normalise(images: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """Images with `mean` taken off and divided by `std`, channel by channel.  # (N, C, H, W)"""
    return (images - _channels(tuple(mean), images.device)) / _channels(tuple(std), images.device)


def to_grey(images: Tensor) -> Tensor:
    """Brightness by ITU-R 601, as every image library turns colour to grey.  # (N, 3, H, W) → (N, 1, H, W)"""
    return (images * _channels((0.299, 0.587, 0.114), images.device)).sum(dim=1, keepdim=True)


@_keep
def _channels(values: tuple[float, ...], device: torch.device) -> Tensor:
    return torch.tensor(values, dtype=torch.float32, device=device)[:, None, None]  # (C, 1, 1)


def _check_pixels(images: Tensor) -> None:
    if 0 in images.shape[-2:]:
        raise BadImage(f"images of {images.shape[-1]} by {images.shape[-2]} have no pixels; leave them out")


def shorter_side(height: int, width: int, size: int) -> tuple[int, int]:
    """Height and width with the shorter of them at `size`."""
    if height <= width:
        return size, int(size * width / height)
    return int(size * height / width), size


def _pad(images: Tensor, height: int, width: int, fill: float | Sequence[float]) -> Tensor:
    missing_rows, missing_columns = max(height - images.shape[-2], 0), max(width - images.shape[-1], 0)
    if not missing_rows and not missing_columns:
        return images
    top, left = missing_rows // 2, missing_columns // 2
    colour = _channels((fill,) * images.shape[1] if isinstance(fill, float | int) else tuple(fill), images.device)
    sides = (left, missing_columns - left, top, missing_rows - top)
    border = 1 - functional.pad(images.new_ones(1, 1, *images.shape[-2:]), sides)  # 1 where nothing of the image is
    return functional.pad(images, sides) + colour * border  # (N, C, ≥ height, ≥ width)


def _decode(picture: Image.Image, name: str, size: int | None) -> NDArray[np.uint8]:
    width, height = picture.size
    if width * height > MAX_PIXELS:
        raise _too_large(name)
    if picture.format not in _FORMATS:
        raise BadImage(f"{name}: images in {picture.format} format are not read; convert it to PNG or JPEG")
    if size is not None:
        picture.draft(None, (2 * size, 2 * size))  # a JPEG far larger than needed is decoded at a half, quarter or eighth
    colour = _rgb(picture, name)
    if (turn := _TURNS.get(_orientation(picture))) is not None:
        colour = colour.transpose(turn)
    if size is not None:
        # The centre square is cut while resizing, so that a very long image never becomes a very large one.
        side = min(colour.size)
        left, top = (colour.width - side) / 2, (colour.height - side) / 2
        box = (left, top, left + side, top + side)
        colour = colour.resize((size, size), Image.Resampling.BICUBIC, box=box)
    return np.array(colour)  # (H, W, 3)


def _orientation(picture: Image.Image) -> int:
    try:
        return int(picture.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # a damaged note on how the camera was held is no reason to lose the image
        return 1


def _rgb(picture: Image.Image, name: str) -> Image.Image:
    """The image in 8-bit RGB: deep greys scaled, transparency on white."""
    if picture.mode.startswith("I") or picture.mode == "F":
        return Image.fromarray(_eight_bits(np.asarray(picture), name)).convert("RGB")
    if picture.has_transparency_data:
        rgba = picture.convert("RGBA")
        white = Image.new("RGBA", rgba.size, (255, 255, 255, 255))
        return Image.alpha_composite(white, rgba).convert("RGB")
    return picture.convert("RGB")


def _eight_bits(values: NDArray[np.generic], name: str) -> NDArray[np.uint8]:
    """Deep grey values in 8 bits. Integers are of 16 bits unless they exceed them; floats count in 1, 255 or 65535."""
    low, high = float(values.min()), float(values.max())
    if not (low >= 0 and high < float("inf")):
        raise BadImage(f"{name}: grey values from {low:.3g} to {high:.3g} have no meaning as brightness; convert it to 8 bits")
    tops = (1.0, 255.0, 65535.0) if values.dtype.kind == "f" else (65535.0, 2.0**31 - 1)
    for top in tops:
        if high <= top:
            return np.round(values.astype(np.float32) * (255 / top)).astype(np.uint8)
    raise BadImage(f"{name}: grey values up to {high:.3g} are of no usual depth; convert it to 8 bits")


def _too_large(name: str) -> BadImage:
    return BadImage(f"{name}: more than {MAX_PIXELS // 10**6} megapixels, the most that is read; scale it down first")


_quiet_lock = threading.Lock()
_quiet_users = 0
_quiet_filters = warnings.catch_warnings()


@contextmanager
def _quiet_pillow() -> Iterator[None]:
    """Silence Pillow's warnings; what they warn of is handled here.

    The filters are the whole process's and images are read by several threads: the first one in sets them, the last
    one out restores them.
    """
    global _quiet_users, _quiet_filters
    with _quiet_lock:
        _quiet_users += 1
        if _quiet_users == 1:
            _quiet_filters = warnings.catch_warnings()
            _quiet_filters.__enter__()
            warnings.filterwarnings("ignore", module=r"PIL\.")
    try:
        yield
    finally:
        with _quiet_lock:
            _quiet_users -= 1
            if _quiet_users == 0:
                _quiet_filters.__exit__(None, None, None)
