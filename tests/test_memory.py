"""How many images fit at a time is worked out from what a few of them took."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from counterfoil.engine import memory
from counterfoil.engine.memory import Fit, bytes_an_image, plan_rows


def test_rows_are_planned_by_the_memory_an_image_needs():
    assert plan_rows(140e9, 0.3e9, most=64, fused=True) == Fit(64, recompute=False)
    assert plan_rows(20e9, 0.3e9, most=64, fused=True) == Fit(32, recompute=False)
    assert plan_rows(10e9, 0.3e9, most=64, fused=True) == Fit(32, recompute=True)
    assert plan_rows(10e9, 0.3e9, most=64, fused=False) == Fit(16, recompute=False)
    assert plan_rows(0.1e9, 0.3e9, most=64, fused=True).rows == 1


def test_what_does_not_grow_with_the_images_is_not_counted_for_each():
    assert bytes_an_image(2.2e9, 3.4e9) == pytest.approx(0.3e9)  # 1 GB of it once
    assert bytes_an_image(5e9, 5e9) == 1


@pytest.mark.parametrize(("room", "rows"), [(8, 64), (7, 4), (3, 1)])
def test_a_trial_that_does_not_fit_says_how_many_do(monkeypatch, room, rows):
    def peak(ascent, image, count, *, climbing):
        if count > room:
            raise torch.OutOfMemoryError
        return 1e9 + 0.3e9 * count

    monkeypatch.setattr(memory, "_peak_bytes", peak)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (100e9, 140e9))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 0)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 0)
    ascent = SimpleNamespace(device="cuda", fused=True)
    assert memory.rows_that_fit(ascent, torch.zeros(3, 8, 8), most=64, climbing=True) == Fit(rows, recompute=rows < 64)
