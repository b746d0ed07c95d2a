"""Mistakes in how images reach the model: each is undone in turn, and what helps beyond chance is named."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import dataclass, is_dataclass, replace
from functools import partial
from itertools import permutations
from typing import Any

import torch
from torch import Tensor, nn

from counterfoil.core.errors import CounterfoilError
from counterfoil.doctor.sample import Evidence, FewImages, Finding, ask_in_batches, calibrated_loss, compare
from counterfoil.parts.contracts import Model
from counterfoil.parts.models.preprocessing import Preprocessing

_HOLDERS = ("model", "encoder", "inputs")  # what a wrapper calls the thing it wraps


def preprocessing_of(model: Any) -> Preprocessing | None:
    """The preprocessing that a model shows, or None where it shows none."""
    found = getattr(model, "preprocessing", None)
    if isinstance(found, Preprocessing):
        return found
    if isinstance(model, nn.Module):  # copies of modules share their parts, so that none could be exchanged in one alone
        return None
    held = (preprocessing_of(inner) for name in _HOLDERS if (inner := getattr(model, name, None)) is not None)
    return next(filter(None, held), None)


def with_preprocessing(model: Any, wanted: Preprocessing) -> Any:
    """A copy of the model that prepares images in another way; its weights are shared."""
    if isinstance(getattr(model, "preprocessing", None), Preprocessing):
        name, value = "preprocessing", wanted
    else:
        name = next(each for each in _HOLDERS if preprocessing_of(getattr(model, each, None)) is not None)
        value = with_preprocessing(getattr(model, name), wanted)
    if is_dataclass(model):
        return replace(model, **{name: value})  # type: ignore[type-var]
    changed = copy(model)
    setattr(changed, name, value)
    return changed


def prepare_otherwise(change: Callable[[Preprocessing], Preprocessing]) -> Callable[[Model, Tensor], Tensor]:
    """The logits of a model whose preprocessing was changed."""

    def logits(model: Model, images: Tensor) -> Tensor:
        shown = preprocessing_of(model)
        assert shown is not None
        answer: Tensor = with_preprocessing(model, change(shown)).logits(images)
        return answer

    return logits


@dataclass(frozen=True)
class Mistake:
    """A mistake, and the model's logits with that mistake undone."""

    kind: str
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

    @property
    def levels(self) -> bool:
        """Tell whether the network gets levels from 0 to 255."""
        return max(self.std) < 0.02


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
UPRIGHT = "turn the images upright where they are read"
ORDERS: tuple[tuple[str, str, str, Callable[[Tensor], Tensor]], ...] = (
    (
        "channel order", "red and blue are swapped (BGR)",
        "swap the channels once: channels: bgr for a program in a file, or where the images are read",
        lambda images: images.flip(1),
    ),
    ("orientation", "images are upside down", UPRIGHT, lambda images: images.flip(2)),
    (
        "orientation", "height and width are transposed",
        "transpose once: check the order of height and width where arrays are read, and the layout (NCHW, NHWC)",
        lambda images: images.transpose(2, 3),
    ),
    ("orientation", "images lie on their side", UPRIGHT, lambda images: images.transpose(2, 3).flip(2, 3)),
    (
        "inverted images", "black and white are exchanged", "invert the images where they are read",
        lambda images: 1 - images,
    ),
)  # fmt: skip
"""By kind: what is wrong with the images, what to do, and the images with that undone."""

REACH = 2.5  # how many times larger or smaller a network's true side is taken to be at most
SIDES = (28, 32, 48, 64, 96, 128, 160, 192, 224, 240, 256, 260, 288, 299, 320, 384)


def mistakes_of(model: Model) -> list[Mistake]:
    """Every change worth trying on this model."""
    shown = preprocessing_of(model)
    found = [Mistake(kind, says, remedy, _on_images(change)) for kind, says, remedy, change in ORDERS]
    if shown is None or shown.mean is None:  # it normalises out of sight, if at all
        found += _renormalise_unseen(shown)
    if shown is not None:
        found += _renormalise(shown)
        found += _resize(shown)
    return found


def _on_images(change: Callable[[Tensor], Tensor]) -> Callable[[Model, Tensor], Tensor]:
    return lambda model, images: model.logits(change(images).contiguous())


def _renormalise(shown: Preprocessing) -> Iterator[Mistake]:
    """The normalisation that is shown, exchanged for each of the usual ones."""
    for way in NORMALISATIONS:
        if not shown.grey and not _same(shown, way):
            change = partial(replace, mean=way.mean, std=way.std, bgr=shown.bgr or way.bgr)
            yield _normalisation(way, prepare_otherwise(change), levels=shown.std is not None and max(shown.std) < 0.02)


def _renormalise_unseen(shown: Preprocessing | None) -> Iterator[Mistake]:
    """A model that may normalise out of sight: undo one usual way and do another, for each pair of them."""
    ways = [way for way in NORMALISATIONS if not way.bgr and "CLIP" not in way.name]  # CLIP's is nearly ImageNet's
    for was, way in permutations(ways, 2):
        if was is ways[0] and shown is not None:  # that one is tried by name
            continue

        def change(images: Tensor, was: Normalisation = was, way: Normalisation = way) -> Tensor:
            mean, std, old_mean, old_std = (
                images.new_tensor(each)[:, None, None] for each in (way.mean, way.std, was.mean, was.std)
            )
            return (images - mean) / std * old_std + old_mean

        yield _normalisation(way, _on_images(change), levels=was.levels, beside=f", where it now gets: {was.name}")


def _normalisation(
    way: Normalisation, undone: Callable[[Model, Tensor], Tensor], *, levels: bool = False, beside: str = ""
) -> Mistake:
    remedy = f"give mean {_few(way.mean)} and std {_few(way.std)} for pixels in [0, 1]" + (", channels: bgr" if way.bgr else "")
    kind = "input range" if levels or way.levels else "normalisation"
    return Mistake(kind, f"the network expects {way.name}{beside}", remedy, undone)


def _resize(shown: Preprocessing) -> Iterator[Mistake]:
    """The size, crop and filter that are shown, exchanged for usual ones."""
    if shown.side is None or shown.size is None:
        return

    def change(says: str, remedy: str, **changes: Any) -> Mistake:
        return Mistake("size or crop", says, remedy, prepare_otherwise(partial(replace, **changes)))

    side, (height, width) = shown.side, shown.resize or shown.size
    for other in (each for each in SIDES if each != side and side / REACH <= each <= side * REACH):
        resize = round(other * height / side), round(other * width / side)
        says = f"the network expects images of {other} pixels, not {side}"
        yield change(says, f"give size: {other}", size=(other, other), resize=resize)
    if shown.resize is not None and shown.resize != shown.size:
        yield change("images are cropped too much", "give crop: 1.0", resize=None)
    towards = int(side / 0.875)
    if shown.resize != (towards, towards):
        much = "much" if height > towards else "little"
        yield change(f"images are cropped too {much}", "give crop: 0.875", resize=(towards, towards))
    other_filter = "bicubic" if shown.interpolation == "bilinear" else "bilinear"
    says = f"images are resized by another filter than {shown.interpolation}"
    yield change(says, f"give interpolation: {other_filter}", interpolation=other_filter, antialias=True)


def _same(shown: Preprocessing, way: Normalisation) -> bool:
    mean, std = shown.mean or (0.0,) * 3, shown.std or (1.0,) * 3
    near = all(abs(a - b) < 0.01 * c for a, b, c in zip(mean, way.mean, way.std, strict=True))
    return near and all(abs(a / b - 1) < 0.02 for a, b in zip(std, way.std, strict=True)) and shown.bgr == way.bgr


def _few(values: tuple[float, float, float]) -> str:
    return f"{values[0]:.4g}" if len(set(values)) == 1 else "[" + ", ".join(f"{value:.4g}" for value in values) + "]"


LOOKED_AT = 4  # suspects that are confirmed on images they were not chosen by
LEVEL = 0.01
GAIN = 0.05  # level at which accuracy has to rise, apart from the loss
RELIEF = 0.15  # of the calibrated loss; networks do gain a little from some changes that are no mistakes
HANDICAP = {"size or crop": 1.25}  # most networks gain a little from larger images, whatever else is wrong

Watch = Callable[[int, int], None]


def check_inputs(model: Model, few: FewImages, logits: Tensor, *, watch: Watch = lambda done, total: None) -> list[Finding]:
    """At most one finding: the change that helps the model most, with every other change that passes the same tests."""
    tried = mistakes_of(model)
    chosen = (torch.arange(len(few)) % 3 == 0).to(logits.device)  # they choose; the others confirm
    screening, rest = few.rows(chosen), few.rows(~chosen)
    if len(rest) < 8:
        return []

    def confirm(numbers: Iterable[int]) -> list[tuple[Evidence, Mistake]]:
        answers = [(tried[number], _ask(tried[number], model, rest.images)) for number in numbers]
        return [(compare(logits[~chosen], after, rest.truth), each) for each, after in answers if after is not None]

    asked = calibrated_loss(logits[chosen], screening.truth).mean().item()
    promising: dict[str, list[tuple[float, int]]] = {}  # by mistake, so that ten sizes do not crowd out one normalisation
    for number, mistake in enumerate(tried):
        watch(number, len(tried))
        after = _ask(mistake, model, screening.images)
        loss = calibrated_loss(after, screening.truth).mean().item() if after is not None else asked
        if loss < asked:
            promising.setdefault(mistake.kind, []).append((loss, number))
    watch(len(tried), len(tried))
    ranked = sorted(sorted(each) for each in promising.values())[:LOOKED_AT]
    confirmed = confirm(each[0][1] for each in ranked)
    if not any(is_convincing(found, looked_at=LOOKED_AT) for found, _ in confirmed):
        return _caution(confirmed)
    confirmed += confirm(number for each in ranked for _, number in each[1:])
    helps = [pair for pair in confirmed if is_convincing(pair[0], looked_at=LOOKED_AT)]
    helps.sort(key=lambda pair: pair[0].loss[1] * HANDICAP.get(pair[1].kind, 1.0))
    (evidence, mistake), *more = helps
    also = "".join(f"; also passes: {each.says} ({found})" for found, each in more)
    return [Finding(mistake.kind, mistake.says, f"with that undone, {evidence}{also}", mistake.remedy)]


def is_convincing(evidence: Evidence, *, looked_at: int = 1) -> bool:
    """Tell whether a change helps: loss and accuracy improve beyond chance, the loss by more than harmless changes improve it.

    The loss alone accuses networks that were trained with smoothed labels, to which a harmless change may lend confidence.
    """
    return _eases(evidence, looked_at) and evidence.chance_of_gain < GAIN


def _eases(evidence: Evidence, looked_at: int) -> bool:
    return evidence.p_value < LEVEL / looked_at and evidence.relief >= RELIEF


def _caution(confirmed: list[tuple[Evidence, Mistake]]) -> list[Finding]:
    """A caution that lists the changes that lower the loss and leave it to chance whether accuracy rises."""
    found = [pair for pair in confirmed if _eases(pair[0], LOOKED_AT) and pair[0].accuracy[1] >= pair[0].accuracy[0]]
    if not found:
        return []
    says = "the loss falls when images reach the model in another way, and accuracy does not rise beyond chance"
    evidence = "; ".join(f"{mistake.says}: {evidence}" for evidence, mistake in found)
    remedy = "nothing, if images are prepared as they were in training; with more images (--images) the doctor can tell"
    return [Finding("inputs", says, evidence, remedy, severity="caution")]


def _ask(mistake: Mistake, model: Model, images: Tensor) -> Tensor | None:
    """The logits with the mistake undone, or None where the model cannot take such images."""
    try:
        logits = ask_in_batches(lambda part: mistake.undone(model, part), images)
    except (CounterfoilError, RuntimeError, ValueError, AssertionError):  # a size it was not built for, values out of range
        return None
    return logits if torch.isfinite(logits).all() else None
