"""A masked search that only decodes what it moves: the kept cells' window, pasted into the reconstruction.

What the search sees, what the oracle judges and what is stored is the pasted picture; no whole decode follows. Around the window
the picture is the reconstruction, pixel for pixel.
"""

from __future__ import annotations

from copy import copy
from typing import Any, Self

import torch
from torch import Tensor

from counterfoil.core.errors import BadSpec, one_line
from counterfoil.parts.contracts import Generator, State
from counterfoil.parts.generators.latent import LatentGenerator, straight_through
from counterfoil.parts.generators.sparse import box as boxes
from counterfoil.parts.generators.sparse.generator import SparseGenerator
from counterfoil.parts.generators.sparse.mask import Mask
from counterfoil.parts.generators.sparse.submodel import CannotCrop, Submodel

WORTH = 0.9  # of the cells; with a larger window nothing is gained


class WindowedGenerator(SparseGenerator):
    """Moves the kept coordinates of a latent and decodes their window alone."""

    def __init__(self, inner: LatentGenerator, mask: Mask) -> None:
        """Raises CannotCrop where the decoder cannot be run on a window, or the window is nearly everything."""
        super().__init__(inner, mask)
        shape = mask.kept.shape
        if len(shape) != 3:
            raise CannotCrop(f"the mask has the shape {tuple(shape)}, not one of channels, rows and columns")
        self.latents, self.grid = inner, (shape[1], shape[2])
        self.moved = boxes.around(mask.kept.any(0))
        self.window = self.moved.grown(mask.halo, grid=self.grid)
        if self.share > WORTH:
            raise CannotCrop(f"the kept coordinates lie in a window of {100 * self.share:.0f} % of the picture")
        self.submodel: Any = Submodel(inner.autoencoder, shape, self.window)

    @property
    def share(self) -> float:
        """The window's part of the picture."""
        return self.window.area / (self.grid[0] * self.grid[1])

    def start(self, images: Tensor, labels: Tensor, seeds: Tensor) -> State:
        """The masked start, with the reconstruction and what the window needs of it."""
        state = super().start(images, labels, seeds)
        codes = self.latents.codes(state["latent"])
        picture, surroundings = self.submodel.record(codes)
        return {**state, "codes": codes, "picture": picture, "surroundings": surroundings}

    def render(self, state: State) -> Tensor:
        """The reconstruction with the window drawn anew; gradients reach the kept coordinates and no others."""
        moved = self.latents.codes(self.moved.cut(self.filled(state), grid=self.grid))
        codes = self.moved.paste(moved, state["codes"], grid=self.grid)
        window = self.submodel.decode(codes, state["surroundings"])
        decoded = self.window.paste(window, state["picture"], grid=self.grid)
        return straight_through(decoded.clamp(0, 1), decoded)

    def accelerated(self, dtype: torch.dtype) -> Self | None:
        """The same with fused layers for the window too; None where one of its layers is not known."""
        from counterfoil.parts.fast import windows

        autoencoder: Any = self.latents.autoencoder
        inner = self.latents.accelerated(dtype)
        fast = None if inner is None else windows.build(autoencoder.network, dtype, self.window)
        if inner is None or fast is None:
            return None
        changed = copy(self)
        changed.inner = changed.latents = inner
        changed.submodel = windows.FastSubmodel(self.submodel, fast)
        return changed

    def provenance(self) -> dict[str, str]:
        """The masked generator's account, and the window."""
        box = self.window
        where = (
            f"rows {box.top} to {box.bottom - 1}, columns {box.left} to {box.right - 1} of {self.grid[0]} × {self.grid[1]} cells"
        )
        return {**super().provenance(), "window": f"{where}, {100 * self.share:.0f} % of the picture"}


def masked(generator: Generator, mask: Mask) -> SparseGenerator:
    """The generator held to a mask, decoding only a window where it can."""
    if not isinstance(generator, LatentGenerator):
        return SparseGenerator(generator, mask)
    try:
        return WindowedGenerator(generator, mask)
    except CannotCrop as reason:
        return SparseGenerator(generator, mask, whole=str(reason))
    except RuntimeError as error:  # a latent of the mask's shape does not go through the decoder
        raise BadSpec(
            f"the mask is for rows of shape {tuple(mask.kept.shape)}, which this generator cannot decode "
            f"({one_line(error)}); fit one for this generator and picture size"
        ) from None
