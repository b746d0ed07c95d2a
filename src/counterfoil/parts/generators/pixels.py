"""Pixel space: the image itself moves, inside a ball around the source. FGSM and PGD are settings of the search.

With ε the radius of the ball, for the L∞ norm:

    FGSM     generator: {name: "pixels:linf", epsilon: ε}
             search:    {norm: sign, unit: absolute, step: ε, budget: 1}
    PGD      generator: {name: "pixels:linf", epsilon: ε, random_start: true}
             search:    {norm: sign, unit: absolute, step: ε / 4, budget: 20}

and for the L2 norm the same with `pixels:l2` and `norm: l2`. The oracle still has the last word on every image.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from counterfoil.core.errors import BadSpec
from counterfoil.parts import registry
from counterfoil.parts.contracts import Generator, Movable, State, provenance_of
from counterfoil.parts.generators import draws

Norm = Literal["linf", "l2"]
LINF_EPSILON = 8 / 255  # the radius most of the literature uses
L2_EPSILON = 2 / 255  # root-mean-square over the image's values: about 0.44 at 32 pixels and 3 at 224


class PixelGenerator:
    """Moves the pixels themselves, inside an ε-ball around the source and inside [0, 1]."""

    moving = "pixels"
    step_size = 0.002  # half a grey level
    size = None

    def __init__(
        self, norm: Norm = "linf", *, epsilon: float | Literal["auto"] | None = "auto", random_start: bool = False
    ) -> None:
        """`epsilon` None: no ball. `auto`: 8/255 for linf; for l2, a change of 2/255 in every value of the image."""
        if norm not in get_args(Norm):
            raise BadSpec(f"no pixel norm named {norm!r}; use pixels:linf or pixels:l2")
        if epsilon is not None and epsilon != "auto" and not 0 < epsilon < math.inf:
            raise BadSpec(f"epsilon={epsilon}: the radius of the ball is a positive number; use null for no ball")
        if random_start and epsilon is None:
            raise BadSpec("random_start draws from the ball around the source, and epsilon is null; give an epsilon")
        self.norm, self.epsilon, self.random_start = norm, epsilon, random_start

    def start(self, images: Tensor, labels: Tensor, seeds: Tensor) -> State:
        """The source itself, or with `random_start` a point of the ball drawn from the row's seed."""
        pixels = self._inside(images + self._draw(images, seeds), images) if self.random_start else images.clone()
        return {"pixels": pixels, "source": images.clone(), "scale": torch.ones(len(images), device=images.device)}

    def render(self, state: State) -> Tensor:
        return state["pixels"]

    def step(self, state: State, signal: Tensor) -> State:
        """Add the signal, then go back into the ball and into [0, 1]."""
        return {**state, "pixels": self._inside(state["pixels"] + signal, state["source"])}

    def provenance(self) -> dict[str, str]:
        return {"norm": self.norm, "epsilon": str(self.epsilon), "random_start": str(self.random_start)}

    def _inside(self, pixels: Tensor, source: Tensor) -> Tensor:
        radius = self._radius(source)
        if self.norm == "linf":
            pixels = pixels.clamp(source - radius, source + radius)
        elif radius < math.inf:
            change = pixels - source
            length = _length(change)
            pixels = torch.where(length > radius, source + change * (radius / length), pixels)
        # The source lies in [0, 1], so clamping brings every value nearer to it and never out of the ball.
        return pixels.clamp(0, 1)

    def _radius(self, images: Tensor) -> float:
        if self.epsilon is None:
            return math.inf
        if self.epsilon == "auto":
            return LINF_EPSILON if self.norm == "linf" else L2_EPSILON * math.sqrt(images[0].numel())
        return self.epsilon

    def _draw(self, images: Tensor, seeds: Tensor) -> Tensor:
        """A point drawn evenly from the ball.  # (N, 3, H, W)"""
        radius, shape = self._radius(images), images.shape[1:]
        if self.norm == "linf":
            return (draws.uniform(seeds, "linf start", *shape) * 2 - 1) * radius
        towards = draws.normal(seeds, "l2 start", *shape)
        length = draws.uniform(seeds, "l2 radius", 1, 1, 1).pow(1 / images[0].numel()) * radius
        return towards * (length / _length(towards))


def pixels(rest: str, *, epsilon: float | str | None = "auto", random_start: bool = False) -> PixelGenerator:
    """Pixel space, `linf` (default) or `l2`: steps inside an ε-ball around the source; FGSM and PGD are settings.

    `epsilon` may be written as a fraction, as in 8/255; null means no ball.
    """
    norm = rest or "linf"
    return PixelGenerator(norm, epsilon=_number(epsilon), random_start=random_start)  # type: ignore[arg-type]


def _length(rows: Tensor) -> Tensor:
    lengths: Tensor = torch.linalg.vector_norm(rows, dim=(1, 2, 3), keepdim=True)
    return lengths


def _number(epsilon: float | str | None) -> float | Literal["auto"] | None:
    if epsilon is None or epsilon == "auto":
        return epsilon  # type: ignore[return-value]
    try:
        return float(Fraction(epsilon.replace(" ", ""))) if isinstance(epsilon, str) else float(epsilon)
    except (ValueError, ZeroDivisionError, TypeError):
        raise BadSpec(
            f"epsilon={epsilon!r}: write a number such as 0.03, a fraction such as 8/255, or null for no ball"
        ) from None


class ReconstructGenerator(Movable):
    """Moves pixels, and puts every moved image through another generator's plain reconstruction, without its gradient.

    The cheap relative of latent ascent that discrete adversarial training uses (Mao et al., 2022): what comes of a step is
    reconstructed again, which leaves of it only what the other generator can express. With one Euclidean step, as published:

        generator: reconstruct:vqgan:logs/vqgan_imagenet_f16_16384
        search:    {norm: l2, unit: absolute, step: 0.1, budget: 1}
    """

    moving = "pixels"
    step_size = 0.002  # half a grey level

    def __init__(self, inner: Generator) -> None:
        self.inner, self.size = inner, inner.size

    def start(self, images: Tensor, labels: Tensor, seeds: Tensor) -> State:
        """The plain reconstructions."""
        return {
            "pixels": self._reconstruct(images, labels, seeds),
            "label": labels.clone(),
            "seed": seeds.clone(),
            "scale": torch.ones(len(images), device=images.device),
        }

    def render(self, state: State) -> Tensor:
        return state["pixels"]

    def step(self, state: State, signal: Tensor) -> State:
        moved = (state["pixels"] + signal).clamp(0, 1)
        return {**state, "pixels": self._reconstruct(moved, state["label"], state["seed"])}

    def provenance(self) -> dict[str, str]:
        return {"reconstructs": type(self.inner).__name__, **provenance_of(self.inner)}

    @torch.no_grad()
    def _reconstruct(self, images: Tensor, labels: Tensor, seeds: Tensor) -> Tensor:
        return self.inner.render(self.inner.start(images, labels, seeds)).float()


def reconstruct(rest: str, **options: Any) -> ReconstructGenerator:
    """Reconstruct, one step in pixels, reconstruct again: reconstruct:vqgan:PATH, without gradients through the autoencoder.

    `rest` names any other generator and the options are that one's.
    """
    if not rest:
        raise BadSpec("reconstruct: name the generator that reconstructs, as in reconstruct:autoencoder:FOLDER")
    return ReconstructGenerator(registry.create("generator", rest, options))
