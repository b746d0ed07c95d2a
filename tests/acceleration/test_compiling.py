"""What happens when the compiler, or the recording of a step, does not work."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch import Tensor

from counterfoil.acceleration.compiling import Compiled
from counterfoil.acceleration.settings import Acceleration, check_precision
from counterfoil.errors import BadSpec, RunFailed
from counterfoil.spec import EngineSpec

CPU, CARD = torch.device("cpu"), torch.device("cuda")


def uncompilable(work: Any, **settings: Any) -> Any:
    def fails(*given: Any) -> Any:
        raise RuntimeError("no compiler\nhere")

    return fails


def test_what_cannot_be_compiled_runs_as_it_is_and_the_log_says_so_once(monkeypatch, caplog) -> None:
    monkeypatch.setattr(torch, "compile", uncompilable)
    work = Compiled(lambda x: x + 1, name="the model")
    with caplog.at_level(logging.WARNING):
        assert work(torch.zeros(1)) == 1
        assert work(torch.ones(1)) == 2
    assert [record.message for record in caplog.records] == ["the model is not compiled and runs as it is: no compiler here"]


def test_an_error_that_is_not_the_compilers_is_raised(monkeypatch) -> None:
    monkeypatch.setattr(torch, "compile", uncompilable)

    def broken(x: Tensor) -> Tensor:
        raise ValueError("the part itself")

    with pytest.raises(ValueError, match="the part itself"):
        Compiled(broken, name="the model")(torch.zeros(1))


def test_errors_for_people_pass_through(monkeypatch) -> None:
    def compile_to(work: Any, **settings: Any) -> Any:
        def fails(*given: Any) -> Any:
            raise RunFailed("scores are not finite")

        return fails

    monkeypatch.setattr(torch, "compile", compile_to)
    with pytest.raises(RunFailed, match="not finite"):
        Compiled(lambda x: x, name="the oracle")(torch.zeros(1))


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
