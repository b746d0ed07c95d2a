from __future__ import annotations

import pytest
import torch
from torch import Tensor

from counterfoil.core.errors import BadSpec
from counterfoil.parts.contracts import Generator, State
from counterfoil.parts.generators.latent import LatentGenerator, straight_through
from counterfoil.testing import check_generator, pictures

from ..fakes import Codec, QuantisedCodec

TENTHS = QuantisedCodec(
    encode=lambda images: images * 4, decode=lambda codes: codes / 4, quantise=lambda z: (z * 10).round() / 10
)


def start(generator: LatentGenerator, images: Tensor) -> State:
    return generator.start(images, torch.zeros(len(images), dtype=torch.long), torch.arange(len(images)))


@pytest.mark.parametrize("space", ["before", "code"])
def test_plain_functions_make_a_generator(space: str) -> None:
    generator = LatentGenerator(TENTHS, space=space)  # type: ignore[arg-type]
    assert isinstance(generator, Generator)
    check_generator(generator, exact=True)


def test_an_object_with_encode_and_decode_makes_a_generator() -> None:
    class Halves:
        def encode(self, images: Tensor) -> Tensor:
            return images / 2

        def decode(self, latents: Tensor) -> Tensor:
            return latents * 2

    generator = LatentGenerator(Halves())
    check_generator(generator, exact=True)
    images = pictures()
    assert torch.equal(generator.render(start(generator, images)), images)


@pytest.mark.parametrize("space", ["before", "code"])
def test_the_start_renders_the_quantised_reconstruction(space: str) -> None:
    images = pictures()
    generator = LatentGenerator(TENTHS, space=space)  # type: ignore[arg-type]
    assert torch.equal(generator.render(start(generator, images)), ((images * 40).round() / 10) / 4)


def test_a_step_below_the_grain_is_lost_before_quantisation_and_kept_in_code() -> None:
    images = torch.full((1, 3, 4, 4), 0.5)  # latent 2.0, a code itself
    small = torch.full_like(images, 0.02)
    before, code = LatentGenerator(TENTHS), LatentGenerator(TENTHS, space="code")
    assert torch.equal(before.render(before.step(start(before, images), small)), images)
    assert torch.allclose(code.render(code.step(start(code, images), small)), images + 0.005)
    twice = before.step(before.step(start(before, images), small * 2), small * 2)  # below the grain they still add up
    assert torch.allclose(before.render(twice), images + 0.025)


def test_scale_is_the_spread_of_the_rows_own_latent() -> None:
    images = pictures(3) * torch.tensor([0.2, 0.5, 1.0]).reshape(3, 1, 1, 1)
    state = start(LatentGenerator(Codec(lambda x: x * 7, lambda z: z / 7)), images)
    expected = [float((7 * image).double().var(correction=0).sqrt()) for image in images]
    assert state["scale"].tolist() == pytest.approx(expected, rel=1e-5)


def test_a_latent_without_spread_still_has_a_scale() -> None:
    state = start(LatentGenerator(Codec(lambda x: x, lambda z: z)), torch.full((2, 3, 4, 4), 0.25))
    assert state["scale"].tolist() == [1.0, 1.0]


def test_overshooting_pixels_are_clamped_and_keep_their_gradient() -> None:
    generator = LatentGenerator(Codec(lambda x: x, lambda z: 3 * z - 1))
    latent = torch.tensor([0.0, 0.5, 1.0]).reshape(1, 3, 1, 1).requires_grad_()
    rendered = generator.render({"latent": latent, "scale": torch.ones(1)})
    assert rendered.flatten().tolist() == [0.0, 0.5, 1.0]
    assert torch.autograd.grad(rendered.sum(), latent)[0].flatten().tolist() == [3.0, 3.0, 3.0]


def test_the_straight_through_gradient_is_that_of_the_code() -> None:
    weights = torch.linspace(-1, 1, 3 * 32 * 32).reshape(3, 32, 32)
    squares = QuantisedCodec(TENTHS.encode, lambda codes: codes**2 / 16, TENTHS.quantise)
    latent = start(LatentGenerator(squares), pictures())["latent"].requires_grad_()
    code = TENTHS.quantise(latent).detach().requires_grad_()
    through = LatentGenerator(squares).render({"latent": latent})
    direct = LatentGenerator(squares, space="code").render({"latent": code})
    gradients = [torch.autograd.grad((out * weights).sum(), leaf)[0] for out, leaf in ((through, latent), (direct, code))]
    assert torch.equal(*gradients)
    assert gradients[0].abs().sum() > 0


def test_the_state_starts_without_a_graph() -> None:
    parameter = torch.ones(1, requires_grad=True)
    state = start(LatentGenerator(Codec(lambda x: x * parameter, lambda z: z)), pictures())
    assert not state["latent"].requires_grad


def test_code_space_needs_a_quantiser() -> None:
    with pytest.raises(BadSpec, match="needs an autoencoder that quantises, and Codec does not"):
        LatentGenerator(Codec(lambda x: x, lambda z: z), space="code")


def test_an_unknown_space_is_refused() -> None:
    with pytest.raises(BadSpec, match="no latent space named 'after'"):
        LatentGenerator(TENTHS, space="after")  # type: ignore[arg-type]


def test_the_value_is_exact_and_the_gradient_goes_to_the_carrier() -> None:
    value, carrier = torch.tensor([0.1, 1e-8]), torch.tensor([3e7, -2.0], requires_grad=True)
    seen = straight_through(value, carrier)
    assert torch.equal(seen, value)
    assert torch.equal(torch.autograd.grad((seen * torch.tensor([2.0, 5.0])).sum(), carrier)[0], torch.tensor([2.0, 5.0]))


def test_no_gradient_reaches_the_value() -> None:
    value, carrier = torch.ones(2, requires_grad=True), torch.zeros(2, requires_grad=True)
    gradient = torch.autograd.grad(straight_through(value * 2, carrier).sum(), value, allow_unused=True)[0]
    assert gradient is None
