"""Waiting for a GPU, and making the one that was chosen the current one; faked, as there may be none."""

from __future__ import annotations

import pytest
import torch

from counterfoil.engine.transfers import settle
from counterfoil.protocols import assembly


def test_only_a_gpu_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[object] = []
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    settle("cpu")
    settle(torch.device("cpu"))
    assert waited == []
    settle("cuda:1")
    settle(torch.device("cuda"))
    assert waited == ["cuda:1", torch.device("cuda")]


@pytest.mark.parametrize(("name", "current"), [("cuda:1", [torch.device("cuda:1")]), ("cuda", []), ("cpu", [])])
def test_a_gpu_by_number_becomes_the_current_one(monkeypatch: pytest.MonkeyPatch, name: str, current: list[object]) -> None:
    chosen: list[object] = []
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    monkeypatch.setattr(torch, "zeros", lambda count, *, device: device)
    assert assembly.device_of(name) == torch.device(name)
    assert chosen == current
