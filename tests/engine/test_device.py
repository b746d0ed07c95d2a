"""Waiting for a GPU, making the chosen one current, and batches that fit its memory; faked, as there may be none."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from counterfoil.engine import device
from counterfoil.engine.device import batch_that_fits, synchronize
from counterfoil.protocols.workspace import device_of


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch):
    """The batch size on a GPU with so much memory free, for steps that take 1 GB once and so much per image."""

    def find_batch(free: float, each: float = 0.3e9, *, fits: int = 64) -> int:
        def peak(step, image, count, *, gradient):
            if count > fits:
                raise torch.OutOfMemoryError
            return 1e9 + each * count

        monkeypatch.setattr(device, "_peak_bytes", peak)
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 140e9))
        monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 0)
        monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 0)
        return batch_that_fits(SimpleNamespace(device="cuda"), torch.zeros(3, 8, 8), most=64, gradient=True)

    return find_batch


def test_a_batch_is_planned_by_the_memory_that_one_more_image_takes(rows) -> None:
    assert [rows(free) for free in (140e9, 20e9, 10e9, 0.1e9)] == [64, 32, 16, 1]
    assert rows(100e9, 0.0) == 64  # what a few images take need not grow with them


@pytest.mark.parametrize(("fits", "batch"), [(8, 64), (7, 4), (3, 1)])
def test_a_trial_that_does_not_fit_says_how_many_do(rows, fits: int, batch: int) -> None:
    assert rows(100e9, fits=fits) == batch


def test_only_a_gpu_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[object] = []
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    synchronize("cpu")
    synchronize(torch.device("cpu"))
    assert waited == []
    synchronize("cuda:1")
    synchronize(torch.device("cuda"))
    assert waited == ["cuda:1", torch.device("cuda")]


@pytest.mark.parametrize(("name", "current"), [("cuda:1", [torch.device("cuda:1")]), ("cuda", []), ("cpu", [])])
def test_a_gpu_by_number_becomes_the_current_one(monkeypatch: pytest.MonkeyPatch, name: str, current: list[object]) -> None:
    chosen: list[object] = []
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    monkeypatch.setattr(torch, "zeros", lambda count, *, device: device)
    assert device_of(name) == torch.device(name)
    assert chosen == current
