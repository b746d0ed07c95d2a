"""Latent ascent in a network that makes images of latents and has no encoder: a GAN, or a hierarchical VAE; `python:` generators.

An image is first inverted: starting from the best of a few latents drawn from the image's seed, gradient descent
(Adam) looks for the latent whose image is nearest to it, compared at several scales. From there the latent climbs as
in any other autoencoder. How well an image can be inverted decides what the plain reconstruction looks like.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from counterfoil.core.errors import BadPart, BadSpec
from counterfoil.parts import weights
from counterfoil.parts.contracts import Generator, Movable, State, provenance_of
from counterfoil.parts.generators import draws
from counterfoil.parts.generators.latent import Autoencoder, LatentGenerator, latent_state, straight_through
from counterfoil.parts.registry import prepare_call


@runtime_checkable
class LatentModule(Protocol):
    """A network that makes images from a latent.

    It may also have `size`, the side of its images; `prior(noise)`, which turns standard normal noise of the latent's
    shape into latents, where they are not standard normal themselves; and `encode(images)`, a first guess of the latent.
    """

    latent_shape: Sequence[Any]
    """The shape of one latent, as in (512,); or several shapes, as in [(16, 8, 8), (16, 4, 4)] for a hierarchy."""

    def decode(self, latents: Any) -> Tensor:
        """Images in [0, 1] of latents: of a tensor, or of a list of them where there are several shapes.  # → (N, 3, H, W)"""
        ...


@dataclass(frozen=True)
class InversionSettings:
    """Options of the inversion."""

    steps: int = 200
    learning_rate: float = 0.05
    candidates: int = 16  # latents drawn, of which the best is the start
    anchor: float = 0.0  # weight of the mean square of the latent, which keeps it near the middle of a normal prior

    def __post_init__(self) -> None:
        if self.steps < 0 or self.candidates < 1:
            raise BadSpec(f"inversion: steps={self.steps} and candidates={self.candidates} must be at least 0 and 1")
        if not (self.learning_rate > 0 and self.anchor >= 0):
            raise BadSpec(f"inversion: learning_rate={self.learning_rate} must be positive, anchor={self.anchor} not negative")


class InvertedGenerator(Movable):
    """Moves images in the latent space of a network, after finding them there."""

    moving = "latent"
    step_size = 0.03

    def __init__(
        self, module: LatentModule, inversion: InversionSettings | None = None, *, provenance: dict[str, str] | None = None
    ) -> None:
        if isinstance(module, nn.Module):
            module.eval().requires_grad_(False)
        self.module, self.inversion = module, inversion or InversionSettings()
        self.shapes = _shapes(module.latent_shape)
        self.size: int | None = getattr(module, "size", None)
        self._provenance = provenance or {}

    def start(self, images: Tensor, labels: Tensor, seeds: Tensor) -> State:
        """Invert. A step of 1 is the standard deviation of the image's own latent."""
        return latent_state(self.invert(images, labels, seeds))

    def render(self, state: State) -> Tensor:
        decoded = self._decode(state["latent"])
        return straight_through(decoded.clamp(0, 1), decoded)

    def step(self, state: State, signal: Tensor) -> State:
        return {**state, "latent": state["latent"] + signal}

    def provenance(self) -> dict[str, str]:
        return {**self._provenance, **provenance_of(self.module), "inversion": repr(self.inversion)}

    def invert(self, images: Tensor, labels: Tensor, seeds: Tensor) -> Tensor:
        """The latents whose images are nearest, of all that were tried.  # (N, 3, H, W), (N,), (N,) → (N, …)"""
        with torch.no_grad():
            guesses = self.guesses(images, labels, seeds)
            best = next(guesses)
            distance = self._distance(best, images)
            for guess in guesses:
                best, distance = _nearer(best, distance, guess, self._distance(guess, images))
        latent, total = best.clone().requires_grad_(), self.inversion.steps
        descent = torch.optim.Adam([latent], lr=self.inversion.learning_rate)
        for step in range(total):
            descent.param_groups[0]["lr"] = self.inversion.learning_rate * (1 + math.cos(math.pi * step / total)) / 2
            with torch.enable_grad():
                here = self._distance(latent, images)
                gradient = torch.autograd.grad(here.sum(), latent)[0]
            best, distance = _nearer(best, distance, latent.detach(), here.detach())
            latent.grad = gradient
            descent.step()
        with torch.no_grad():
            return _nearer(best, distance, latent.detach(), self._distance(latent, images))[0]

    def guesses(self, images: Tensor, labels: Tensor, seeds: Tensor) -> Iterator[Tensor]:
        """Latents drawn from the prior, and the network's own guess if it makes one."""
        prior, encode = getattr(self.module, "prior", None), getattr(self.module, "encode", None)
        for number in range(self.inversion.candidates):
            noise = [draws.normal(seeds, f"latent {number} {index}", *shape) for index, shape in enumerate(self.shapes)]
            yield self._join(noise if prior is None else prior(self._as_network_input(noise)))
        if encode is not None:
            yield self._join(encode(images))

    def _distance(self, latent: Tensor, images: Tensor) -> Tensor:
        """Distance of the latents' images from the images, and the latents from the middle.  # → (N,)"""
        difference = self._decode(latent) - images
        total = difference.square().mean((1, 2, 3))
        while min(difference.shape[-2:]) >= 8:  # coarser and coarser: large shapes have to fit before their details
            difference = F.avg_pool2d(difference, 2)
            total = total + difference.square().mean((1, 2, 3))
        return total + self.inversion.anchor * latent.flatten(1).square().mean(1)

    def _decode(self, latent: Tensor) -> Tensor:
        return self.module.decode(self._as_network_input(self._split(latent))).float()

    def _as_network_input(self, parts: list[Tensor]) -> Any:
        """Latents as the network knows them."""
        return parts if isinstance(self.module.latent_shape[0], Sequence) else parts[0]

    def _join(self, parts: Any) -> Tensor:
        """Latents as one tensor: as they are where there is one, flat where there are several."""
        parts = [parts] if isinstance(parts, Tensor) else parts
        return (parts[0] if len(parts) == 1 else torch.cat([part.flatten(1) for part in parts], dim=1)).float()

    def _split(self, latent: Tensor) -> list[Tensor]:
        if len(self.shapes) == 1:
            return [latent]
        parts = latent.split([math.prod(shape) for shape in self.shapes], dim=1)
        return [part.reshape(-1, *shape) for part, shape in zip(parts, self.shapes, strict=True)]


def _nearer(best: Tensor, distance: Tensor, latent: Tensor, here: Tensor) -> tuple[Tensor, Tensor]:
    closer = here < distance  # (N,)
    return torch.where(closer.reshape(-1, *[1] * (latent.dim() - 1)), latent, best), torch.where(closer, here, distance)


def _shapes(given: Sequence[Any]) -> list[tuple[int, ...]]:
    """One shape or several, as a list of shapes."""
    try:
        several = list(given) if isinstance(given[0], Sequence) else [given]
        shapes = [tuple(int(side) for side in shape) for shape in several]
    except (TypeError, ValueError, IndexError):
        shapes = []
    if not shapes or any(not shape or min(shape) < 1 for shape in shapes):
        raise BadPart(f"latent_shape={given!r}: give the shape of one latent, as in (512,), or a list of such shapes")
    return shapes


def adapt_generator(made: Any, *, what: str) -> Generator:
    """A generator from what a user gave: one, an autoencoder, or a module with `latent_shape` and `decode`."""
    if isinstance(made, Generator):
        return made
    if isinstance(made, LatentModule):
        return InvertedGenerator(made, provenance=_provenance_of(what.removeprefix("python:"), made))
    if isinstance(made, Autoencoder):
        if isinstance(made, nn.Module):
            made.eval().requires_grad_(False)
        return LatentGenerator(made, size=getattr(made, "size", None))
    raise BadPart(
        f"{what}: gives a {type(made).__name__}; a Generator is needed, or an object with encode and decode, or one "
        "with latent_shape and decode"
    )


def gan(
    place: str,
    *,
    steps: int = InversionSettings.steps,
    learning_rate: float = InversionSettings.learning_rate,
    candidates: int = InversionSettings.candidates,
    anchor: float = InversionSettings.anchor,
    options: Mapping[str, Any] | None = None,
) -> InvertedGenerator:
    """Latent ascent in a GAN or hierarchical VAE that a function makes, after inverting each image by optimisation.

    `place` is package.module:factory or path/to/file.py:factory; it is called with `options` and gives an object with
    `latent_shape` and `decode`. Inversion takes `steps` of Adam at `learning_rate` from the best of `candidates` random
    latents; `anchor` holds latents near the middle of a normal prior.
    """
    inversion = InversionSettings(steps=steps, learning_rate=learning_rate, candidates=candidates, anchor=anchor)
    made = prepare_call(place, options or {})()
    if not isinstance(made, LatentModule):
        raise BadPart(f"gan:{place}: gives a {type(made).__name__} without latent_shape and decode; both are needed")
    return InvertedGenerator(made, inversion, provenance=_provenance_of(place, made))


def _provenance_of(place: str, made: object) -> dict[str, str]:
    return {"source": place, **({"weights": weights.fingerprint(made)} if isinstance(made, nn.Module) else {})}
