"""Acceleration of a step by device and precision, compiler and graphs where they fail, and batches that fit a GPU's memory."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from counterfoil.core.errors import RunFailed
from counterfoil.core.spec import EngineSpec
from counterfoil.engine import device
from counterfoil.engine.device import batch_that_fits, synchronize
from counterfoil.engine.fast import WARM_UP, Acceleration, CudaGraph
from counterfoil.parts.fast.compiling import Compiled
from counterfoil.parts.images import normalise
from counterfoil.protocols.workspace import device_of

CPU, GPU = torch.device("cpu"), torch.device("cuda")


def test_float32_is_left_plain_and_a_cpu_is_not_compiled_for_unless_asked() -> None:
    assert Acceleration.of(EngineSpec(), CPU) == Acceleration()
    assert Acceleration.of(EngineSpec(), GPU) == Acceleration()
    assert Acceleration.of(EngineSpec(precision="bf16"), CPU) == Acceleration("bf16")
    assert Acceleration.of(EngineSpec(compile=True), CPU).compile
    low, long = EngineSpec(precision="bf16"), 10**12
    assert Acceleration.of(low, GPU) == Acceleration("bf16", fused=True, graphs=True)
    assert Acceleration.of(low, GPU, work=long) == Acceleration("bf16", compile=True, fused=True, graphs=True)
    assert not Acceleration.of(EngineSpec(precision="bf16", compile=False), GPU, work=long).compile
    assert not Acceleration.of(low, CPU, work=long).compile


@pytest.mark.parametrize(("precision", "kept"), [("float32", False), ("bf16", True)])
def test_gradients_of_float32_go_through_attention_that_adds_up_in_a_fixed_order(precision, kept) -> None:
    asked = torch.backends.cuda
    assert asked.mem_efficient_sdp_enabled() and asked.flash_sdp_enabled()
    with Acceleration(precision).deterministic_attention():
        assert asked.mem_efficient_sdp_enabled() == asked.flash_sdp_enabled() == kept
        assert asked.math_sdp_enabled()
    assert asked.mem_efficient_sdp_enabled() and asked.flash_sdp_enabled()


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
    assert [record.message for record in caplog.records] == [
        "torch.compile failed for the model, running eagerly: no compiler here"
    ]


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


def test_the_compiler_chooses_nothing_by_the_clock(monkeypatch) -> None:
    asked = {}
    monkeypatch.setattr(torch, "compile", lambda work, **options: asked.update(options) or work)
    Compiled(len, name="the model")
    assert asked["options"] == {"deterministic": True}
    assert {*asked["options"]} <= {*torch._inductor.list_options()}


def test_what_normalises_is_compiled_without_a_word(recwarn) -> None:
    pictures, mean, std = torch.rand(2, 3, 8, 8), (0.5, 0.4, 0.3), (0.2, 0.3, 0.4)
    compiled = torch.compile(normalise, backend="eager", dynamic=False)
    assert torch.equal(compiled(pictures, mean, std), normalise(pictures, mean, std))
    assert not [each for each in recwarn if "lru_cache" in str(each.message)]


class Step:
    """Work that notes how it was called, and fails at given calls."""

    def __init__(self, *, fails_at: dict[int, Exception] | None = None) -> None:
        self.seen: list[float] = []
        self.fails_at = fails_at or {}

    def __call__(self, x: Tensor) -> tuple[Tensor]:
        self.seen.append(float(x))
        if len(self.seen) in self.fails_at:
            raise self.fails_at[len(self.seen)]
        return (x + 1,)


class Stream:
    def wait_stream(self, other: Stream) -> None:
        pass


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Stand-in on a CPU for recording on a GPU: a replay computes the outputs again from the recorded inputs."""
    state: dict[str, Any] = {"replays": 0, "recorded": None, "waited": 0}

    class Graph:
        def replay(self) -> None:
            state["replays"] += 1
            recorded = state["recorded"]
            recorded.outputs[0].copy_(recorded.inputs[0] + 1)

    @contextlib.contextmanager
    def graph(graph: Graph, *, capture_error_mode: str) -> Iterator[None]:
        assert capture_error_mode == "thread_local"
        yield

    def synchronize() -> None:
        state["waited"] += 1

    for name, fake in (
        ("CUDAGraph", Graph), ("graph", graph), ("Stream", Stream), ("current_stream", Stream),
        ("stream", lambda stream: contextlib.nullcontext()), ("synchronize", synchronize),
    ):  # fmt: skip
        monkeypatch.setattr(torch.cuda, name, fake)
    return state


def test_a_step_is_warmed_up_recorded_once_and_replayed(card: dict[str, Any]) -> None:
    step = Step()
    card["recorded"] = recorded = CudaGraph(step, name="the step")
    first, second = recorded(torch.tensor(1.0))[0], recorded(torch.tensor(5.0))[0]
    assert (float(first), float(second)) == (2.0, 6.0)  # the second has not overwritten the first
    assert step.seen == [1.0] * (WARM_UP + 1)
    assert card["replays"] == 2


@pytest.mark.parametrize("call", [1, WARM_UP, WARM_UP + 1])  # of the warm-up, of its end, of the recording
def test_what_cannot_be_recorded_is_called_and_the_log_says_so_once(
    card: dict[str, Any], caplog: pytest.LogCaptureFixture, call: int
) -> None:
    step = Step(fails_at={call: RuntimeError("not permitted\nwhile capturing")})
    recorded = CudaGraph(step, name="the step")
    with caplog.at_level(logging.WARNING):
        assert [float(recorded(torch.tensor(given))[0]) for given in (1.0, 5.0)] == [2.0, 6.0]
    assert step.seen == [1.0] * call + [1.0, 5.0]
    assert (card["replays"], card["waited"]) == (0, 1)
    assert [record.message for record in caplog.records] == [
        "CUDA graph capture failed for the step, running without: RuntimeError: not permitted while capturing"
    ]


def test_a_fault_of_the_work_itself_is_raised_as_it_is(card: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    always = CudaGraph(Step(fails_at={number: ValueError("the part itself") for number in range(1, 9)}), name="the step")
    with caplog.at_level(logging.WARNING), pytest.raises(ValueError, match="the part itself"):
        always(torch.tensor(1.0))
    assert not caplog.records


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("full"), RunFailed("scores are not finite")])
def test_errors_that_others_answer_to_pass_through(card: dict[str, Any], error: Exception) -> None:
    step = Step(fails_at={2: error})
    with pytest.raises(type(error)):
        CudaGraph(step, name="the step")(torch.tensor(1.0))
    assert len(step.seen) == 2


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
