"""What parts are made to run with, by device and precision."""

from __future__ import annotations

import logging

import pytest
import torch

from counterfoil.core.errors import BadSpec
from counterfoil.core.spec import EngineSpec
from counterfoil.parts.fast.settings import Acceleration, check_precision, real_float32

CPU, CARD = torch.device("cpu"), torch.device("cuda")


def test_float32_is_left_plain_and_a_cpu_is_not_compiled_for_unless_asked() -> None:
    assert Acceleration.of(EngineSpec(), CPU) == Acceleration()
    assert Acceleration.of(EngineSpec(), CARD) == Acceleration()
    assert Acceleration.of(EngineSpec(precision="bf16"), CPU) == Acceleration("bf16")
    assert Acceleration.of(EngineSpec(compile=True), CPU).compile
    low, long = EngineSpec(precision="bf16"), 10**12
    assert Acceleration.of(low, CARD) == Acceleration("bf16", fused=True, graphs=True)
    assert Acceleration.of(low, CARD, work=long) == Acceleration("bf16", compile=True, fused=True, graphs=True)
    assert not Acceleration.of(EngineSpec(precision="bf16", compile=False), CARD, work=long).compile
    assert not Acceleration.of(low, CPU, work=long).compile


def test_precision_is_autocast_and_only_where_it_is_wanted() -> None:
    with Acceleration("bf16").numbers(CPU):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.bfloat16
    with Acceleration("bf16").numbers(CPU, half=False):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32
    with Acceleration().numbers(CPU):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32


def flags() -> tuple[bool, ...]:
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    return matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark, cudnn.deterministic


def set_flags(*values: bool) -> None:
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark, cudnn.deterministic = values


@pytest.mark.parametrize(("precision", "tf32"), [("float32", False), ("tf32", True), ("bf16", True)])
def test_on_a_card_no_kernel_is_chosen_by_trying_it_out_and_float32_means_float32(precision, tf32) -> None:
    before, callers = flags(), (not tf32, True, True, tf32)
    set_flags(*callers)
    try:
        with Acceleration(precision).numbers(CARD, half=False):
            assert flags() == (tf32, tf32, False, not tf32)
        assert flags() == callers
    finally:
        set_flags(*before)


def test_codes_are_chosen_in_real_float32_whatever_surrounds_them() -> None:
    before = flags()
    set_flags(True, True, False, False)
    try:
        with Acceleration("bf16").numbers(CARD, half=False), real_float32(CARD):
            assert flags() == (False, False, False, True)
        with Acceleration("bf16").numbers(CPU), real_float32(CPU):
            assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32
    finally:
        set_flags(*before)


@pytest.mark.parametrize(("precision", "kept"), [("float32", False), ("tf32", False), ("bf16", True)])
def test_gradients_of_float32_go_through_attention_that_adds_up_in_a_fixed_order(precision, kept) -> None:
    asked = torch.backends.cuda
    assert asked.mem_efficient_sdp_enabled() and asked.flash_sdp_enabled()
    with Acceleration(precision).gradients():
        assert asked.mem_efficient_sdp_enabled() == asked.flash_sdp_enabled() == kept
        assert asked.math_sdp_enabled()
    assert asked.mem_efficient_sdp_enabled() and asked.flash_sdp_enabled()


@pytest.mark.parametrize(
    ("machine", "avx512", "amx", "arm", "told"),
    [
        ("x86_64", True, False, False, False),
        ("x86_64", False, True, False, False),
        ("x86_64", False, False, True, True),  # AVX-512 alone: oneDNN says yes and imitates
        ("aarch64", False, False, True, False),
        ("aarch64", False, False, False, True),
    ],
)
def test_bf16_is_told_of_where_a_processor_only_imitates_it(monkeypatch, caplog, machine, avx512, amx, arm, told) -> None:
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: avx512)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: arm)
    with caplog.at_level(logging.WARNING):
        check_precision("bf16", CPU)
    assert [record.message for record in caplog.records] == (
        ["this processor has no bf16 instructions and only imitates them: float32 is faster here"] if told else []
    )


def test_tf32_is_refused_on_a_cpu() -> None:
    with pytest.raises(BadSpec, match="tf32 is a number format of GPUs"):
        check_precision("tf32", CPU)
