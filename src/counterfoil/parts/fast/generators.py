"""Generators with their decoders, and where they are a VQGAN's their encoders, rebuilt from fused layers."""

from __future__ import annotations

from copy import copy
from typing import Any

import torch
from torch import Tensor

from counterfoil.parts.contracts import Generator
from counterfoil.parts.fast import decoder, encoder, windows
from counterfoil.parts.fast.submodels import FastSubmodel
from counterfoil.parts.generators.autoencoders import GaussianAutoencoder, VectorAutoencoder
from counterfoil.parts.generators.latent import LatentGenerator
from counterfoil.parts.generators.sparse.generator import SparseGenerator
from counterfoil.parts.generators.sparse.windowed import WindowedGenerator
from counterfoil.parts.generators.vqgan.generator import GumbelVqganAutoencoder, VqganAutoencoder

KNOWN = (VectorAutoencoder, GaussianAutoencoder, VqganAutoencoder, GumbelVqganAutoencoder)


def hastened(generator: Generator, kind: torch.dtype, *, recompute: bool = False) -> Generator | None:
    """The generator with a decoder that computes in `kind`; None where it has none that can be rebuilt."""
    if type(generator) is WindowedGenerator:
        return _windowed(generator, kind, recompute=recompute)
    if type(generator) is SparseGenerator:
        inner = hastened(generator.inner, kind, recompute=recompute)
        return None if inner is None else _with(generator, inner=inner)
    if type(generator) is not LatentGenerator or type(generator.autoencoder) not in KNOWN:
        return None
    autoencoder: Any = generator.autoencoder
    fast = decoder.build(autoencoder.network, kind, recompute=recompute)
    if fast is None:
        return None

    def decode(latents: Tensor) -> Tensor:
        return (fast(latents) + 1) / 2

    changes: dict[str, Any] = {"decode": decode}
    fast_encoder = encoder.build(autoencoder.network)
    if fast_encoder is not None:

        def encode(images: Tensor) -> Tensor:
            autoencoder.check(images)
            return fast_encoder(images * 2 - 1)

        changes["encode"] = encode
    changed: Generator = _with(generator, autoencoder=_with(autoencoder, **changes))
    return changed


def _windowed(generator: WindowedGenerator, kind: torch.dtype, *, recompute: bool) -> Generator | None:
    """A sparse search that decodes a window, with fast layers for the window too."""
    inner = hastened(generator.latents, kind, recompute=recompute)
    autoencoder: Any = generator.latents.autoencoder
    fast = None if inner is None else windows.build(autoencoder.network, kind, generator.window, recompute=recompute)
    if fast is None:
        return None
    changed: Generator = _with(generator, inner=inner, latents=inner, submodel=FastSubmodel(generator.submodel, fast))
    return changed


def _with(part: Any, **changes: Any) -> Any:
    """A copy of a part with other attributes; the original stays as it is."""
    changed = copy(part)
    for name, value in changes.items():
        setattr(changed, name, value)
    return changed
