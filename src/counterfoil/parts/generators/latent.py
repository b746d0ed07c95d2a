"""Latent ascent: images move in the latent space of an autoencoder, the generator of the FMR paper (Algorithm 1).

Any autoencoder will do that has `encode` and `decode`; one that quantises also has `quantise`. The paper does not say
whether the latent moves before or after quantisation, so that is an option (`space`) and reports print it.
"""

from __future__ import annotations

from copy import copy
from typing import Literal, Protocol, Self, get_args, runtime_checkable

import torch
from torch import Tensor

from counterfoil.core.errors import BadSpec
from counterfoil.parts.contracts import Movable, State, provenance_of

Space = Literal["before", "code"]
"""`before`: the latent moves before quantisation and is quantised at every rendering, with a straight-through gradient.
`code`: the latent is quantised once, at the start, and from there the code itself moves and is decoded as it is."""


@runtime_checkable
class Autoencoder(Protocol):
    """Images to latents and back."""

    def encode(self, images: Tensor) -> Tensor:
        """Latents of images, before any quantisation.  # (N, 3, H, W) in [0, 1] → (N, …)"""
        ...

    def decode(self, latents: Tensor) -> Tensor:
        """Images of latents, or of codes where there is a `quantise`; they may overshoot [0, 1].  # → (N, 3, H, W)"""
        ...


@runtime_checkable
class QuantisedAutoencoder(Autoencoder, Protocol):
    """An autoencoder whose decoder expects codes."""

    def quantise(self, latents: Tensor) -> Tensor:
        """The codes nearest to latents, in the same shape; its own gradient is not used."""
        ...


@runtime_checkable
class RelaxedAutoencoder(QuantisedAutoencoder, Protocol):
    """A quantised autoencoder whose codes do not lie near their latents, so that it has a gradient of its own."""

    def relax(self, latents: Tensor) -> Tensor:
        """A smooth stand-in for the codes, through which their gradient reaches the latents."""
        ...


class LatentGenerator(Movable):
    """Moves images in the latent space of an autoencoder."""

    moving = "latent"
    step_size = 0.03

    def __init__(self, autoencoder: Autoencoder, *, space: Space = "before", size: int | None = None) -> None:
        if space not in get_args(Space):
            raise BadSpec(f"no latent space named {space!r}; space is 'before' or 'code'")
        if space == "code" and not isinstance(autoencoder, QuantisedAutoencoder):
            raise BadSpec(
                f"space='code' needs an autoencoder that quantises, and {type(autoencoder).__name__} does not; use space='before'"
            )
        self.autoencoder, self.space, self.size = autoencoder, space, size

    @torch.no_grad()
    def start(self, images: Tensor, labels: Tensor, seeds: Tensor) -> State:
        """Encode. A step of 1 is the standard deviation of the image's own latent."""
        latent = self.autoencoder.encode(images).float()
        if self.space == "code" and isinstance(self.autoencoder, QuantisedAutoencoder):
            latent = self.autoencoder.quantise(latent)
        return latent_state(latent)

    def render(self, state: State) -> Tensor:
        """Decode.

        The clamp to [0, 1] is straight-through. Decoders overshoot in white and black areas; an ordinary clamp has no
        gradient there, so those pixels would count for nothing in the direction although a longer step moves them.
        """
        decoded = self.autoencoder.decode(self.codes(state["latent"]))
        return straight_through(decoded.clamp(0, 1), decoded)

    def codes(self, latent: Tensor) -> Tensor:
        """The latent that is decoded: the latent itself or, where it moves before quantisation, its codes; cells on their own."""
        if self.space == "code" or not isinstance(self.autoencoder, QuantisedAutoencoder):
            return latent
        codes, carrier = self.autoencoder.quantise(latent.detach()), latent
        if latent.requires_grad and isinstance(self.autoencoder, RelaxedAutoencoder):
            carrier = self.autoencoder.relax(latent)
        return straight_through(codes, carrier)

    def step(self, state: State, signal: Tensor) -> State:
        return {**state, "latent": state["latent"] + signal}

    def accelerate(self, dtype: torch.dtype) -> Self | None:
        """The same with the autoencoder's fast form, if it has one."""
        make = getattr(self.autoencoder, "accelerate", None)
        fast = make(dtype) if make else None
        if fast is None:
            return None
        changed = copy(self)
        changed.autoencoder = fast
        return changed

    def provenance(self) -> dict[str, str]:
        return {**provenance_of(self.autoencoder), "space": self.space}


def latent_state(latent: Tensor) -> State:
    """A latent and the length of a step in it: the standard deviation of the row's own latent, or 1 if it has none."""
    spread = latent.flatten(1).std(dim=1, correction=0)  # (N,)
    return {"latent": latent, "scale": torch.where(spread > 0, spread, 1.0)}


class _StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, value: Tensor, carrier: Tensor) -> Tensor:
        return value.view_as(value)

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> tuple[None, Tensor]:
        return None, gradient


def straight_through(value: Tensor, carrier: Tensor) -> Tensor:
    """`value`, to the last bit, whose gradient goes to `carrier` as if it had been the value. Shapes must agree.

    The usual `carrier + (value - carrier).detach()` rounds, and a reconstruction has to be exact.
    """
    result: Tensor = _StraightThrough.apply(value.detach(), carrier)
    return result


def check_side(side: int, *, factor: int) -> int:
    """The side, if the autoencoder can take it."""
    if side < factor or side % factor:
        raise BadSpec(f"size={side}: {must_divide(factor, side)}")
    return side


def must_divide(factor: int, side: int) -> str:
    """The message about a side that does not divide."""
    below = side // factor * factor
    near = f"{below} or {below + factor}" if below > 0 else f"{factor}"
    return f"this autoencoder needs sides that are multiples of {factor}; use {near}"
