"""The classic mistakes in how pictures reach a model, each with a change that would undo it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from counterfoil.doctor.inputs import prepared_otherwise, preprocessing_of
from counterfoil.parts.contracts import Model
from counterfoil.parts.models.preprocessing import Preprocessing


@dataclass(frozen=True)
class Suspect:
    """A mistake, and the model's logits with that mistake undone."""

    mistake: str
    says: str
    remedy: str
    undone: Callable[[Model, Tensor], Tensor]


@dataclass(frozen=True)
class Normalisation:
    """A usual way to bring pixels in [0, 1] to what a network was trained on."""

    name: str
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    bgr: bool = False


NORMALISATIONS = (
    Normalisation("none, pixels in [0, 1] (the network may normalise by itself)", (0.0,) * 3, (1.0,) * 3),
    Normalisation("ImageNet's mean and standard deviation", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    Normalisation("mean 0.5 and standard deviation 0.5, pixels in [-1, 1]", (0.5,) * 3, (0.5,) * 3),
    Normalisation("CLIP's mean and standard deviation", (0.4815, 0.4578, 0.4082), (0.2686, 0.2613, 0.2758)),
    Normalisation("none, levels from 0 to 255", (0.0,) * 3, (1 / 255,) * 3),
    Normalisation(
        "levels from 0 to 255 in BGR minus ImageNet's mean (Caffe)", (0.4078, 0.4578, 0.4850), (1 / 255,) * 3, bgr=True
    ),
)
_PLAIN = NORMALISATIONS[0]
REACH = 2.5  # how many times larger or smaller a network's true side is taken to be at most
SIDES = (28, 32, 48, 64, 96, 128, 160, 192, 224, 240, 256, 260, 288, 299, 320, 384)


def suspects(model: Model) -> list[Suspect]:
    """Every change worth trying on this model."""
    shown = preprocessing_of(model)
    found = list(_pictures())
    if shown is None or shown.mean is None:  # it normalises out of sight, if at all
        found += _renormalised_unseen(shown)
    if shown is not None:
        found += _renormalised(shown)
        found += _resized(shown)
    return found


def _pictures() -> Iterator[Suspect]:
    upright = "turn the pictures upright where they are read"
    yield Suspect(
        "channel order",
        "red and blue are swapped (BGR)",
        "swap the channels once: channels: bgr for a program in a file, or where the pictures are read",
        lambda model, images: model.logits(images.flip(1)),
    )
    yield Suspect(
        "orientation", "pictures are upside down", upright, lambda model, images: model.logits(images.flip(2).contiguous())
    )
    yield Suspect(
        "orientation",
        "height and width are transposed",
        "transpose once: check the order of height and width where arrays are read, and the layout (NCHW, NHWC)",
        lambda model, images: model.logits(images.transpose(2, 3).contiguous()),
    )
    yield Suspect(
        "orientation",
        "pictures lie on their side",
        upright,
        lambda model, images: model.logits(images.transpose(2, 3).flip(2, 3).contiguous()),
    )
    yield Suspect(
        "inverted pictures",
        "black and white are exchanged",
        "invert the pictures where they are read",
        lambda model, images: model.logits(1 - images),
    )


def _renormalised(shown: Preprocessing) -> Iterator[Suspect]:
    """The normalisation that is shown, exchanged for each of the usual ones."""
    for way in NORMALISATIONS:
        if shown.grey or _same(shown, way):
            continue

        def change(was: Preprocessing, way: Normalisation = way) -> Preprocessing:
            return replace(was, mean=way.mean, std=way.std, bgr=was.bgr or way.bgr)

        yield _normalisation(way, prepared_otherwise(change), levels=shown.std is not None and max(shown.std) < 0.02)


def _renormalised_unseen(shown: Preprocessing | None) -> Iterator[Suspect]:
    """A model that may normalise out of sight: undo one usual way and do another, for each pair of them."""
    ways = [way for way in NORMALISATIONS if not way.bgr and "CLIP" not in way.name]  # CLIP's is nearly ImageNet's
    for was in ways:
        for way in ways:
            if was is way or (was is _PLAIN and shown is not None):  # that one is tried by name
                continue

            def undone(model: Model, images: Tensor, was: Normalisation = was, way: Normalisation = way) -> Tensor:
                wanted = (images - _column(way.mean, images)) / _column(way.std, images)
                return model.logits(wanted * _column(was.std, images) + _column(was.mean, images))

            yield _normalisation(way, undone, instead_of=was)


def _normalisation(
    way: Normalisation,
    undone: Callable[[Model, Tensor], Tensor],
    *,
    instead_of: Normalisation | None = None,
    levels: bool = False,
) -> Suspect:
    levels = levels or max(way.std) < 0.02 or (instead_of is not None and max(instead_of.std) < 0.02)
    beside = f", where it now gets: {instead_of.name}" if instead_of is not None else ""
    return Suspect(
        "input range" if levels else "normalisation",
        f"the network expects {way.name}{beside}",
        f"give mean {_few(way.mean)} and std {_few(way.std)} for pixels in [0, 1]" + (", channels: bgr" if way.bgr else ""),
        undone,
    )


def _resized(shown: Preprocessing) -> Iterator[Suspect]:
    """The size, crop and filter that are shown, exchanged for usual ones."""
    if shown.side is None:
        return
    side = shown.side
    for other in SIDES:
        if other != side and side / REACH <= other <= side * REACH:
            yield _geometry(
                f"the network expects pictures of {other} pixels, not {side}",
                f"give size: {other}",
                _at_side(other),
            )
    if shown.resize is not None and shown.resize != shown.size:
        yield _geometry("pictures are cropped too much", "give crop: 1.0", lambda was: replace(was, resize=None))
    for crop in (0.875,):
        towards = int(side / crop)
        if shown.resize != (towards, towards):
            yield _geometry(
                f"pictures are cropped too {'much' if (shown.resize or (side, side))[0] > towards else 'little'}",
                f"give crop: {crop}",
                _resized_to(towards),
            )
    other_filter = "bicubic" if shown.interpolation == "bilinear" else "bilinear"
    yield _geometry(
        f"pictures are resized by another filter than {shown.interpolation}",
        f"give interpolation: {other_filter}",
        lambda was: replace(was, interpolation=other_filter, antialias=True),
    )


def _geometry(says: str, remedy: str, change: Callable[[Preprocessing], Preprocessing]) -> Suspect:
    return Suspect("size or crop", says, remedy, prepared_otherwise(change))


def _at_side(side: int) -> Callable[[Preprocessing], Preprocessing]:
    return lambda was: replace(was, size=(side, side), resize=_scaled(was, side))


def _resized_to(side: int) -> Callable[[Preprocessing], Preprocessing]:
    return lambda was: replace(was, resize=(side, side))


def _scaled(was: Preprocessing, side: int) -> tuple[int, int]:
    assert was.size is not None
    height, width = was.resize or was.size
    return round(side * height / was.size[0]), round(side * width / was.size[1])


def _same(shown: Preprocessing, way: Normalisation) -> bool:
    mean, std = shown.mean or (0.0,) * 3, shown.std or (1.0,) * 3
    near = all(abs(a - b) < 0.01 * c for a, b, c in zip(mean, way.mean, way.std, strict=True))
    return near and all(abs(a / b - 1) < 0.02 for a, b in zip(std, way.std, strict=True)) and shown.bgr == way.bgr


def _column(values: tuple[float, float, float], images: Tensor) -> Tensor:
    return torch.tensor(values, dtype=images.dtype, device=images.device)[:, None, None]


def _few(values: tuple[float, float, float]) -> str:
    return f"{values[0]:.4g}" if len(set(values)) == 1 else "[" + ", ".join(f"{value:.4g}" for value in values) + "]"
