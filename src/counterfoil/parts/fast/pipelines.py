"""A pipeline of diffusers on a device, made fast there."""

from __future__ import annotations

import contextlib
import inspect
from typing import Any

import torch
from torch import nn

from counterfoil.parts import weights
from counterfoil.parts.fast import dtypes
from counterfoil.parts.fast.unets import BY_DEVICE, AcceleratedPipeline


class PlacedPipeline:
    """A pipeline on a device, with denoiser and decoder made fast there.

    Without `dtype` networks compute in float32 on a CPU, and in bfloat16 on a GPU that has it.
    """

    def __init__(self, pipeline: Any, dtype: str | None = None, *, compiled: bool = False) -> None:
        self.pipeline = pipeline
        self.takes = dict(inspect.signature(pipeline.__call__).parameters)  # the arguments of a call, by name
        self.dtype, self.compiled = dtype, compiled
        self._fast: AcceleratedPipeline | None = None
        pipeline.set_progress_bar_config(disable=True)

    def __call__(self, **settings: Any) -> Any:
        """Call the pipeline; float32 is float32 only where it was asked for."""
        with dtypes.computing("float32" if self.dtype == "float32" else "bf16", self.device, low=False):
            return self.pipeline(output_type="pt", **settings)

    @property
    def device(self) -> torch.device:
        """The device of the networks."""
        return torch.device(self.pipeline.device)

    def place(self, device: str | torch.device) -> None:
        """Move the networks to a device."""
        target = torch.device(device)
        if self._fast is not None:
            self._fast.undo()
            self._fast = None
        dtype = dtypes.dtype_for(self.dtype, target)
        if target.type == "cuda" and dtype != torch.float32:
            self._fast = AcceleratedPipeline(self.pipeline, dtype, device=target, compiled=self.compiled)
        self.pipeline.to(target)

    def provenance(self) -> dict[str, str]:
        """Classes, precision, and the weights of every network."""
        import diffusers

        networks = {name: part for name, part in self.pipeline.components.items() if isinstance(part, nn.Module)}
        with contextlib.nullcontext() if self._fast is None else self._fast.originals():
            hashes = {f"weights {name}": weights.fingerprint(part) for name, part in sorted(networks.items())}
        return {
            "library": f"diffusers {diffusers.__version__}",
            "pipeline": type(self.pipeline).__name__,
            "scheduler": type(self.pipeline.scheduler).__name__,
            "precision": self.dtype or BY_DEVICE,
            **hashes,
        }
