"""CUDA graphs: a step is recorded once and then replayed, without the time it takes to launch every kernel."""

from __future__ import annotations

import logging
from collections.abc import Callable

import torch
from torch import Tensor

from counterfoil.core.errors import CounterfoilError

log = logging.getLogger(__name__)

WARM_UP = 3  # calls before recording: compilers and libraries make up their minds in them

Tensors = tuple[Tensor, ...]


class Recorded:
    """A function of tensors that always have the same shapes, replayed from its second use on.

    It must do nothing but launch kernels: no number may be read back in it. If it cannot be warmed up or recorded it is simply
    called, and the log says so once.
    """

    def __init__(self, work: Callable[..., Tensors], *, name: str) -> None:
        self.work, self.name = work, name
        self.graph: torch.cuda.CUDAGraph | None = None
        self.inputs: Tensors = ()
        self.outputs: Tensors = ()
        self.failed = False

    def __call__(self, *given: Tensor) -> Tensors:
        """What `work` gives, in tensors of their own."""
        if self.graph is None and not self.failed:
            problem = self._record(given)
            if problem:
                return self._unrecorded(given, problem)
        if self.graph is None:
            return self.work(*given)
        for mine, theirs in zip(self.inputs, given, strict=True):
            mine.copy_(theirs)
        self.graph.replay()
        return tuple(each.clone() for each in self.outputs)

    def _record(self, given: Tensors) -> str:
        """Warm up and record; in a line what was in the way, if anything was."""
        self.inputs = tuple(each.detach().clone() for each in given)
        graph = torch.cuda.CUDAGraph()
        try:
            aside = torch.cuda.Stream()
            aside.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(aside):
                for _ in range(WARM_UP):
                    self.work(*self.inputs)
            torch.cuda.current_stream().wait_stream(aside)
            # Only this thread is held to what recording allows: others read and write pictures meanwhile.
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                self.outputs = self.work(*self.inputs)
        except (CounterfoilError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            return f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]
        self.graph = graph
        return ""

    def _unrecorded(self, given: Tensors, problem: str) -> Tensors:
        """The work itself, from here on. What fails then too is no fault of the recording."""
        self.inputs = self.outputs = ()
        torch.cuda.synchronize()
        answer = self.work(*given)
        self.failed = True
        log.warning("%s is not recorded as a CUDA graph: %s", self.name, problem)
        return answer
