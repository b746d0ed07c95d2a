"""Stands in for a sparse search's submodel with one of fast layers, after the two parts of its picture were seen to fit."""

from __future__ import annotations

import logging

import torch
from torch import Tensor

from counterfoil.core.errors import CounterfoilError, one_line
from counterfoil.parts.fast.windows import WindowedDecoder
from counterfoil.parts.generators.sparse.submodel import Submodel

log = logging.getLogger(__name__)

TOLERANCE = {torch.float32: 0.01, torch.bfloat16: 0.1}
"""How far the window may be from that of the whole picture, relative to it. Rounding stays well below, TF32's included; an edge
or a scale that is missing does not."""


class FastSubmodel:
    """A submodel by fast layers, or by the network's own where those fail; the log says so once."""

    def __init__(self, plain: Submodel, fast: WindowedDecoder) -> None:
        self.plain, self.tried = plain, False
        self.fast: WindowedDecoder | None = fast

    @torch.no_grad()
    def record(self, latents: Tensor) -> tuple[Tensor, Tensor]:
        """The whole pictures, and what their windows will need of them.  # (N, C, h, w) → (N, 3, H, W), (N, L)"""
        if not self.tried:
            self._try(latents)
        if self.fast is None:
            return self.plain.record(latents)
        pictures, notes = self.fast.record(latents)
        return (pictures + 1) / 2, notes

    def decode(self, latents: Tensor, surroundings: Tensor) -> Tensor:
        """The windows' parts of the pictures of whole latents.  # (N, C, h, w), (N, L) → (N, 3, window)"""
        if self.fast is None:
            return self.plain.decode(latents, surroundings)
        return (self.fast(latents, surroundings) + 1) / 2

    def _try(self, latents: Tensor) -> None:
        """Before anything has moved, the window is that of the whole picture; a gradient is taken to see that it can be."""
        assert self.fast is not None
        try:
            pictures, notes = self.fast.record(latents)
            with torch.enable_grad():
                leaf = latents.detach().requires_grad_()
                window = self.fast(leaf, notes)
                slope = torch.autograd.grad(window.sum(), leaf)[0]
            wanted = self.plain.around.cut(pictures)
            apart = float((window - wanted).norm() / wanted.norm())
            sound = apart <= TOLERANCE[self.fast.whole.kind] and bool(slope.isfinite().all())
            reason = "" if sound else f"their window is {apart:.2g} off that of the whole picture, or has no finite gradient"
        except (CounterfoilError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            reason = one_line(error)
        self.tried = True
        if reason:
            self.fast = None
            log.warning("the window is decoded by the network's own layers and not by fused ones: %s", reason)
