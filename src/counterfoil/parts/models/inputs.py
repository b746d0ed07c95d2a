"""How a program that is only known by its file wants its pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from counterfoil.core.errors import BadPart
from counterfoil.parts.models.preprocessing import Preprocessing, square

Layout = Literal["NCHW", "NHWC"]
Channels = Literal["rgb", "bgr", "grey"]

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class InputOptions:
    """What a user says of a program's input. Left out, a value comes from the program or is the usual one.

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
        for name, value, kinds in (("channels", self.channels, Channels), ("layout", self.layout, Layout)):
            if value is not None and value not in get_args(kinds):
                raise BadPart(f"model: {name} is one of {', '.join(get_args(kinds))}, got {value!r}")
        if self.scale is not None and not self.scale > 0:
            raise BadPart(f"model: scale is a positive factor, such as 255, got {self.scale}")


@dataclass(frozen=True)
class InputFormat:
    """Turns pictures into a program's input, differentiably unless it takes whole numbers."""

    preprocessing: Preprocessing
    layout: Layout = "NCHW"
    dtype: torch.dtype = torch.float32

    def __call__(self, images: Tensor) -> Tensor:
        """Pictures as the program takes them.  # (N, 3, H, W) → (N, C, h, w) or (N, h, w, C)"""
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
        raise BadPart(f"{what}: its input has the shape {list(shape)}; a classifier of pictures takes four dimensions")
    declared = [entry if isinstance(entry, int) and entry > 0 else None for entry in shape or (None,) * 4]
    layout: Layout = options.layout or ("NHWC" if declared[3] in (1, 3) and declared[1] not in (1, 3) else "NCHW")
    count, height, width = declared[1:] if layout == "NCHW" else (declared[3], declared[1], declared[2])
    channels: Channels = options.channels or ("grey" if count == 1 else "rgb")
    if count is not None and count != (1 if channels == "grey" else 3):
        raise BadPart(f"{what}: its input has {count} channels in the layout {layout}, which is not {channels}")
    size = _size(options, height, width, what)
    mean, std = _normalisation(options, channels, dtype)
    preprocessing = square(size[0], interpolation=options.interpolation, crop=options.crop)
    towards = (int(size[0] / options.crop), int(size[1] / options.crop))
    return InputFormat(
        replace(preprocessing, size=size, resize=towards, mean=mean, std=std, grey=channels == "grey", bgr=channels == "bgr"),
        layout,
        dtype,
    )


def _size(options: InputOptions, height: int | None, width: int | None, what: str) -> tuple[int, int]:
    given = options.size
    wanted = (given, given) if isinstance(given, int) else tuple(given) if given is not None else (height, width)
    if len(wanted) != 2 or not all(isinstance(side, int) and side > 0 for side in wanted):
        raise BadPart(f"{what}: it does not say what size of picture it takes; give size, as in --set model.size=224")
    for side, declared in zip(wanted, (height, width), strict=True):
        if declared is not None and side != declared:
            raise BadPart(f"{what}: takes pictures of {height}×{width}, got size {given}; leave size out")
    return int(wanted[0]), int(wanted[1])  # type: ignore[arg-type]


def _normalisation(
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
