"""Search held to some dimensions of what a generator moves, and where possible decoding only the window they lie in.

The search sees the kept coordinates alone: gradients, directions and steps are as long as there are kept ones. A step has the
same Euclidean length as an unmasked one, so a run with and one without a mask go equally far. A mask is FILE.safetensors with
FILE.json next to it for people.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from counterfoil.core.errors import BadSpec, BadWeights, one_line
from counterfoil.core.tables import read_json
from counterfoil.parts import weights
from counterfoil.parts.contracts import Generator, Movable, State, provenance_of
from counterfoil.parts.fast.window import NoWindow, WindowDecoder, bounding_box
from counterfoil.parts.generators.latent import LatentGenerator, straight_through

_NAME = "kept"
_HALO = "halo"


@dataclass(frozen=True)
class Mask:
    """The coordinates that move, in the shape of one row of what moves."""

    kept: Tensor  # (…) bool
    about: Mapping[str, Any] = field(default_factory=dict)  # how it was fitted
    halo: int = 0  # cells around the kept ones that are decoded with them, where only a window is decoded

    @property
    def sparsity(self) -> float:
        """The per cent of coordinates that stay where they are."""
        return 100 * (1 - float(self.kept.float().mean()))

    @property
    def indices(self) -> Tensor:
        """The kept coordinates of a flattened row.  # (k,) int64"""
        return self.kept.flatten().nonzero()[:, 0]

    @property
    def sha256(self) -> str:
        """A hash of which coordinates are kept, and of the halo where there is one."""
        shape = "×".join(map(str, self.kept.shape)) + (f"+{self.halo}" if self.halo else "")
        return hashlib.sha256(shape.encode() + self.kept.to(torch.uint8).numpy().tobytes()).hexdigest()


def save_mask(mask: Mask, file: Path) -> Path:
    """Write the mask and what is known of it."""
    from safetensors.torch import save_file

    file = file if file.suffix == ".safetensors" else file.with_name(f"{file.name}.safetensors")
    file.parent.mkdir(parents=True, exist_ok=True)
    save_file({_NAME: mask.kept.to(torch.uint8).contiguous(), _HALO: torch.tensor([mask.halo])}, file)
    counted = {"shape": list(mask.kept.shape), "kept": int(mask.kept.sum()), "sparsity": mask.sparsity, "halo": mask.halo}
    about = {**counted, **mask.about}
    file.with_suffix(".json").write_text(json.dumps(about, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return file


def load_mask(file: str | Path) -> Mask:
    """Read a mask; refused if it keeps nothing or is something else."""
    path = Path(file).expanduser()
    tensors = weights.load_state(path)
    kept = tensors.get(_NAME)
    if kept is None:
        raise BadWeights(f"mask {path}: holds {', '.join(sorted(tensors)) or 'nothing'}, not a tensor named {_NAME!r}")
    if kept.numel() == 0 or not bool(kept.bool().any()):
        raise BadWeights(f"mask {path}: keeps no coordinate, so nothing could move; fit it with a weaker regularisation")
    beside = path.with_suffix(".json")
    about = read_json(beside) if beside.is_file() else {}
    return Mask(kept.bool(), about, int(tensors[_HALO].max()) if _HALO in tensors else 0)


class MaskedGenerator(Movable):
    """Moves the kept coordinates of another generator's state."""

    moving = "kept"
    reads_back = False

    def __init__(self, inner: Generator, mask: Mask, *, no_window: str = "") -> None:
        """`no_window` says why the whole image is rendered at every step."""
        self.inner, self.mask, self.size, self.no_window = inner, mask, inner.size, no_window
        self.step_size = inner.step_size
        self._indices = mask.indices  # (k,)
        self._stretch = (mask.kept.numel() / len(self._indices)) ** 0.5

    def start(self, images: Tensor, labels: Tensor, seeds: Tensor) -> State:
        """The inner generator's start, together with the kept coordinates."""
        state = self.inner.start(images, labels, seeds)
        whole = state[self.inner.moving]
        if whole.shape[1:] != self.mask.kept.shape:
            raise BadSpec(
                f"the mask is for rows of shape {tuple(self.mask.kept.shape)}, and here {self.inner.moving!r} has "
                f"{tuple(whole.shape[1:])}; fit one for this generator and image size"
            )
        self._indices = self._indices.to(whole.device)
        return {**state, "kept": whole.flatten(1)[:, self._indices], "scale": state["scale"] * self._stretch}

    def render(self, state: State) -> Tensor:
        """The images; gradients reach the kept coordinates and no others."""
        return self.inner.render({**state, self.inner.moving: self.fill(state)})

    def fill(self, state: State) -> Tensor:
        """The inner generator's moving tensor, with the kept coordinates where they belong."""
        whole = state[self.inner.moving]
        return whole.flatten(1).index_copy(1, self._indices, state["kept"]).reshape(whole.shape)

    def step(self, state: State, signal: Tensor) -> State:
        """A step of the inner generator along a signal that is zero elsewhere."""
        whole = state[self.inner.moving]
        spread = torch.zeros_like(whole).flatten(1).index_copy(1, self._indices, signal).reshape(whole.shape)
        moved = self.inner.step({**state, "scale": state["scale"] / self._stretch}, spread)
        return {**moved, "kept": moved[self.inner.moving].flatten(1)[:, self._indices], "scale": state["scale"]}

    def accelerate(self, dtype: torch.dtype) -> Self | None:
        make = getattr(self.inner, "accelerate", None)
        fast = make(dtype) if make else None
        if fast is None:
            return None
        changed = copy(self)
        changed.inner, changed.reads_back = fast, getattr(fast, "reads_back", False)
        return changed

    def provenance(self) -> dict[str, str]:
        found = {**provenance_of(self.inner), "mask": self.mask.sha256, "sparsity": f"{self.mask.sparsity:.2f} %"}
        return {**found, "window": f"none: {self.no_window}"} if self.no_window else found


WORTH = 0.9  # of the cells; with a larger window nothing is gained


class WindowGenerator(MaskedGenerator):
    """Moves the kept coordinates of a latent and decodes their window alone.

    The window is pasted into the reconstruction: what the search sees, what the oracle judges and what is stored is that image.
    """

    inner: LatentGenerator

    def __init__(self, inner: LatentGenerator, mask: Mask) -> None:
        """Raises NoWindow where the decoder cannot be run on a window, or the window is nearly everything."""
        super().__init__(inner, mask)
        shape = mask.kept.shape
        if len(shape) != 3:
            raise NoWindow(f"the mask has the shape {tuple(shape)}, not one of channels, rows and columns")
        self.grid = (shape[1], shape[2])
        self.moved = bounding_box(mask.kept.any(0))
        self.window = self.moved.dilate(mask.halo, grid=self.grid)
        if self.share > WORTH:
            raise NoWindow(f"the kept coordinates lie in a window of {100 * self.share:.0f} % of the image")
        self.decoder = self._decoder(torch.float32)

    @property
    def share(self) -> float:
        """The window's part of the image."""
        return self.window.area / (self.grid[0] * self.grid[1])

    def _decoder(self, dtype: torch.dtype) -> WindowDecoder:
        make = getattr(self.inner.autoencoder, "window", None)
        if make is None:
            raise NoWindow("its autoencoder decodes whole images only")
        decoder: WindowDecoder = make(self.window, self.mask.kept.shape, dtype)
        return decoder

    def start(self, images: Tensor, labels: Tensor, seeds: Tensor) -> State:
        """The masked start, with the reconstruction and what the window needs of it."""
        state = super().start(images, labels, seeds)
        codes = self.inner.codes(state["latent"])
        reconstruction, recorded = self.decoder.record(codes)
        return {**state, "codes": codes, "reconstruction": reconstruction, "recorded": recorded}

    def render(self, state: State) -> Tensor:
        """The reconstruction with the window drawn again; gradients reach the kept coordinates and no others."""
        moved = self.inner.codes(self.moved.cut(self.fill(state), grid=self.grid))
        codes = self.moved.paste(moved, state["codes"], grid=self.grid)
        window = self.decoder(codes, state["recorded"])
        decoded = self.window.paste(window, state["reconstruction"], grid=self.grid)
        return straight_through(decoded.clamp(0, 1), decoded)

    def accelerate(self, dtype: torch.dtype) -> Self | None:
        """The same with a window and an encoder of fused layers; None where one of its layers is not known."""
        fast = super().accelerate(dtype)
        if fast is not None:
            fast.decoder = self._decoder(dtype)
        return fast

    def to(self, device: torch.device | str) -> Self:
        super().to(device)
        self.decoder = self._decoder(torch.float32)
        return self

    def provenance(self) -> dict[str, str]:
        box = self.window
        where = (
            f"rows {box.top} to {box.bottom - 1}, columns {box.left} to {box.right - 1} of {self.grid[0]} × {self.grid[1]} cells"
        )
        return {**super().provenance(), "window": f"{where}, {100 * self.share:.0f} % of the image"}


def mask_generator(generator: Generator, mask: Mask) -> MaskedGenerator:
    """The generator held to a mask, decoding only a window where it can."""
    if not isinstance(generator, LatentGenerator):
        return MaskedGenerator(generator, mask)
    try:
        return WindowGenerator(generator, mask)
    except NoWindow as reason:
        return MaskedGenerator(generator, mask, no_window=str(reason))
    except RuntimeError as error:  # a latent of the mask's shape does not go through the decoder
        raise BadSpec(
            f"the mask is for rows of shape {tuple(mask.kept.shape)}, which this generator cannot decode "
            f"({one_line(error)}); fit one for this generator and image size"
        ) from None
