"""Generators made by a function of the user's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from counterfoil.core.errors import BadPart
from counterfoil.parts import weights
from counterfoil.parts.contracts import Generator
from counterfoil.parts.generators.inversion import Inversion, InvertedGenerator, LatentModule
from counterfoil.parts.generators.latent import Autoencoder, LatentGenerator
from counterfoil.parts.registry import call


def adapt_generator(made: Any, *, what: str) -> Generator:
    """A generator from what a user gave: one, an autoencoder, or a module with `latent_shape` and `decode`."""
    if isinstance(made, Generator):
        return made
    if isinstance(made, LatentModule):
        return InvertedGenerator(made, account=_account(what.removeprefix("python:"), made))
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
    steps: int = Inversion.steps,
    learning_rate: float = Inversion.learning_rate,
    candidates: int = Inversion.candidates,
    anchor: float = Inversion.anchor,
    options: Mapping[str, Any] | None = None,
) -> InvertedGenerator:
    """Latent ascent in a GAN or hierarchical VAE that a function makes, after inverting each picture by optimisation.

    `place` is package.module:factory or path/to/file.py:factory; it is called with `options` and gives an object with
    `latent_shape` and `decode`. Inversion takes `steps` of Adam at `learning_rate` from the best of `candidates` random
    latents; `anchor` holds latents near the middle of a normal prior.
    """
    inversion = Inversion(steps=steps, learning_rate=learning_rate, candidates=candidates, anchor=anchor)
    made = call(place, dict(options or {}))
    if not isinstance(made, LatentModule):
        raise BadPart(f"gan:{place}: gives a {type(made).__name__} without latent_shape and decode; both are needed")
    return InvertedGenerator(made, inversion, account=_account(place, made))


def _account(place: str, made: object) -> dict[str, str]:
    return {"source": place, **({"weights": weights.fingerprint(made)} if isinstance(made, nn.Module) else {})}
