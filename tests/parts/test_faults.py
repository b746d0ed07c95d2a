"""Parts that break their contract are named in one line, seam by seam: parts of a user's own in every role."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from counterfoil.core.errors import BadPart, CounterfoilError, RunFailed
from counterfoil.parts import calls
from counterfoil.parts.contracts import Painted, Verdicts
from tests.fakes import TinyModel

IMAGES, LABELS, CLASSES = torch.rand(4, 3, 16, 16, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 3]), 4
Answer = Callable[..., Any]


def fail(error: BaseException) -> Answer:
    def answer(*_: object) -> Any:
        raise error

    return answer


ANY: dict[str, tuple[Answer, str]] = {
    "raises": (fail(RuntimeError("mat1 and\nmat2")), "PART failed with RuntimeError: mat1 and mat2$"),
    "runs out of memory": (fail(MemoryError()), "PART failed with MemoryError"),
    "ends early": (fail(StopIteration()), "PART failed with StopIteration"),
    "ends the process": (lambda *_: sys.exit(0), r"PART ended the process \(sys\.exit\(0\)\)"),
}
MODELS: dict[str, tuple[Answer, str]] = {
    **ANY,
    "nothing": (lambda images: None, "PART gives a NoneType for logits"),
    "a list": (lambda images: [[0.0] * 4] * 4, "PART gives a list for logits"),
    "one number": (lambda images: images.sum(), r"PART gives logits of shape \(\); one row per image is \(4, 4\)"),
    "too few rows": (lambda images: images.flatten(1)[:3, :4], r"PART gives logits of shape \(3, 4\)"),
    "a class too many": (lambda images: images.flatten(1)[:, :5], r"PART gives logits of shape \(4, 5\)"),
    "a meta tensor": (lambda images: torch.zeros(4, 4, device="meta"), "PART gives logits as a meta tensor"),
    "a sparse tensor": (lambda images: torch.zeros(4, 4).to_sparse(), "PART gives logits as a sparse tensor"),
    "complex numbers": (lambda images: torch.zeros(4, 4, dtype=torch.complex64), "PART gives logits as a complex tensor"),
}


@pytest.mark.parametrize("kind", MODELS)
def test_a_model_that_breaks_its_contract_is_named(kind: str) -> None:
    answer, message = MODELS[kind]
    with pytest.raises((BadPart, RunFailed), match=message.replace("PART", "model mine")) as caught:
        calls.logits_of(answer, IMAGES, CLASSES, part="model mine")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.bool])
def test_a_model_of_any_number_is_read_in_float32(dtype: torch.dtype) -> None:
    assert calls.logits_of(lambda images: torch.ones(4, 4).to(dtype), IMAGES, CLASSES).dtype == torch.float32


def test_our_own_errors_and_a_full_gpu_pass_as_they_are() -> None:
    for error in (BadPart("its own words"), torch.OutOfMemoryError("full")):
        with pytest.raises(type(error), match=str(error)):
            calls.logits_of(fail(error), IMAGES, CLASSES)


@pytest.mark.parametrize("change", [torch.no_grad(), torch.inference_mode()], ids=["no_grad", "inference_mode"])
def test_a_model_without_gradients_is_named(change: Any) -> None:
    leaf = IMAGES.clone().requires_grad_()
    with change:
        scores = TinyModel().logits(leaf)
    with pytest.raises(BadPart, match="the model passes no gradient to the images: it runs without gradients, detaches"):
        calls.gradient_of(scores.sum(dim=1), leaf, leaf)


def verdicts(**columns: Any) -> Answer:
    """An oracle whose verdicts are right but for these columns."""
    right = {"keeps_label": torch.ones(4, dtype=torch.int8), "scores": torch.ones(4), "predicted": LABELS}
    return lambda images, labels: Verdicts(**{**right, **columns})


ORACLES: dict[str, tuple[Answer, str]] = {
    **ANY,
    "nothing": (lambda images, labels: None, "PART answers with a NoneType; judge gives"),
    "a tensor": (lambda images, labels: images, "PART answers with a Tensor; judge gives"),
    "too few rows": (verdicts(keeps_label=torch.ones(2)), r"PART gives keeps_label of shape \(2,\)"),
    "a list": (verdicts(scores=[1.0] * 4), "PART gives a list for scores"),
    "the verdict 7": (verdicts(keeps_label=torch.full((4,), 7)), "PART gives the verdict 7; keeps_label is 1, 0, or -1"),
    "the verdict -9": (verdicts(keeps_label=torch.full((4,), -9)), "PART gives the verdict -9"),
    "half a verdict": (verdicts(keeps_label=torch.full((4,), 0.5)), "PART gives the verdict 0.5"),
    "class 999": (verdicts(predicted=LABELS + 999), "PART sees class 999; predicted is a class from 0 to 3, or -1"),
    "class -2": (verdicts(predicted=LABELS * 0 - 2), "PART sees class -2"),
    "half a class": (verdicts(predicted=LABELS + 0.5), "PART sees class 0.5"),
    "complex scores": (verdicts(scores=torch.ones(4, dtype=torch.complex64)), "PART gives scores as a complex tensor"),
    "scores that are no numbers": (verdicts(scores=torch.full((4,), torch.nan)), "PART's scores are not finite"),
    "endless scores": (verdicts(scores=torch.full((4,), torch.inf)), "PART's scores are not finite"),
}


class Oracle:
    """An oracle that answers as it is told."""

    def __init__(self, answer: Answer, bound: Answer | None = None) -> None:
        self.judge, self._bound = answer, bound

    def bind(self, classes: Any) -> Any:
        return self if self._bound is None else self._bound(classes)


@pytest.mark.parametrize("kind", ORACLES)
def test_an_oracle_that_breaks_its_contract_is_named(kind: str) -> None:
    answer, message = ORACLES[kind]
    with pytest.raises((BadPart, RunFailed), match=message.replace("PART", "oracle mine")) as caught:
        calls.judge(Oracle(answer), IMAGES, LABELS, CLASSES, part="oracle mine")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", [*ANY, "nothing"])
def test_an_oracle_that_cannot_be_bound_is_named(kind: str) -> None:
    answer, message = ANY.get(kind, (lambda classes: None, r"PART: bind\(\) gives a NoneType without bind, judge"))
    with pytest.raises((BadPart, RunFailed), match=message.replace("PART", "oracle mine")):
        calls.bind(Oracle(verdicts(), answer), ["a", "b"], part="oracle mine")


def image(change: Callable[[Tensor], Tensor]) -> Answer:
    return lambda prompts, seeds: change(torch.rand(len(prompts), 3, 8, 8))


PAINTERS: dict[str, tuple[Answer, str]] = {
    **ANY,
    "nothing": (lambda prompts, seeds: None, "PART gives NoneType for 2 prompts"),
    "one image": (image(lambda images: images[0]), r"PART gives \(3, 8, 8\) for 2 prompts; give \(N, 3, H, W\)"),
    "too few": (image(lambda images: images[:1]), r"PART gives \(1, 3, 8, 8\) for 2 prompts"),
    "no colours": (image(lambda images: images[:, :1]), r"PART gives \(2, 1, 8, 8\) for 2 prompts"),
}
FILTERED: dict[str, tuple[Answer, str]] = {
    **ANY,
    "nothing": (lambda prompts, seeds: None, "PART answers with a NoneType; paint_filtered gives"),
    "images alone": (image(lambda images: images), "PART answers with a Tensor; paint_filtered gives"),
    "too few flags": (lambda prompts, seeds: Painted(torch.rand(2, 3, 8, 8), (None,)), "PART gives 1 flags for 2 prompts"),
}


class Painter:
    """A painter that answers as it is told."""

    def __init__(self, answer: Answer, *, filtered: bool) -> None:
        self.paint = answer
        if filtered:
            self.paint_filtered = answer


@pytest.mark.parametrize(("filtered", "kind"), [*((False, kind) for kind in PAINTERS), *((True, kind) for kind in FILTERED)])
def test_a_painter_that_breaks_its_contract_is_named(filtered: bool, kind: str) -> None:
    answer, message = (FILTERED if filtered else PAINTERS)[kind]
    with pytest.raises((BadPart, RunFailed), match=message.replace("PART", "painter mine")) as caught:
        calls.paint(Painter(answer, filtered=filtered), ["a mug", "a cup"], torch.tensor([1, 2]), part="painter mine")
    assert isinstance(caught.value, CounterfoilError) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda image: image * torch.nan, "values that are not finite"),
        (lambda image: image * 255, r"values from .* to .*, outside \[0, 1\]"),
        (lambda image: image - 1, r"outside \[0, 1\]"),
        (lambda image: image * 0, "a black image"),
        (lambda image: image * 0 + 0.5, "an image of one colour"),
    ],
)
def test_a_painted_image_that_shows_nothing_is_told(change: Callable[[Tensor], Tensor], message: str) -> None:
    painted = torch.rand(3, 8, 8, generator=torch.Generator().manual_seed(0))
    assert calls.painting_fault(painted) == "" and "safety filter" in calls.painting_fault(painted, flagged=True)
    assert re.search(message, calls.painting_fault(change(painted)))


ROWS: dict[str, tuple[Answer, str]] = {
    **ANY,
    "nothing": (lambda rows: None, "PART answers with a NoneType; give one answer per row"),
    "one number": (lambda rows: torch.zeros(()), "PART answers with a Tensor; give one answer per row"),
    "too few": (lambda rows: rows[:1], "PART gives 1 answers for 3 rows; give one each"),
    "too many": (lambda rows: [*rows, *rows], "PART gives 6 answers for 3 rows"),
}


@pytest.mark.parametrize("kind", ROWS)
def test_a_captioner_rewriter_editor_encoder_or_chat_that_breaks_its_contract_is_named(kind: str) -> None:
    answer, message = ROWS[kind]
    with pytest.raises((BadPart, RunFailed), match=message.replace("PART", "the chat")) as caught:
        calls.guard(answer, "the chat")(["a", "b", "c"])
    assert "\n" not in str(caught.value)
    assert calls.guard(lambda rows, more: rows + more, "the chat")(torch.ones(2), 1).tolist() == [2, 2]
