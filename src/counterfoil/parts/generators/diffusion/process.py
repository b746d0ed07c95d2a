"""The arithmetic of diffusion: what noise does to a picture, and how a network's guess is read (Ho et al., 2020).

A noisy picture is √a · clean + √(1 − a) · noise, where a, the share of the signal that is left, falls with time. Pictures
are in [-1, 1]. A network guesses the noise, the clean picture, or the mixture of both called v; from any of them and the
noisy picture the other two follow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, Self, get_args

import torch
from torch import Tensor

from counterfoil.core.errors import BadPart, BadSpec
from counterfoil.parts.generators.straight import straight_through

Prediction = Literal["epsilon", "sample", "v_prediction"]


@dataclass(frozen=True)
class Process:
    """How a network was trained: the signal left at each time, what it guesses, and the range of clean pictures."""

    kept: Tensor  # (T,) float32, falling from about 1
    prediction: Prediction = "epsilon"
    limit: float | None = 1.0  # guesses of clean pictures are cut to ±limit

    def __post_init__(self) -> None:
        if self.prediction not in get_args(Prediction):
            raise BadPart(f"a network that predicts {self.prediction!r}: it has to be one of {', '.join(get_args(Prediction))}")

    def split(self, guess: Tensor, noisy: Tensor, kept: Tensor) -> tuple[Tensor, Tensor]:
        """The clean picture and the noise that a guess makes of a noisy picture.  # (N, 3, H, W) twice, (N, 1, 1, 1)"""
        signal, spread = kept.sqrt(), (1 - kept).sqrt()
        if self.prediction == "epsilon":
            clean = (noisy - spread * guess) / signal
        elif self.prediction == "v_prediction":
            clean = signal * noisy - spread * guess
        else:
            clean = guess
        if self.limit is not None:
            clean = straight_through(clean.clamp(-self.limit, self.limit), clean)
        return clean, (noisy - signal * clean) / spread


def mix(clean: Tensor, noise: Tensor, kept: Tensor) -> Tensor:
    """A clean picture and noise at the level where `kept` of the signal is left.  # kept: (N, 1, 1, 1)"""
    return kept.sqrt() * clean + (1 - kept).sqrt() * noise


class Denoiser(Protocol):
    """A trained network with the process it was trained for."""

    process: Process
    size: int
    """Side of its pictures."""
    classes: int | None
    """How many classes it is told apart by, or None if it knows of none."""

    def guess(self, noisy: Tensor, times: Tensor, classes: Tensor) -> Tensor:
        """What the network says of noisy pictures.  # (N, 3, H, W), (N,) int64, (N,) int64 → (N, 3, H, W)"""
        ...

    def to(self, device: torch.device | str) -> Self:
        """Move the network."""
        ...

    def provenance(self) -> dict[str, str]:
        """Where the numbers come from."""
        ...


@dataclass(frozen=True)
class Ladder:
    """The noise levels that pictures are taken down by, the noisiest first."""

    times: Tensor  # (S,) int64
    kept: Tensor  # (S,) float32

    @classmethod
    def down_from(cls, strength: float, steps: int, process: Process) -> Ladder:
        """`steps` levels, even in time, from where the noise has the standard deviation `strength`."""
        if not 0 < strength < 1:
            raise BadSpec(f"strength={strength}: the share of noise at the start lies between 0 and 1, both excluded")
        if steps < 1:
            raise BadSpec(f"steps={steps}: denoising takes at least one step")
        top = int(((1 - process.kept).sqrt() - strength).abs().argmin())
        if steps > top + 1:
            raise BadSpec(f"steps={steps}: strength {strength} is only {top + 1} of the network's own steps up; take fewer")
        times = torch.tensor([round((top + 1) * (steps - step) / steps) - 1 for step in range(steps)])
        return cls(times, process.kept[times])

    @property
    def last(self) -> int:
        """The number of the level with the least noise."""
        return len(self.times) - 1

    def to(self, device: torch.device | str) -> Ladder:
        """The same levels on another device."""
        return Ladder(self.times.to(device), self.kept.to(device))

    def kept_at(self, level: Tensor) -> Tensor:
        """The share of the signal left at levels, shaped to broadcast over pictures.  # (N,) → (N, 1, 1, 1)"""
        return self.kept[level].reshape(-1, 1, 1, 1)
