"""Recording a step: replayed where that works, and simply called, with a line in the log, where it does not."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from counterfoil.core.errors import RunFailed
from counterfoil.parts.fast.graphs import WARM_UP, Recorded


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
    """What recording asks of a GPU, on a CPU: a replay computes the outputs again from the inputs that were recorded with."""
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
    card["recorded"] = recorded = Recorded(step, name="the step")
    first, second = recorded(torch.tensor(1.0))[0], recorded(torch.tensor(5.0))[0]
    assert (float(first), float(second)) == (2.0, 6.0)  # the second has not overwritten the first
    assert step.seen == [1.0] * (WARM_UP + 1)
    assert card["replays"] == 2


@pytest.mark.parametrize("call", [1, WARM_UP, WARM_UP + 1])  # of the warm-up, of its end, of the recording
def test_what_cannot_be_recorded_is_called_and_the_log_says_so_once(
    card: dict[str, Any], caplog: pytest.LogCaptureFixture, call: int
) -> None:
    step = Step(fails_at={call: RuntimeError("not permitted\nwhile capturing")})
    recorded = Recorded(step, name="the step")
    with caplog.at_level(logging.WARNING):
        assert [float(recorded(torch.tensor(given))[0]) for given in (1.0, 5.0)] == [2.0, 6.0]
    assert step.seen == [1.0] * call + [1.0, 5.0]
    assert (card["replays"], card["waited"]) == (0, 1)
    assert [record.message for record in caplog.records] == [
        "the step is not recorded as a CUDA graph: RuntimeError: not permitted while capturing"
    ]


def test_a_fault_of_the_work_itself_is_raised_as_it_is(card: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    always = Recorded(Step(fails_at={number: ValueError("the part itself") for number in range(1, 9)}), name="the step")
    with caplog.at_level(logging.WARNING), pytest.raises(ValueError, match="the part itself"):
        always(torch.tensor(1.0))
    assert not caplog.records


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("full"), RunFailed("scores are not finite")])
def test_errors_that_others_answer_to_pass_through(card: dict[str, Any], error: Exception) -> None:
    step = Step(fails_at={2: error})
    with pytest.raises(type(error)):
        Recorded(step, name="the step")(torch.tensor(1.0))
    assert len(step.seen) == 2
