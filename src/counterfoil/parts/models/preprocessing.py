"""Resizing, cropping and normalisation as libraries do them before their models, differentiably.

Read from the image processors of transformers, and from the options and the declared input of a program in a file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from PIL import Image
from torch import Tensor

from counterfoil.core.errors import BadPart, one_line
from counterfoil.parts import images as pictures
from counterfoil.parts.contracts import Trait

Resizing = Literal["shorter", "longer", "squash"]
Layout = Literal["NCHW", "NHWC"]
Channels = Literal["rgb", "bgr", "grey"]
Crop = Literal["own", "none"]

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
ASSUMED = "assumed"
_FILTERS = {2: "bilinear", 3: "bicubic"}  # Pillow's numbers
_LEVELS = 3.0  # how far, in 255ths, a processor's own result may lie from ours: it rounds to 8 bits, once or twice
_MEAN_LEVELS = 0.6


@dataclass(frozen=True)
class Preprocessing:
    """Resize, crop, turn grey, normalise. Nothing is rounded to 8 bits on the way, so that gradients pass.

    The libraries' own transforms round after resizing; inputs therefore differ by up to half a level in 255, and a
    little more where a filter rings. The defaults leave the images as they are.
    """

    size: tuple[int, int] | None = None  # (height, width) the model sees; None for whatever comes
    resize: tuple[int, int] | None = None  # what images are resized towards before the crop; default `size`
    resizing: Resizing = "shorter"  # which side is brought to `resize`; the rest is cropped or, for `longer`, filled
    interpolation: str = "bilinear"
    antialias: bool = True
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    fill: tuple[float, ...] = (0.0, 0.0, 0.0)  # colour around images that are smaller than `size`
    grey: bool = False  # the model takes one channel
    rounding: Callable[[float], int] = round  # where the crop goes if the middle falls between two pixels
    bgr: bool = False  # the model takes blue first; `mean` and `std` are then in that order too
    sized_by: str = field(default="", repr=False, compare=False)  # who decided on the size, and on mean and std
    normalised_by: str = field(default="", repr=False, compare=False)

    def __post_init__(self) -> None:
        channels = 1 if self.grey else 3
        for name, values in (("mean", self.mean), ("std", self.std)):
            if values is not None and len(values) != channels:
                raise BadPart(f"preprocessing: {name} has {len(values)} values, the model takes {channels} channels")
        if (self.mean is None) != (self.std is None):
            raise BadPart("preprocessing: give both mean and std, or neither")

    @property
    def side(self) -> int | None:
        """Side of the images the model sees if they are square; None for any size, or another shape."""
        return self.size[0] if self.size is not None and self.size[0] == self.size[1] else None

    def with_crop(self, crop: Crop) -> Preprocessing:
        """The same, or with `none` the whole image at the size the model sees: one of that size reaches it untouched."""
        if crop == "own" or self.size is None:
            return self
        return replace(self, resize=self.size, resizing="squash", sized_by="the options")

    def share_seen(self, height: int, width: int) -> float:
        """The share of an image of this size that is left after the crop."""
        if self.size is None:
            return 1.0
        resized = self._size_before_crop(height, width, self.resize or self.size)
        return math.prod(min(1.0, seen / side) for seen, side in zip(self.size, resized, strict=True))

    def describe(self) -> list[Trait]:
        """The size and crop the model sees, mean and std, and who decided on them."""
        if self.size is None:
            seen = Trait("input", "any size, as given", self.sized_by)
        else:
            height, width = self.size
            towards = "×".join(map(str, dict.fromkeys(self.resize or self.size)))
            fits = {"squash": f"squashed to {towards}", "longer": f"longer side to {towards}, the rest filled"}
            how = fits.get(self.resizing, f"shorter side to {towards}, the centre cropped")
            seen = Trait("input", f"{height}×{width}: {how}, {self.interpolation}", self.sized_by or "its author")
        if self.mean is None or self.std is None:
            values, caution = "none: pixels in [0, 1]", "no mean and std were given, so the network gets pixels in [0, 1]"
        else:
            mean, std = (", ".join(f"{value:.4g}" for value in values) for values in (self.mean, self.std))
            values, caution = f"mean {mean}; std {std}", "no mean and std were given, so ImageNet's are assumed"
        decided = self.normalised_by or (ASSUMED if self.mean is None else "its author")
        caution = f"{caution}; give those it was trained with" if decided == ASSUMED else ""
        return [seen, Trait("normalisation", values, decided, caution)]

    def __call__(self, images: Tensor) -> Tensor:
        """Images as the model takes them.  # (N, 3, H, W) → (N, 3 or 1, height, width)"""
        if self.grey:
            images = pictures.to_grey(images)
        if self.size is not None:
            size = self._size_before_crop(images.shape[2], images.shape[3], self.resize or self.size)
            images = pictures.resize(images, size, interpolation=self.interpolation, antialias=self.antialias)
            images = pictures.centre_crop(images, self.size, fill=self.fill[: images.shape[1]], rounding=self.rounding)
        if self.bgr:
            images = images.flip(1)
        if self.mean is not None and self.std is not None:
            images = pictures.normalise(images, self.mean, self.std)
        return images

    def _size_before_crop(self, height: int, width: int, target: tuple[int, int]) -> tuple[int, int]:
        """The size of an image before the crop."""
        if self.resizing == "squash":
            return target
        if self.resizing == "shorter" and target[0] == target[1]:
            return pictures.shorter_side(height, width, target[0])
        ratios = height / target[0], width / target[1]
        ratio = max(ratios) if self.resizing == "longer" else min(ratios)
        return round(height / ratio), round(width / ratio)


def share_seen(part: Any, height: int, width: int) -> float:
    """The share of an image of this size that a model, an oracle or an encoder sees: less than 1 where it crops."""
    while part is not None:
        found = getattr(part, "preprocessing", None) or getattr(getattr(part, "inputs", None), "preprocessing", None)
        if isinstance(found, Preprocessing):
            return found.share_seen(height, width)
        part = getattr(part, "model", None) or getattr(part, "encoder", None)
    return 1.0


@dataclass(frozen=True)
class PublishedOptions:
    """The weights of a library's model, the names of its outputs, and whether its crop is taken."""

    pretrained: bool = True
    weights: str | None = None
    sha256: str | None = None
    classes: str | Sequence[str] | None = None
    crop: Crop = "own"


def square(
    size: int | None = None,
    *,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    interpolation: str = "bilinear",
    crop: float = 1.0,
) -> Preprocessing:
    """The usual case: resize the shorter side to `size / crop`, keep the centre square of side `size`, normalise."""
    _check_crop(crop)
    return Preprocessing(
        size=(size, size) if size else None,
        resize=(int(size / crop), int(size / crop)) if size else None,
        interpolation=interpolation,
        mean=tuple(mean) if mean is not None else None,
        std=tuple(std) if std is not None else None,
        grey=mean is not None and len(mean) == 1,
    )


def _check_crop(crop: float) -> None:
    if not 0 < crop <= 1:
        raise BadPart(f"preprocessing: crop is the share of the side that is kept, above 0 and up to 1, got {crop}")


def from_processor(processor: Any, *, what: str) -> Preprocessing:
    """The preprocessing of an image processor. Tried on one image: a processor with other steps is refused."""
    if getattr(processor, "max_num_patches", None):
        raise BadPart(f"{what}: takes images as patches of changing number; choose a variant with a fixed size")
    if type(processor).__name__.startswith("TimmWrapper"):
        raise BadPart(f"{what}: is a model of timm; load it as timm:NAME")
    size, resize, resizing = _processor_sizes(processor, what)
    mean, std = _processor_normalisation(processor)
    if size and int(processor.resample) not in _FILTERS:
        number = int(processor.resample)
        raise BadPart(f"{what}: its image processor resizes by Pillow's filter {number}, not known here; wrap it as python:…")
    preprocessing = Preprocessing(
        size=size,
        resize=resize,
        resizing=resizing,
        interpolation=_FILTERS[int(processor.resample)] if size else "bilinear",
        mean=mean,
        std=std,
        rounding=int,
        bgr=bool(getattr(processor, "do_flip_channel_order", False)),
        sized_by="its image processor",
        normalised_by="its image processor",
    )
    _compare(processor, preprocessing, what)
    return preprocessing


def _processor_sizes(processor: Any, what: str) -> tuple[tuple[int, int] | None, tuple[int, int] | None, Resizing]:
    """The size the model sees, the size images are resized towards before the crop, and how."""
    if not getattr(processor, "do_resize", False):
        return None, None, "shorter"
    size = {key: int(value) for key, value in dict(processor.size or {}).items() if value}
    crop: Mapping[str, int] = dict(processor.crop_size or {}) if getattr(processor, "do_center_crop", False) else {}
    seen = (int(crop["height"]), int(crop["width"])) if crop else None
    edge, share = size.get("shortest_edge"), _crop_share(processor, size)
    if set(size) == {"shortest_edge"} and edge:
        if share is None and type(processor).__name__.startswith("ConvNext"):
            return (edge, edge), (edge, edge), "squash"  # at 384 pixels and more it squashes
        towards = int(edge / share) if share else edge
        # Without a crop the shorter side alone is set; such models take squares all the same.
        return seen or (edge, edge), (towards, towards), "shorter"
    if set(size) == {"height", "width"}:
        target = (size["height"], size["width"])
        if share and target[0] == target[1]:
            return seen or target, (int(target[0] / share), int(target[1] / share)), "shorter"
        return seen or target, target, "squash"
    raise BadPart(f"{what}: its image processor resizes to {size}, which is not known here; wrap the model as python:…")


def _crop_share(processor: Any, size: Mapping[str, int]) -> float | None:
    """The share of the resized image that is kept, where a processor resizes to more than it is told to."""
    name = type(processor).__name__
    if name.startswith("Levit"):
        return 224 / 256 if "shortest_edge" in size else None
    share = getattr(processor, "crop_pct", None)
    if name.startswith("ConvNext") and size.get("shortest_edge", 0) >= 384:
        return None
    return float(share) if share else None


def _processor_normalisation(processor: Any) -> tuple[tuple[float, ...] | None, tuple[float, ...] | None]:
    """Mean and standard deviation for images in [0, 1] that do all of rescaling and normalising at once."""
    factor = 255 * float(processor.rescale_factor) if getattr(processor, "do_rescale", True) else 255.0
    offset = 1.0 if getattr(processor, "rescale_offset", False) else 0.0
    normalises = bool(getattr(processor, "do_normalize", False))
    means = _each(processor.image_mean, 3, "image_mean") if normalises else (0.0,) * 3
    stds = _each(processor.image_std, 3, "image_std") if normalises else (1.0,) * 3
    again = _each(processor.image_std, 3, "image_std") if getattr(processor, "include_top", False) else (1.0,) * 3
    if not normalises and factor == 1.0 and not offset and set(again) == {1.0}:
        return None, None
    # ((factor · x − offset) − mean) / std / again, written as (x − m) / s
    mean = tuple((offset + value) / factor for value in means)
    std = tuple(value * more / factor for value, more in zip(stds, again, strict=True))
    return mean, std


def _compare(processor: Any, preprocessing: Preprocessing, what: str) -> None:
    """Raise BadPart unless processor and preprocessing make the same of a small image, but for rounding."""
    image = _picture()
    try:
        theirs = processor(images=Image.fromarray(pictures.to_uint8(image)), return_tensors="pt")["pixel_values"]
    except Exception as error:
        raise BadPart(f"{what}: its image processor fails on an image: {one_line(error)}") from None
    ours = preprocessing(image[None])
    theirs = torch.as_tensor(theirs).float()
    if theirs.shape != ours.shape:
        raise BadPart(
            f"{what}: its image processor gives {tuple(theirs.shape)} where {tuple(ours.shape)} was expected; "
            "it does something not known here, wrap the model as python:…"
        )
    scale = torch.tensor(preprocessing.std or (1.0,) * 3)[:, None, None] * 255
    levels = ((theirs - ours) * scale).abs()
    if levels.max() > _LEVELS or levels.mean() > _MEAN_LEVELS:
        raise BadPart(
            f"{what}: its image processor and its configuration disagree by {float(levels.max()):.1f} levels of 255; "
            "it does something not known here, wrap the model as python:…"
        )


def _picture() -> Tensor:
    """A smooth image that is wider than high, each colour unlike the others.  # → (3, 96, 120)"""
    rows, columns = torch.meshgrid(torch.linspace(0, 1, 96), torch.linspace(0, 1, 120), indexing="ij")
    waves = (0.5 + 0.5 * torch.sin(9 * rows + 2 * columns), columns * (1 - rows), 0.3 + 0.4 * torch.cos(7 * columns))
    return (torch.stack(waves).clamp(0, 1) * 255).round() / 255


@dataclass(frozen=True)
class InputOptions:
    """The format of a program's input. Left out, a value comes from the program or is the usual one.

    The program gets (x · scale − mean) / std of pixels x in [0, 1]. With none of the three given, 8-bit inputs get levels
    from 0 to 255 and others are normalised by ImageNet's mean and standard deviation, as most exported classifiers expect.
    """

    size: int | Sequence[int] | None = None
    mean: Sequence[float] | float | None = None
    std: Sequence[float] | float | None = None
    scale: float | None = None
    channels: Channels | None = None
    layout: Layout | None = None
    crop: float = 1.0
    interpolation: str = "bilinear"

    def __post_init__(self) -> None:
        if self.scale is not None and not self.scale > 0:
            raise BadPart(f"model: scale is a positive factor, such as 255, got {self.scale}")
        _check_crop(self.crop)


@dataclass(frozen=True)
class InputFormat:
    """Turns images into a program's input, differentiably unless it takes whole numbers."""

    preprocessing: Preprocessing
    layout: Layout = "NCHW"
    dtype: torch.dtype = torch.float32

    def __call__(self, images: Tensor) -> Tensor:
        """Images as the program takes them.  # (N, 3, H, W) → (N, C, h, w) or (N, h, w, C)"""
        prepared = self.preprocessing(images)
        if not self.dtype.is_floating_point:
            prepared = prepared.round()
        prepared = prepared.to(self.dtype)
        return prepared.permute(0, 2, 3, 1).contiguous() if self.layout == "NHWC" else prepared


def input_format(
    options: InputOptions, shape: Sequence[Any] | None, *, dtype: torch.dtype = torch.float32, what: str
) -> InputFormat:
    """The format that options and the input's declared shape come to; free dimensions are None or words."""
    if shape is not None and len(shape) != 4:
        raise BadPart(f"{what}: its input has the shape {list(shape)}; an image classifier takes four dimensions")
    declared = [entry if isinstance(entry, int) and entry > 0 else None for entry in shape or (None,) * 4]
    layout: Layout = options.layout or ("NHWC" if declared[3] in (1, 3) and declared[1] not in (1, 3) else "NCHW")
    count, height, width = declared[1:] if layout == "NCHW" else (declared[3], declared[1], declared[2])
    channels: Channels = options.channels or ("grey" if count == 1 else "rgb")
    if count is not None and count != (1 if channels == "grey" else 3):
        raise BadPart(f"{what}: its input has {count} channels in the layout {layout}, which is not {channels}")
    size = _program_size(options, height, width, what)
    mean, std = _program_normalisation(options, channels, dtype)
    given = any(value is not None for value in (options.mean, options.std, options.scale))
    preprocessing = Preprocessing(
        size=size,
        resize=(int(size[0] / options.crop), int(size[1] / options.crop)),
        interpolation=options.interpolation,
        mean=mean,
        std=std,
        grey=channels == "grey",
        bgr=channels == "bgr",
        sized_by="the options" if options.size is not None else "the file",
        normalised_by="the options" if given else ASSUMED if dtype.is_floating_point else "the file",
    )
    return InputFormat(preprocessing, layout, dtype)


def _program_size(options: InputOptions, height: int | None, width: int | None, what: str) -> tuple[int, int]:
    given = options.size
    wanted = (given, given) if isinstance(given, int) else tuple(given) if given is not None else (height, width)
    if len(wanted) != 2 or not all(isinstance(side, int) and side > 0 for side in wanted):
        raise BadPart(f"{what}: it does not say what size of image it takes; give size, as in --set model.size=224")
    for side, declared in zip(wanted, (height, width), strict=True):
        if declared is not None and side != declared:
            raise BadPart(f"{what}: takes images of {height}×{width}, got size {given}; leave size out")
    return int(wanted[0]), int(wanted[1])  # type: ignore[arg-type]


def _program_normalisation(
    options: InputOptions, channels: Channels, dtype: torch.dtype
) -> tuple[tuple[float, ...] | None, tuple[float, ...] | None]:
    """Mean and standard deviation for pixels in [0, 1] that take care of the scale as well."""
    count = 1 if channels == "grey" else 3
    mean, std, scale = options.mean, options.std, options.scale
    if mean is None and std is None and scale is None:
        if not dtype.is_floating_point:
            return (0.0,) * count, (1 / 255,) * count
        if channels == "grey":
            return (0.449,), (0.226,)  # the means over the three colours
        return (IMAGENET_MEAN, IMAGENET_STD) if channels == "rgb" else (IMAGENET_MEAN[::-1], IMAGENET_STD[::-1])
    factor = scale or 1.0
    means, stds = _each(0.0 if mean is None else mean, count, "mean"), _each(1.0 if std is None else std, count, "std")
    return tuple(value / factor for value in means), tuple(value / factor for value in stds)


def _each(values: Sequence[float] | float, count: int, name: str) -> tuple[float, ...]:
    listed = (float(values),) * count if isinstance(values, int | float) else tuple(float(value) for value in values)
    if len(listed) != count or (name == "std" and not all(value > 0 for value in listed)):
        raise BadPart(f"model: {name} is a number or {count} of them{', above 0' if name == 'std' else ''}, got {values!r}")
    return listed
