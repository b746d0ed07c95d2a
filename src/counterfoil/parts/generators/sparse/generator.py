"""Any generator with most of its coordinates held still.

The search sees the kept coordinates alone: gradients, directions and steps are as long as there are kept ones. A step has the
same Euclidean length as an unmasked one, so a run with and one without a mask go equally far.
"""

from __future__ import annotations

from copy import copy
from typing import Self

import torch
from torch import Tensor

from counterfoil.core.errors import BadSpec
from counterfoil.parts.contracts import Generator, State, provenance_of, to_device
from counterfoil.parts.generators.sparse.mask import Mask


class SparseGenerator:
    """Moves the kept coordinates of another generator's state."""

    moving = "kept"

    def __init__(self, inner: Generator, mask: Mask, *, whole: str = "") -> None:
        """`whole` says why all of the picture is rendered at every step, where somebody tried to do with less."""
        self.inner, self.mask, self.size, self.whole = inner, mask, inner.size, whole
        self.step_size = inner.step_size
        self._indices = mask.indices  # (k,)
        self._stretch = (mask.kept.numel() / len(self._indices)) ** 0.5

    def start(self, images: Tensor, labels: Tensor, seeds: Tensor) -> State:
        """The inner generator's start, with the kept coordinates beside it."""
        state = self.inner.start(images, labels, seeds)
        whole = state[self.inner.moving]
        if whole.shape[1:] != self.mask.kept.shape:
            raise BadSpec(
                f"the mask is for rows of shape {tuple(self.mask.kept.shape)}, and here {self.inner.moving!r} has "
                f"{tuple(whole.shape[1:])}; fit one for this generator and picture size"
            )
        self._indices = self._indices.to(whole.device)
        return {**state, "kept": whole.flatten(1)[:, self._indices], "scale": state["scale"] * self._stretch}

    def render(self, state: State) -> Tensor:
        """The pictures; gradients reach the kept coordinates and no others."""
        return self.inner.render({**state, self.inner.moving: self.filled(state)})

    def filled(self, state: State) -> Tensor:
        """What the inner generator moves, with the kept coordinates where they belong."""
        whole = state[self.inner.moving]
        return whole.flatten(1).index_copy(1, self._indices, state["kept"]).reshape(whole.shape)

    def step(self, state: State, signal: Tensor) -> State:
        """A step of the inner generator along a signal that is zero elsewhere."""
        whole = state[self.inner.moving]
        spread = torch.zeros_like(whole).flatten(1).index_copy(1, self._indices, signal).reshape(whole.shape)
        moved = self.inner.step({**state, "scale": state["scale"] / self._stretch}, spread)
        return {**moved, "kept": moved[self.inner.moving].flatten(1)[:, self._indices], "scale": state["scale"]}

    def accelerated(self, dtype: torch.dtype) -> Self | None:
        """The same over the inner generator's fast form, if it has one."""
        make = getattr(self.inner, "accelerated", None)
        fast = make(dtype) if make else None
        if fast is None:
            return None
        changed = copy(self)
        changed.inner = fast
        return changed

    def to(self, device: torch.device | str) -> Self:
        """Move the inner generator, if it can be moved."""
        self.inner = to_device(self.inner, device)
        return self

    def provenance(self) -> dict[str, str]:
        """The inner generator's account, and the mask's."""
        told = {**provenance_of(self.inner), "mask": self.mask.sha256, "sparsity": f"{self.mask.sparsity:.2f} %"}
        return {**told, "window": f"none: {self.whole}"} if self.whole else told
