"""Precision, compiler and CUDA graphs of a step, each with a way back that the log names once."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from counterfoil.core.errors import CounterfoilError
from counterfoil.core.spec import EngineSpec, Precision
from counterfoil.parts.fast import dtypes
from counterfoil.parts.weights import modules_of

log = logging.getLogger(__name__)

PIXELS_WORTH_COMPILING = 20 * 10**9  # pixels rendered with a gradient: some eight minutes of an H200
WARM_UP = 3  # calls before a graph is captured: compilers and libraries make up their minds in them

Tensors = tuple[Tensor, ...]


@dataclass(frozen=True)
class Acceleration:
    """Choices that make a step fast. Float32 is left as plain as it can be, on any device."""

    precision: Precision = "float32"
    compile: bool = False  # model and oracle, and the generator where it has no fused layers
    fused: bool = False  # decoders rebuilt from fused layers
    graphs: bool = False  # a step is captured once and replayed

    @classmethod
    def of(cls, layout: EngineSpec, device: torch.device, *, work: int = 0) -> Acceleration:
        """The acceleration that `layout` comes to on this device, for a run that renders `work` pixels in all.

        Below a few minutes of work compiling takes longer than it saves.
        """
        low = device.type == "cuda" and layout.precision != "float32"
        worth = low and work >= PIXELS_WORTH_COMPILING
        return cls(layout.precision, compile=worth if layout.compile is None else layout.compile, fused=low, graphs=low)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype fused layers compute in."""
        return torch.bfloat16 if self.precision == "bf16" else torch.float32

    @contextlib.contextmanager
    def computing(self, device: torch.device, *, low: bool = True) -> Iterator[None]:
        """Compute in the run's precision inside; without `low`, nothing below TF32."""
        with dtypes.computing(self.precision, device, low=low):
            yield

    def deterministic_attention(self) -> contextlib.AbstractContextManager[None]:
        """Attention for gradients: in float32 a plain one, as PyTorch's kernel for that adds them up in no fixed order."""
        return contextlib.nullcontext() if self.precision == "bf16" else sdpa_kernel(SDPBackend.MATH)


class CudaGraph:
    """A function of tensors that always have the same shapes, captured at its first call and then replayed.

    It must do nothing but launch kernels: no number may be read back in it. If it cannot be warmed up or captured it is simply
    called.
    """

    def __init__(self, work: Callable[..., Tensors], *, name: str) -> None:
        self.work, self.name = work, name
        self.graph: torch.cuda.CUDAGraph | None = None
        self.inputs: Tensors = ()
        self.outputs: Tensors = ()
        self.failed = False

    def __call__(self, *given: Tensor) -> Tensors:
        """The results of `work`, in tensors of their own."""
        if self.graph is None and not self.failed:
            problem = self._capture(given)
            if problem:
                return self._give_up(given, problem)
        if self.graph is None:
            return self.work(*given)
        for mine, theirs in zip(self.inputs, given, strict=True):
            mine.copy_(theirs)
        self.graph.replay()
        return tuple(each.clone() for each in self.outputs)

    def _capture(self, given: Tensors) -> str:
        """Warm up and capture; the problem in a line, if there was one."""
        self.inputs = tuple(each.detach().clone() for each in given)
        graph = torch.cuda.CUDAGraph()
        try:
            aside = torch.cuda.Stream()
            aside.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(aside):
                for _ in range(WARM_UP):
                    self.work(*self.inputs)
            torch.cuda.current_stream().wait_stream(aside)
            # Only this thread is held to what capturing allows: others read and write images meanwhile.
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                self.outputs = self.work(*self.inputs)
        except (CounterfoilError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            return f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]
        self.graph = graph
        return ""

    def _give_up(self, given: Tensors, problem: str) -> Tensors:
        """Call the work itself, from here on. What fails then too is no fault of the graph."""
        self.inputs = self.outputs = ()
        torch.cuda.synchronize()
        answer = self.work(*given)
        self.failed = True
        log.warning("CUDA graph capture failed for %s, running without: %s", self.name, problem)
        return answer


def use_channels_last(parts: Iterable[object]) -> None:
    """Lay out convolutions' weights with channels last, which tensor cores want; what goes through them follows."""
    for part in parts:
        for module in modules_of(part):
            if any(weight.dim() == 4 for weight in module.parameters()):
                module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
