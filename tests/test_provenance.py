"""What a run says of how it was made."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from counterfoil.engine.fast import Acceleration
from counterfoil.protocols import provenance


def engine(device: str) -> SimpleNamespace:
    step = SimpleNamespace(acceleration=Acceleration("bf16", compile=True))
    return SimpleNamespace(device=torch.device(device), batch_size=128, step=step)


def test_what_an_engine_came_to_is_said_where_digits_depend_on_it() -> None:
    assert provenance.working(engine("cuda")) == {"batch_size": 128, "compiled": True}
    assert provenance.working(engine("cpu")) == {}
