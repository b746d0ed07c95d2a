"""What a library does to a picture before its model sees it, done differentiably."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from counterfoil.core.errors import BadPart
from counterfoil.parts import images as pictures

Resizing = Literal["shorter", "longer", "squash"]


@dataclass(frozen=True)
class Preprocessing:
    """Resize, crop, turn grey, normalise. Nothing is rounded to 8 bits on the way, so that gradients pass.

    The libraries' own transforms round after resizing; inputs therefore differ by up to half a level in 255, and a
    little more where a filter rings. The defaults leave the pictures as they are.
    """

    size: tuple[int, int] | None = None  # (height, width) the model sees; None for whatever comes
    resize: tuple[int, int] | None = None  # what pictures are resized towards before the crop; default `size`
    resizing: Resizing = "shorter"  # which side is brought to `resize`; the rest is cropped or, for `longer`, filled
    interpolation: str = "bilinear"
    antialias: bool = True
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    fill: tuple[float, ...] = (0.0, 0.0, 0.0)  # colour beside pictures that are smaller than `size`
    grey: bool = False  # the model takes one channel
    rounding: Callable[[float], int] = round  # where the crop goes if the middle falls between two pixels
    bgr: bool = False  # the model takes blue first; `mean` and `std` are then in that order too

    def __post_init__(self) -> None:
        channels = 1 if self.grey else 3
        for name, values in (("mean", self.mean), ("std", self.std)):
            if values is not None and len(values) != channels:
                raise BadPart(f"preprocessing: {name} has {len(values)} values, the model takes {channels} channels")
        if (self.mean is None) != (self.std is None):
            raise BadPart("preprocessing: give both mean and std, or neither")

    @property
    def side(self) -> int | None:
        """Side of the pictures the model sees if they are square; None for any size, or another shape."""
        return self.size[0] if self.size is not None and self.size[0] == self.size[1] else None

    def __call__(self, images: Tensor) -> Tensor:
        """Pictures as the model takes them.  # (N, 3, H, W) → (N, 3 or 1, height, width)"""
        if self.grey:
            images = pictures.to_grey(images)
        if self.size is not None:
            images = self._resize(images, self.resize or self.size)
            images = pictures.centre_crop(images, self.size, fill=self.fill[: images.shape[1]], rounding=self.rounding)
        if self.bgr:
            images = images.flip(1)
        if self.mean is not None and self.std is not None:
            images = pictures.normalise(images, self.mean, self.std)
        return images

    def _resize(self, images: Tensor, target: tuple[int, int]) -> Tensor:
        height, width = images.shape[-2:]
        if self.resizing == "shorter" and target[0] == target[1]:
            size: int | tuple[int, int] = target[0]
        elif self.resizing == "squash":
            size = target
        else:
            ratios = height / target[0], width / target[1]
            ratio = max(ratios) if self.resizing == "longer" else min(ratios)
            size = round(height / ratio), round(width / ratio)
        return pictures.resize(images, size, interpolation=self.interpolation, antialias=self.antialias)


def square(
    size: int | None = None,
    *,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    interpolation: str = "bilinear",
    crop: float = 1.0,
) -> Preprocessing:
    """The usual case: resize the shorter side to `size / crop`, keep the centre square of side `size`, normalise."""
    if not 0 < crop <= 1:
        raise BadPart(f"preprocessing: crop is the share of the side that is kept, above 0 and up to 1, got {crop}")
    return Preprocessing(
        size=(size, size) if size else None,
        resize=(int(size / crop), int(size / crop)) if size else None,
        interpolation=interpolation,
        mean=tuple(mean) if mean is not None else None,
        std=tuple(std) if std is not None else None,
        grey=mean is not None and len(mean) == 1,
    )
