"""Every source that needs no network gives on a GPU what it gives on a CPU, up to rounding; skipped where there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from counterfoil.parts import registry
from counterfoil.parts.contracts import Sample, to_device
from counterfoil.testing import pictures
from tests.fakes import CLASSES, TinyModel
from tests.sources import RECIPES, list_sources

DEVICE = "cuda"
NEAR = 0.02  # mean difference, of the spread of the answers
CAPTION, EDITED = "a photo of a red wool dress on a beach", "a photo of a blue wool dress on a beach"

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")


@pytest.fixture
def stack(monkeypatch: pytest.MonkeyPatch) -> Iterator[ExitStack]:
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    with ExitStack() as opened:
        yield opened


def render(generator: Any, device: str) -> Tensor:
    """Plain reconstructions; on the way, the gradient of a loss is asked for and must be finite."""
    images, labels = pictures(4, generator.size or 64).to(device), torch.zeros(4, dtype=torch.long, device=device)
    with torch.no_grad():
        state = generator.start(images, labels, torch.arange(4, device=device))
    leaf = state[generator.moving].detach().requires_grad_()
    made = generator.render({**state, generator.moving: leaf})
    (gradient,) = torch.autograd.grad(F.cross_entropy(TinyModel().to(device).logits(made), labels), leaf)
    assert torch.isfinite(gradient).all() and made.min() >= 0 and made.max() <= 1
    return made


def judge(oracle: Any, device: str) -> Tensor:
    labels = torch.arange(8) % len(CLASSES)
    return oracle.bind(CLASSES).judge(pictures(8, 64).to(device), labels.to(device)).scores


def caption(captioner: Any, device: str) -> list[str]:
    samples = [Sample(str(at), 0, "", "a photo of a dog") for at in range(2)]
    return [each.text for each in captioner.caption(pictures(2, 64).to(device), samples)]


def edit(editor: Any, device: str) -> Tensor:
    found = editor.invert(list(pictures(2, editor.size or 64)), [CAPTION] * 2, [1, 2])
    return torch.cat([each.candidates for each in editor.edit(found, [EDITED] * 2)])


ANSWERS: dict[str, Callable[[Any, str], Any]] = {
    "model": lambda model, device: model.logits(pictures(4, getattr(model, "size", None) or 64).to(device)),
    "generator": render,
    "oracle": judge,
    "encoder": lambda encoder, device: encoder.embed_images(pictures(4, 64).to(device)),
    "captioner": caption,
    "editor": edit,
    "painter": lambda painter, device: painter.paint([CAPTION, EDITED], torch.tensor([1, 2])),
}

SOURCES = [each for each in list_sources() if each[0] in ANSWERS and each != ("oracle", "probe")]  # a probe is fitted first


@pytest.mark.parametrize("source", SOURCES, ids=" ".join)
def test_answers_are_those_of_a_cpu(source: tuple[str, str], tmp_path: Path, stack: ExitStack) -> None:
    role, answer = source[0], ANSWERS[source[0]]
    name, options = RECIPES[source](tmp_path, stack)
    part = registry.create(role, name, options)
    here, there = answer(part, "cpu"), answer(to_device(part, DEVICE), DEVICE)
    if not isinstance(here, Tensor):
        assert here == there
        return
    there = there.detach().cpu()
    assert torch.isfinite(there).all()
    assert (here.detach() - there).abs().mean() <= NEAR * max(float(here.detach().std()), 1e-6)
