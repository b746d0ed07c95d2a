"""Images are found again in a network that has no encoder, and generators come from functions of the user's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from counterfoil.core.errors import BadPart
from counterfoil.parts import registry
from counterfoil.parts.contracts import State
from counterfoil.parts.generators import draws
from counterfoil.parts.generators.inversion import InversionSettings, InvertedGenerator, gan
from counterfoil.parts.generators.latent import LatentGenerator
from counterfoil.parts.generators.pixels import PixelGenerator
from counterfoil.testing import check_generator
from tests.generators.named_weights import named_weights

QUICK = InversionSettings(steps=60, learning_rate=0.1, candidates=4)


class Painter(nn.Module):
    """A small generator: a latent of six numbers per image."""

    latent_shape = (6,)
    size = 16

    def __init__(self) -> None:
        super().__init__()
        self.grow, self.paint = nn.Linear(6, 8 * 4 * 4), nn.Conv2d(8, 3, 3, padding=1)
        self.load_state_dict(named_weights(self.state_dict()))

    def decode(self, latents: Tensor) -> Tensor:
        features = torch.tanh(self.grow(latents)).reshape(-1, 8, 4, 4)
        return torch.sigmoid(2 * self.paint(F.interpolate(features, size=(16, 16), mode="bilinear")))


class Levels(Painter):
    """The same with a hierarchy of latents: one for the whole image, one for its colours."""

    latent_shape: ClassVar = [(6,), (3, 2, 2)]  # type: ignore[misc]

    def decode(self, latents: list[Tensor]) -> Tensor:  # type: ignore[override]
        whole, colours = latents
        return super().decode(whole) * torch.sigmoid(F.interpolate(colours, size=(16, 16)))


def draw_images(module: Any, count: int = 8, name: str = "truth") -> Tensor:
    """Images that the network can make."""
    shapes = module.latent_shape if isinstance(module.latent_shape, list) else [module.latent_shape]
    parts = [draws.normal(torch.arange(count), f"{name} {index}", *shape) for index, shape in enumerate(shapes)]
    with torch.no_grad():
        return module.decode(parts if isinstance(module.latent_shape, list) else parts[0])


def start(generator: InvertedGenerator, images: Tensor, seeds: Tensor | None = None) -> State:
    seeds = torch.arange(len(images)) if seeds is None else seeds
    with torch.no_grad():  # as the engine does
        return generator.start(images, torch.zeros(len(images), dtype=torch.long), seeds)


@pytest.mark.parametrize("module", [Painter, Levels])
def test_pictures_of_the_network_are_found_again(module: type[Painter]) -> None:
    generator = InvertedGenerator(module(), InversionSettings(steps=200, learning_rate=0.1))
    images = draw_images(generator.module)
    error = (generator.render(start(generator, images)) - images).abs().mean((1, 2, 3))
    between = (images - images.roll(1, 0)).abs().mean((1, 2, 3))
    assert error.max() < 0.02
    assert between.min() > 0.04


def test_a_prior_and_a_first_guess_of_the_network_are_used() -> None:
    class Mapped(Painter):
        def prior(self, noise: Tensor) -> Tensor:
            return 0 * noise + 3.0

        def encode(self, images: Tensor) -> Tensor:
            return images.mean((2, 3)).repeat(1, 2)

    module = Mapped()
    generator = InvertedGenerator(module, InversionSettings(steps=0, candidates=1))
    at_three, at_guess = (
        module.decode(latent) for latent in (torch.full((1, 6), 3.0), module.encode(torch.full((1, 3, 1, 1), 0.4)))
    )
    assert torch.allclose(start(generator, at_three)["latent"], torch.full((1, 6), 3.0))
    found = start(generator, at_guess)["latent"]
    assert torch.equal(found, module.encode(at_guess))


def test_an_anchor_holds_latents_near_the_middle() -> None:
    module, lengths = Painter(), []
    for anchor in (0.0, 1.0):
        settings = InversionSettings(steps=100, learning_rate=0.1, anchor=anchor)
        lengths.append(
            InvertedGenerator(module, settings)
            .invert(draw_images(module), torch.zeros(8, dtype=torch.int64), torch.arange(8))
            .norm()
        )
    assert lengths[1] < 0.6 * lengths[0]


@pytest.mark.parametrize("shape", [(), (0,), "six", [(3, 4), ()], [(2,), "x"]])
def test_a_latent_without_a_shape_is_refused(shape: Any) -> None:
    module = Painter()
    module.latent_shape = shape
    with pytest.raises(BadPart, match="give the shape of one latent"):
        InvertedGenerator(module)


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
    assert made.inversion == InversionSettings()


def test_gan_takes_the_inversions_options_and_passes_the_networks_own(file: str) -> None:
    made = gan(f"{file}:painter", steps=5, learning_rate=0.2, candidates=3, anchor=0.1, options={"gain": 0.25})
    assert made.inversion == InversionSettings(steps=5, learning_rate=0.2, candidates=3, anchor=0.1)
    assert float(made.module.paint.weight.abs().max()) == pytest.approx(0.25, abs=1e-3)  # type: ignore[attr-defined]
    account = made.provenance()
    assert account["source"] == f"{file}:painter"
    assert len(account["weights"]) == 64
    check_generator(made)
