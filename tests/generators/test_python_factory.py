from __future__ import annotations

from pathlib import Path

import pytest

from counterfoil.core.errors import BadPart, BadSpec
from counterfoil.parts import registry
from counterfoil.parts.generators.inversion import Inversion, InvertedGenerator
from counterfoil.parts.generators.latent import LatentGenerator
from counterfoil.parts.generators.pixels import PixelGenerator
from counterfoil.parts.generators.python_factory import gan
from counterfoil.testing import check_generator

SOURCE = """
import torch
from torch import nn
from counterfoil.parts.generators.pixels import PixelGenerator

class Painter(nn.Module):
    latent_shape = (12,)
    size = 16

    def __init__(self, gain):
        super().__init__()
        self.paint = nn.Linear(12, 3 * 16 * 16)
        nn.init.constant_(self.paint.bias, 0.0)
        self.paint.weight.data = gain * torch.sin(torch.arange(12 * 768).float()).reshape(768, 12)

    def decode(self, latents):
        return torch.sigmoid(self.paint(latents)).reshape(-1, 3, 16, 16)

class Halves(nn.Module):
    size = 24

    def encode(self, images):
        return images / 2

    def decode(self, latents):
        return latents * 2

def painter(gain=1.0):
    return Painter(gain)

def halves():
    return Halves()

def pixels(norm="linf"):
    return PixelGenerator(norm)

def nothing():
    return 3
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "mine.py"
    path.write_text(SOURCE)
    return str(path)


def test_a_generator_is_taken_as_it_is(file: str) -> None:
    made = registry.create("generator", f"python:{file}:pixels", {"norm": "l2"})
    assert isinstance(made, PixelGenerator)
    assert made.norm == "l2"


def test_an_autoencoder_moves_in_its_latent_space(file: str) -> None:
    made = registry.create("generator", f"python:{file}:halves")
    assert isinstance(made, LatentGenerator)
    assert made.size == 24
    assert not made.autoencoder.training  # type: ignore[attr-defined]
    check_generator(made)


def test_a_network_with_a_latent_is_inverted(file: str) -> None:
    made = registry.create("generator", f"python:{file}:painter", {"gain": 0.5})
    assert isinstance(made, InvertedGenerator)
    assert made.size == 16
    assert made.inversion == Inversion()


def test_gan_takes_the_inversions_options_and_passes_the_networks_own(file: str) -> None:
    made = gan(f"{file}:painter", steps=5, learning_rate=0.2, candidates=3, anchor=0.1, options={"gain": 0.25})
    assert made.inversion == Inversion(steps=5, learning_rate=0.2, candidates=3, anchor=0.1)
    assert float(made.module.paint.weight.abs().max()) == pytest.approx(0.25, abs=1e-3)  # type: ignore[attr-defined]
    account = made.provenance()
    assert account["source"] == f"{file}:painter"
    assert len(account["weights"]) == 64
    check_generator(made)


def test_what_is_no_generator_is_refused(file: str) -> None:
    with pytest.raises(BadPart, match="gives a int; a Generator is needed"):
        registry.create("generator", f"python:{file}:nothing")
    with pytest.raises(BadPart, match="gives a Halves without latent_shape and decode"):
        gan(f"{file}:halves")
    with pytest.raises(BadPart, match="has no function 'gone'"):
        gan(f"{file}:gone")
    with pytest.raises(BadPart, match="no such file"):
        registry.create("generator", "python:/no/such/file.py:factory")
    with pytest.raises(BadSpec, match=r"unexpected keyword argument 'gian'; its options are gain$"):
        gan(f"{file}:painter", options={"gian": 1})
    with pytest.raises(BadSpec, match="candidates"):
        gan(f"{file}:painter", candidates=0)
