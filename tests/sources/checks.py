"""The contract of each role, checked bit by bit on a part of any kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from counterfoil import testing
from counterfoil.parts.datasets.arrays import from_arrays
from tests.fakes import CLASSES
from tests.parts.editors.conftest import CAPTION, EDITED


def _model(part: Any) -> None:
    testing.check_model(part, size=getattr(part, "size", None) or 16, exact=True)


def _generator(part: Any) -> None:
    testing.check_generator(part, size=part.size or 32, exact=True)


def _oracle(part: Any) -> None:
    if hasattr(part, "fit"):
        part = part.bind(list(CLASSES)).fit(colours())
    testing.check_oracle(part, list(CLASSES), exact=True)


def colours() -> Any:
    """Forty images of four classes, each of a colour of its own in ten shades."""
    palette = torch.tensor([[1.0, 0.1, 0.1], [0.1, 1.0, 0.1], [0.1, 0.1, 1.0], [0.8, 0.8, 0.1]])
    labels = torch.arange(40) % 4
    images = palette[labels] * torch.linspace(0.4, 1.0, 40)[:, None]  # (40, 3)
    return from_arrays(images[:, :, None, None].expand(-1, -1, 16, 16), labels, classes=CLASSES)


def _captioner(part: Any) -> None:
    testing.check_captioner(part, size=64)


def _editor(part: Any) -> None:
    testing.check_editor(part, caption=CAPTION, edited=EDITED, exact=True)


def _painter(part: Any) -> None:
    testing.check_painter(part, prompts=(CAPTION, EDITED), exact=True)


def _encoder(part: Any) -> None:
    testing.check_encoder(part, exact=True)


CHECKS: Mapping[str, Callable[[Any], None]] = {
    "model": _model,
    "generator": _generator,
    "oracle": _oracle,
    "dataset": testing.check_dataset,
    "captioner": _captioner,
    "rewriter": testing.check_rewriter,
    "editor": _editor,
    "painter": _painter,
    "encoder": _encoder,
    "chat": testing.check_chat,
}
"""By role."""
