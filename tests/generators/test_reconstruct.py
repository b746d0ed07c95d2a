from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from counterfoil.core.errors import BadSpec, BadWeights, UnknownName
from counterfoil.parts.contracts import State
from counterfoil.parts.generators.autoencoders import autoencoder
from counterfoil.parts.generators.latent import LatentGenerator
from counterfoil.parts.generators.pixels import ReconstructGenerator, reconstruct
from counterfoil.testing import check_generator, pictures

from ..fakes import QuantisedCodec

TENTHS = LatentGenerator(
    QuantisedCodec(encode=lambda images: images, decode=lambda codes: codes, quantise=lambda z: (z * 10).round() / 10)
)


def start(generator: ReconstructGenerator, images: Tensor) -> State:
    return generator.start(images, torch.zeros(len(images), dtype=torch.long), torch.arange(len(images)))


def test_contract(networks: dict[str, Path]) -> None:
    check_generator(ReconstructGenerator(TENTHS), exact=True)
    check_generator(reconstruct(f"autoencoder:{networks['VQModel']}", space="code"), exact=True)


def test_it_starts_from_the_plain_reconstruction_and_reconstructs_every_step() -> None:
    generator = ReconstructGenerator(TENTHS)
    images = torch.tensor([0.12, 0.5, 0.98]).reshape(1, 3, 1, 1)
    state = start(generator, images)
    assert torch.allclose(generator.render(state).flatten(), torch.tensor([0.1, 0.5, 1.0]))
    signal = torch.tensor([0.04, 0.06, 0.2]).reshape(1, 3, 1, 1)
    once = generator.step(state, signal)
    assert torch.allclose(generator.render(once).flatten(), torch.tensor([0.1, 0.6, 1.0]))
    twice = generator.step(once, signal)  # what was rounded away is gone: it does not add up
    assert torch.allclose(generator.render(twice).flatten(), torch.tensor([0.1, 0.7, 1.0]))


def test_the_gradient_is_that_of_the_pixels_themselves(networks: dict[str, Path]) -> None:
    generator = reconstruct(f"autoencoder:{networks['AutoencoderKL']}")
    state, weighting = start(generator, pictures()), pictures(seed=3)
    assert not state["pixels"].requires_grad
    leaf = state["pixels"].clone().requires_grad_()
    gradient = torch.autograd.grad((generator.render({**state, "pixels": leaf}) * weighting).sum(), leaf)[0]
    assert torch.equal(gradient, weighting)
    assert not generator.step({**state, "pixels": leaf}, gradient)["pixels"].requires_grad


def test_size_device_and_provenance_are_the_other_generators(networks: dict[str, Path]) -> None:
    generator, inner = reconstruct(f"autoencoder:{networks['VQModel']}"), autoencoder(str(networks["VQModel"]))
    assert generator.size == inner.size == 32
    assert generator.provenance() == {"reconstructs": "LatentGenerator", **inner.provenance()}
    assert generator.to("meta") is generator
    assert next(generator.inner.autoencoder.network.parameters()).device.type == "meta"  # type: ignore[attr-defined]


def test_bad_names_and_options_are_the_other_generators() -> None:
    with pytest.raises(BadSpec, match="name the generator that reconstructs"):
        reconstruct("")
    with pytest.raises(UnknownName, match="no generator named 'autoencodr'"):
        reconstruct("autoencodr:x")
    with pytest.raises(BadWeights, match="no such folder"):
        reconstruct("autoencoder:/no/such/folder")
    with pytest.raises(BadSpec, match="options are space"):
        reconstruct("autoencoder:x", spce="code")
