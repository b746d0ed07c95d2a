"""Triton's kernels on a CPU by its interpreter, and when they are used: tried out once per device, with one warning."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from counterfoil.parts.fast import passes

pytestmark = pytest.mark.rounding

GPU = torch.device("cuda", 0)


CHECKS = Path(__file__).parent / "interpreted_passes.py"


def test_kernels_and_plain_pytorch_agree_with_the_library() -> None:
    pytest.importorskip("triton")
    command = [sys.executable, "-m", "pytest", str(CHECKS), "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    asked = subprocess.run(
        command, cwd=CHECKS.parents[3], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert asked.returncode == 0, asked.stdout[-3000:] + asked.stderr[-1000:]


class OnGpu:
    """As much of an activation as is asked for."""

    is_cuda = True

    def __init__(self, device: torch.device) -> None:
        self.device = device


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> list[torch.device]:
    """The devices that the trial was made on; it has an answer for each, or raises it."""
    pytest.importorskip("triton")
    made: list[torch.device] = []
    monkeypatch.setattr(passes, "known_devices", {})

    def agree(device: torch.device) -> bool:
        made.append(device)
        if device.index == 1:
            raise RuntimeError("Failed to find C compiler.\nPlease specify via CC")
        if device.index == 3:
            raise torch.OutOfMemoryError("full")
        return device.index == 0

    monkeypatch.setattr(passes, "passes_agree", agree)
    return made


def test_kernels_are_used_where_the_trial_succeeds_and_it_is_made_once(trials: list[torch.device]) -> None:
    assert passes.by_triton(OnGpu(GPU))  # type: ignore[arg-type]
    assert passes.has_triton(GPU)
    assert trials == [GPU]


@pytest.mark.parametrize(("before", "then"), [(None, "1"), ("0", "0")])
def test_products_and_sums_are_fused_unless_somebody_said_otherwise(
    trials: list[torch.device], monkeypatch: pytest.MonkeyPatch, before: str | None, then: str
) -> None:
    monkeypatch.setenv(passes.FUSION, before or "")
    if before is None:
        monkeypatch.delenv(passes.FUSION)
    assert passes.has_triton(GPU)
    assert os.environ[passes.FUSION] == then


def test_a_device_without_a_number_is_the_current_one(trials: list[torch.device], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    assert passes.has_triton(torch.device("cuda")) and passes.has_triton(GPU)
    assert trials == [GPU]


@pytest.mark.parametrize(
    ("index", "why"), [(1, "Failed to find C compiler. Please specify via CC"), (2, "a pass came out wrong")]
)
def test_where_they_do_not_run_plain_ones_stand_in_and_the_log_says_so_once(
    trials: list[torch.device], caplog: pytest.LogCaptureFixture, index: int, why: str
) -> None:
    device = torch.device("cuda", index)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert not passes.by_triton(OnGpu(device))  # type: ignore[arg-type]
    assert trials == [device]
    assert [record.message for record in caplog.records] == [f"Triton kernels unavailable on cuda:{index}, using PyTorch: {why}"]


def test_a_trial_for_which_there_is_no_memory_says_nothing_of_kernels(trials: list[torch.device]) -> None:
    for _ in range(2):
        with pytest.raises(torch.OutOfMemoryError):
            passes.has_triton(torch.device("cuda", 3))
    assert len(trials) == 2


def test_without_the_package_nothing_is_tried(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(passes, "known_devices", {})
    monkeypatch.setattr(passes, "find_spec", lambda name: None)
    with caplog.at_level(logging.WARNING):
        assert not passes.has_triton(GPU)
    assert caplog.records[0].message.endswith("Triton is not installed")


def test_a_compiler_takes_the_answer_as_it_is(trials: list[torch.device]) -> None:
    def work(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if passes.has_triton(GPU) else x

    compiled = torch.compile(work, backend="eager", fullgraph=True)
    assert float(compiled(torch.zeros(()))) == 1
    assert trials == [GPU]
