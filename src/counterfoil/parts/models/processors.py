"""The image processors of transformers, as differentiable preprocessing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from counterfoil.core.errors import BadPart, one_line
from counterfoil.parts import images as pictures
from counterfoil.parts.models.preprocessing import Preprocessing, Resizing

_FILTERS = {2: "bilinear", 3: "bicubic"}  # Pillow's numbers
_LEVELS = 3.0  # how far, in 255ths, a processor's own result may lie from ours: it rounds to 8 bits, once or twice
_MEAN_LEVELS = 0.6


def from_processor(processor: Any, *, what: str) -> Preprocessing:
    """What an image processor does to a picture. Tried on one: a processor with steps not known here is refused."""
    if getattr(processor, "max_num_patches", None):
        raise BadPart(f"{what}: takes pictures as patches of changing number; choose a variant with a fixed size")
    if type(processor).__name__.startswith("TimmWrapper"):
        raise BadPart(f"{what}: is a model of timm; load it as timm:NAME")
    size, resize, resizing = _sizes(processor, what)
    mean, std = _normalisation(processor)
    preprocessing = Preprocessing(
        size=size,
        resize=resize,
        resizing=resizing,
        interpolation=_filter(processor, what) if size else "bilinear",
        mean=mean,
        std=std,
        rounding=int,
        bgr=bool(getattr(processor, "do_flip_channel_order", False)),
    )
    _compare(processor, preprocessing, what)
    return preprocessing


def _sizes(processor: Any, what: str) -> tuple[tuple[int, int] | None, tuple[int, int] | None, Resizing]:
    """The size the model sees, the size pictures are resized towards before the crop, and how."""
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
    """The share of the resized picture that is kept, where a processor resizes to more than it is told to."""
    name = type(processor).__name__
    if name.startswith("Levit"):
        return 224 / 256 if "shortest_edge" in size else None
    share = getattr(processor, "crop_pct", None)
    if name.startswith("ConvNext") and size.get("shortest_edge", 0) >= 384:
        return None
    return float(share) if share else None


def _normalisation(processor: Any) -> tuple[tuple[float, ...] | None, tuple[float, ...] | None]:
    """Mean and standard deviation for pictures in [0, 1] that do all of rescaling and normalising at once."""
    factor = 255 * float(processor.rescale_factor) if getattr(processor, "do_rescale", True) else 255.0
    offset = 1.0 if getattr(processor, "rescale_offset", False) else 0.0
    normalises = bool(getattr(processor, "do_normalize", False))
    means = _three(processor.image_mean) if normalises else (0.0,) * 3
    stds = _three(processor.image_std) if normalises else (1.0,) * 3
    again = _three(processor.image_std) if getattr(processor, "include_top", False) else (1.0,) * 3
    if not normalises and factor == 1.0 and not offset and set(again) == {1.0}:
        return None, None
    # ((factor · x − offset) − mean) / std / again, written as (x − m) / s
    mean = tuple((offset + value) / factor for value in means)
    std = tuple(value * more / factor for value, more in zip(stds, again, strict=True))
    return mean, std


def _three(values: Any) -> tuple[float, ...]:
    listed = tuple(float(value) for value in values) if isinstance(values, list | tuple) else (float(values),)
    return listed * 3 if len(listed) == 1 else listed


def _filter(processor: Any, what: str) -> str:
    number = int(processor.resample)
    if number not in _FILTERS:
        raise BadPart(f"{what}: its image processor resizes by Pillow's filter {number}, not known here; wrap it as python:…")
    return _FILTERS[number]


def _compare(processor: Any, preprocessing: Preprocessing, what: str) -> None:
    """Raise BadPart unless processor and preprocessing make the same of a small picture, but for rounding."""
    image = _picture()
    try:
        theirs = processor(images=Image.fromarray(pictures.to_uint8(image)), return_tensors="pt")["pixel_values"]
    except Exception as error:
        raise BadPart(f"{what}: its image processor fails on a picture: {one_line(error)}") from None
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
    """A smooth picture that is wider than high, each colour unlike the others.  # → (3, 96, 120)"""
    rows, columns = torch.meshgrid(torch.linspace(0, 1, 96), torch.linspace(0, 1, 120), indexing="ij")
    waves = (0.5 + 0.5 * torch.sin(9 * rows + 2 * columns), columns * (1 - rows), 0.3 + 0.4 * torch.cos(7 * columns))
    return (torch.stack(waves).clamp(0, 1) * 255).round() / 255
