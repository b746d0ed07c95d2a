"""The contract of each role, checked bit by bit on a part of any kind."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import torch

from counterfoil import testing
from counterfoil.parts.contracts import describe
from counterfoil.parts.datasets.arrays import from_arrays
from tests.fakes import CLASSES
from tests.parts.editors.conftest import CAPTION, EDITED


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


CHECKS: Mapping[str, Callable[[Any], None]] = {
    "model": lambda part: testing.check_model(part, size=getattr(part, "size", None) or 16, exact=True),
    "generator": lambda part: testing.check_generator(part, size=part.size or 32, exact=True),
    "oracle": _oracle,
    "dataset": testing.check_dataset,
    "captioner": lambda part: testing.check_captioner(part, size=64),
    "rewriter": testing.check_rewriter,
    "editor": lambda part: testing.check_editor(part, caption=CAPTION, edited=EDITED, exact=True),
    "painter": lambda part: testing.check_painter(part, prompts=(CAPTION, EDITED), exact=True),
    "encoder": lambda part: testing.check_encoder(part, exact=True),
    "chat": testing.check_chat,
}
"""By role."""


def check(role: str, part: Any) -> None:
    """The contract of a role, and what holds for every part: frozen networks, an account in JSON, a device to move to."""
    CHECKS[role](part)
    told = part.provenance() if hasattr(part, "provenance") else {}
    assert all(len(told[key]) == 64 for key in told if key == "weights"), "weights are told by their SHA-256"
    json.dumps([told, [str(trait) for trait in describe(part)]])
    networks = list(_networks(part, set()))
    if any(isinstance(network, torch.jit.ScriptModule | torch.fx.GraphModule) for network in networks):
        return  # a program has no modes, and does not move to a device without numbers
    for network in networks:
        assert not network.training, "networks are in evaluation mode"
        assert not any(weight.requires_grad for weight in network.parameters()), "networks are frozen"
    if hasattr(part, "to"):
        assert part.to("meta") is part, "`to` gives the part itself"
        devices = {weight.device.type for network in networks for weight in network.parameters()}
        assert devices <= {"meta"}, f"`to` moves every network, some are on {devices}"


def _networks(part: Any, seen: set[int]) -> Any:
    """The torch modules that a part of the package holds, itself or in its own parts."""
    if id(part) in seen:
        return
    seen.add(id(part))
    if isinstance(part, torch.nn.Module):
        yield part
    elif type(part).__module__.startswith("counterfoil"):
        for value in vars(part).values() if hasattr(part, "__dict__") else ():
            yield from _networks(value, seen)
