"""Calls of parts: an exception names the part, a broken contract is refused, and a batch has one fixed number of rows.

Checks of shapes and dtypes read nothing back from a GPU. Values are checked where they are read anyway: `check_verdict`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor

from counterfoil.core.errors import BadPart, CounterfoilError, RunFailed, one_line
from counterfoil.parts.contracts import FilteredPainter, Oracle, Painted, Painter, check

log = logging.getLogger(__name__)

Row = TypeVar("Row")
Answer = TypeVar("Answer")

FLAT = 1.5 / 255  # an image whose values lie closer together than this shows nothing
NOT_FINITE = "the oracle's scores are not finite; check its weights and precision"
NO_GRADIENT = (
    "passes no gradient to the images: it runs without gradients, detaches its input or rounds it; "
    "let gradients through, or set differentiable = False to search without them"
)


@contextmanager
def naming(part: str) -> Iterator[None]:
    """Name the part in whatever it raises. Our own errors and a full GPU pass as they are."""
    try:
        yield
    except (CounterfoilError, torch.OutOfMemoryError):
        raise
    except SystemExit as ended:
        raise RunFailed(f"{part} ended the process (sys.exit({ended.code!r})); take that out of its code") from ended
    except Exception as error:
        raise RunFailed(f"{part} failed with {type(error).__name__}: {one_line(error)}") from error


def guard(ask: Callable[..., Any], part: str) -> Callable[..., Any]:
    """The same call: an exception in it names the part, and it has to give one answer per row of its first argument."""

    def call(rows: Any, *more: Any) -> Any:
        with naming(part):
            answers = ask(rows, *more)
        if not isinstance(answers, Sequence | Tensor) or (isinstance(answers, Tensor) and answers.ndim == 0):
            raise BadPart(f"{part} answers with a {type(answers).__name__}; give one answer per row")
        if len(answers) != len(rows):
            raise BadPart(f"{part} gives {len(answers)} answers for {len(rows)} rows; give one each")
        return answers

    return call


def logits_of(ask: Callable[[Tensor], Any], images: Tensor, classes: int, *, part: str = "the model") -> Tensor:
    """A model's scores for images, in float32.  # (N, 3, H, W) → (N, K)"""
    with naming(part):
        answer = ask(images)
    return _rows(answer, (len(images), classes), "logits", part, images.device).float()


def bind(oracle: Oracle, classes: Sequence[str], *, part: str = "the oracle") -> Oracle:
    """An oracle ready to judge images of these classes."""
    with naming(part):
        bound = oracle.bind(classes)
    check(bound, "oracle", f"{part}: bind() gives")
    return bound


def verdicts_of(ask: Callable[[Tensor, Tensor], Any], images: Tensor, labels: Tensor, *, part: str = "the oracle") -> Tensor:
    """An oracle's verdicts as one table: keeps_label, score, predicted class.  # → (N, 3) float64"""
    with naming(part), torch.no_grad():
        answer = ask(images, labels)
    columns = []
    for name in ("keeps_label", "scores", "predicted"):
        if not hasattr(answer, name):
            raise BadPart(f"{part} answers with a {type(answer).__name__}; judge gives counterfoil.parts.contracts.Verdicts")
        columns.append(_rows(getattr(answer, name), (len(images),), name, part).double().to(images.device))
    return torch.stack(columns, 1)


def by_source(oracle: Oracle, ask: Callable[..., Any], sources: Sequence[str]) -> Callable[[Tensor, Tensor], Any]:
    """`ask`, or for an oracle that was fitted on the run's images, `ask` with the head that has not seen each row's source."""
    if not getattr(oracle, "cross_fitted", False) or not sources:
        return ask
    heads: Tensor = oracle.heads(sources)  # type: ignore[attr-defined]
    return lambda images, labels: ask(images, labels, heads.to(images.device))


def judge(
    oracle: Oracle, images: Tensor, labels: Tensor, classes: int, *, part: str, sources: Sequence[str] = ()
) -> list[tuple[bool | None, float, int]]:
    """An oracle's verdicts as plain values: whether it keeps the label (None: it abstains), its score, the class it sees.

    `sources` are the ids of the images that each row was made from, where there are any.
    """
    rows: list[list[float]] = verdicts_of(by_source(oracle, oracle.judge, sources), images, labels, part=part).tolist()
    for keeps, score, seen in rows:
        check_verdict(keeps, score, seen, classes, part=part)
    return [(None if keeps < 0 else bool(keeps), score, int(seen)) for keeps, score, seen in rows]


def check_verdict(keeps: float, score: float, seen: float, classes: int, *, part: str = "the oracle") -> None:
    """Refuse a verdict whose values the contract does not know."""
    if not math.isfinite(score):
        raise RunFailed(NOT_FINITE.replace("the oracle", part))
    if keeps not in (-1, 0, 1):
        raise BadPart(f"{part} gives the verdict {keeps:g}; keeps_label is 1, 0, or -1 where it abstains")
    if seen != int(seen) or not -1 <= seen < classes:
        raise BadPart(f"{part} sees class {seen:g}; predicted is a class from 0 to {classes - 1}, or -1 for none of them")


def gradient_of(loss: Tensor, leaf: Tensor, images: Tensor) -> Tensor:
    """The gradient of the summed loss in `leaf`, from which `images` were made."""
    found = None
    if loss.requires_grad:
        with naming("the model's gradient"):
            (found,) = torch.autograd.grad(loss.sum(), leaf, allow_unused=True)
    if found is None:
        guilty = "the generator passes no gradient to what it moves" if not images.requires_grad else f"the model {NO_GRADIENT}"
        raise BadPart(guilty)
    return found


def paint(painter: Painter, prompts: Sequence[str], seeds: Tensor, *, part: str = "the painter") -> Painted:
    """Ask any painter, and check the shape of its answer."""
    with naming(part):
        if isinstance(painter, FilteredPainter):
            painted = painter.paint_filtered(prompts, seeds)
        else:
            painted = Painted(painter.paint(prompts, seeds), (None,) * len(prompts))
    if not isinstance(painted, Painted):
        kind = type(painted).__name__
        raise BadPart(f"{part} answers with a {kind}; paint_filtered gives counterfoil.parts.contracts.Painted")
    shape = tuple(getattr(painted.images, "shape", ()))
    if len(shape) != 4 or shape[:2] != (len(prompts), 3):
        raise BadPart(f"{part} gives {shape or type(painted.images).__name__} for {len(prompts)} prompts; give (N, 3, H, W)")
    if len(painted.flagged) != len(prompts):
        raise BadPart(f"{part} gives {len(painted.flagged)} flags for {len(prompts)} prompts; give one per image")
    return painted


def painting_fault(image: Tensor, *, flagged: bool | None = None) -> str:
    """The reason why a painted image cannot be used, or nothing.  # (3, H, W)"""
    if flagged:
        return "withheld by the painter's safety filter"
    if not torch.isfinite(image).all():
        return "the painter gave values that are not finite; try another precision"
    low, high = (float(value) for value in torch.aminmax(image))
    if low < -1e-3 or high > 1 + 1e-3:
        return f"the painter gave values from {low:.3g} to {high:.3g}, outside [0, 1]"
    if high - low < FLAT:
        return "the painter gave a black image" if high < FLAT else "the painter gave an image of one colour"
    return ""


def _rows(values: Any, shape: tuple[int, ...], what: str, part: str, device: torch.device | None = None) -> Tensor:
    """Check that the values are a plain tensor of real numbers of this shape."""
    if not isinstance(values, Tensor):
        raise BadPart(f"{part} gives a {type(values).__name__} for {what}; give a tensor of shape {shape}")
    if tuple(values.shape) != shape:
        raise BadPart(f"{part} gives {what} of shape {tuple(values.shape)}; one row per image is {shape}")
    if values.is_complex() or values.layout != torch.strided or values.is_meta:
        kind = "complex" if values.is_complex() else "meta" if values.is_meta else "sparse"
        raise BadPart(f"{part} gives {what} as a {kind} tensor; give a dense one of real numbers")
    if device is not None and values.device.type != device.type:
        raise BadPart(f"{part} gives {what} on {values.device} for images on {device}; keep them on one device")
    return values


def in_batches(
    rows: Sequence[Row],
    size: int,
    call: Callable[[list[Row]], Sequence[Answer]],
    *,
    smaller: Callable[[int], None] | None = None,
    what: str = "part",
) -> list[Answer]:
    """Answers of `call`, one per row, always asked about exactly `size` rows, the last of them repeated where rows are missing.

    Networks may round differently for another number of rows, so an answer must not depend on how many others were asked for.
    With `smaller`, the size is halved when memory runs out, and `smaller` is told the new one; `what` is for the log.
    """
    answers: list[Answer] = []
    while len(answers) < len(rows):
        some = list(rows[len(answers) : len(answers) + size])
        try:
            found = call(some + some[-1:] * (size - len(some)))
        except torch.OutOfMemoryError:
            if smaller is None or size == 1:
                raise
            torch.cuda.empty_cache()
            log.warning("%s: out of memory with %d rows per batch; continuing with %d", what, size, size // 2)
            size //= 2
            smaller(size)
            continue
        answers += found[: len(some)]
    return answers
