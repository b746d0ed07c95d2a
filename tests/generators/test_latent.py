"""Pixels and latent spaces: attacks, codecs of any kind, the autoencoders of diffusers, and reconstruction at every step."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from counterfoil.core.errors import BadSpec
from counterfoil.engine.guidance import GradientAscent, Rows, StepLength
from counterfoil.parts.generators.autoencoders import VectorAutoencoder, autoencoder
from counterfoil.parts.generators.latent import LatentGenerator, straight_through
from counterfoil.parts.generators.pixels import PixelGenerator, ReconstructGenerator, pixels, reconstruct
from counterfoil.testing import pictures
from tests.fakes import Codec, QuantisedCodec, TinyModel
from tests.generators.small import save_network, start

TENTHS = QuantisedCodec(
    encode=lambda images: images * 4, decode=lambda codes: codes / 4, quantise=lambda z: (z * 10).round() / 10
)


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


NAMES = ["VQModel", "AutoencoderKL", "AutoencoderTiny"]

WEIGHTS = "diffusion_pytorch_model.safetensors"


def forward(folder: Path, images: Tensor) -> Tensor:
    """The library's own network on images in [0, 1], by its own forward pass."""
    import diffusers

    name = json.loads((folder / "config.json").read_text())["_class_name"]
    network = getattr(diffusers, name).from_pretrained(folder).eval()
    with torch.no_grad():
        if name == "AutoencoderTiny":  # its forward also rounds latents to 8 bits, for storage
            samples = network.decode(network.encode(images * 2 - 1).latents).sample
        else:
            samples = network(images * 2 - 1).sample
    return ((samples + 1) / 2).clamp(0, 1)


@pytest.mark.parametrize("name", NAMES)
def test_the_reconstruction_is_the_networks_own(networks: dict[str, Path], name: str) -> None:
    generator, images = autoencoder(str(networks[name])), pictures(8)
    rendered = generator.render(start(generator, images))
    # The library adds and takes away the latent on the way to a code, which rounds the last bit.
    torch.testing.assert_close(rendered, forward(networks[name], images), atol=1e-5, rtol=0)
    assert rendered.std() > 0.01  # an image, not one grey


@pytest.mark.parametrize("config", [{"lookup_from_codebook": True}, {"norm_type": "spatial", "block_out_channels": (32, 32, 32)}])
def test_other_vector_networks_reconstruct_alike_in_both_spaces(tmp_path: Path, config: dict[str, object]) -> None:
    folder, images = save_network(tmp_path, "VQModel", **config), pictures(8)
    for space in ("before", "code"):
        generator = autoencoder(str(folder), space=space)  # type: ignore[arg-type]
        torch.testing.assert_close(generator.render(start(generator, images)), forward(folder, images), atol=1e-5, rtol=0)


def test_before_quantisation_pictures_are_always_of_codes(networks: dict[str, Path]) -> None:
    generator = autoencoder(str(networks["VQModel"]))
    state = start(generator, pictures())
    moved = generator.step(state, torch.randn(state["latent"].shape, generator=torch.Generator().manual_seed(0)))
    assert isinstance(generator.autoencoder, VectorAutoencoder)
    codes = generator.autoencoder.quantise(moved["latent"]).permute(0, 2, 3, 1).reshape(-1, 1, 4)
    book = generator.autoencoder.network.quantize.embedding.weight
    assert (codes - book).abs().amax(2).amin(1).max() < 1e-5
    assert torch.equal(
        generator.render(moved), generator.autoencoder.decode(generator.autoencoder.quantise(moved["latent"])).clamp(0, 1)
    )


def test_the_size_is_the_networks_own_unless_asked_otherwise(networks: dict[str, Path], tmp_path: Path) -> None:
    assert autoencoder(str(networks["VQModel"])).size == 32
    assert autoencoder(str(networks["VQModel"]), size=48).size == 48
    assert autoencoder(str(networks["AutoencoderTiny"])).size is None  # it is of any size
    down, up = ("DownEncoderBlock2D",) * 4, ("UpDecoderBlock2D",) * 4
    eight = save_network(tmp_path, "AutoencoderKL", block_out_channels=(8,) * 4, down_block_types=down, up_block_types=up)
    assert autoencoder(str(eight)).size is None  # 32 for a network that divides by 8 is a placeholder


def test_pictures_that_do_not_divide_are_refused(networks: dict[str, Path]) -> None:
    with pytest.raises(BadSpec, match=r"30 by 30 pixels: .* use 28 or 32"):
        start(autoencoder(str(networks["AutoencoderTiny"])), pictures(size=30))


def test_a_subfolder_is_looked_into(networks: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(networks["AutoencoderKL"], tmp_path / "vae")
    assert autoencoder(str(tmp_path), subfolder="vae").provenance()["network"] == "AutoencoderKL"


TENTHS_GENERATOR = LatentGenerator(
    QuantisedCodec(encode=lambda images: images, decode=lambda codes: codes, quantise=lambda z: (z * 10).round() / 10)
)


def test_it_starts_from_the_plain_reconstruction_and_reconstructs_every_step() -> None:
    generator = ReconstructGenerator(TENTHS_GENERATOR)
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


LABELS = torch.tensor([0, 1, 2, 3])


def attack(generator: PixelGenerator, images: Tensor, *, length: StepLength, budget: int) -> Tensor:
    """The search the engine does, without an oracle and without rounding to 8 bits."""
    model, guide, state = TinyModel(), GradientAscent(length), start(generator, images)
    for _ in range(budget):
        leaf = state["pixels"].detach().requires_grad_()
        loss = F.cross_entropy(model.logits(generator.render({**state, "pixels": leaf})), LABELS, reduction="sum")
        gradient = torch.autograd.grad(loss, leaf)[0]
        signal = guide.direction(gradient, Rows(leaf, state["scale"], range(4), [0] * 4))
        state = generator.step(state, signal)
    return generator.render(state).detach()


def loss_gradient(images: Tensor) -> Tensor:
    leaf = images.clone().requires_grad_()
    return torch.autograd.grad(F.cross_entropy(TinyModel()(leaf), LABELS, reduction="sum"), leaf)[0]


def test_the_reconstruction_is_the_source() -> None:
    images = pictures(size=16)
    assert torch.equal(pixels("linf").render(start(pixels("linf"), images)), images)


def test_fgsm_is_one_step_of_signs() -> None:
    images, epsilon = pictures(size=16), 8 / 255
    made = attack(pixels("linf", epsilon=epsilon), images, length=StepLength(epsilon, "sign", "absolute"), budget=1)
    assert torch.equal(made, (images + epsilon * loss_gradient(images).sign()).clamp(0, 1))
    assert not torch.equal(made, images)


def test_pgd_is_many_projected_steps() -> None:
    images, epsilon, alpha = pictures(size=16), 0.05, 0.02
    made = attack(pixels("linf", epsilon=epsilon), images, length=StepLength(alpha, "sign", "absolute"), budget=5)
    by_hand = images
    for _ in range(5):
        by_hand = by_hand + alpha * loss_gradient(by_hand).sign()
        by_hand = images + (by_hand - images).clamp(-epsilon, epsilon)
        by_hand = by_hand.clamp(0, 1)
    assert torch.allclose(made, by_hand, atol=1e-6)
    assert (made - images).abs().max() == pytest.approx(epsilon, abs=1e-6)  # the ball was reached


def test_l2_pgd_is_many_projected_steps() -> None:
    images, epsilon, alpha = pictures(size=16) * 0.6 + 0.2, 0.5, 0.2
    made = attack(pixels("l2", epsilon=epsilon), images, length=StepLength(alpha, "l2", "absolute"), budget=5)
    by_hand = images
    for _ in range(5):
        gradient = loss_gradient(by_hand)
        change = by_hand + alpha * F.normalize(gradient.flatten(1)).reshape(gradient.shape) - images
        norms = change.flatten(1).norm(dim=1).reshape(-1, 1, 1, 1)
        by_hand = (images + change * (epsilon / norms).clamp(max=1)).clamp(0, 1)
    assert torch.allclose(made, by_hand, atol=1e-6)
    assert (made - images).flatten(1).norm(dim=1).max() == pytest.approx(epsilon, rel=1e-4)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_any_step_ends_inside_the_ball_and_the_range(norm: str) -> None:
    images, generator = pictures(size=16), pixels(norm, epsilon=0.1)
    signal = 3 * torch.randn(images.shape, generator=torch.Generator().manual_seed(0))
    made = generator.render(generator.step(start(generator, images), signal))
    change = (made - images).flatten(1)
    assert (change.abs().amax(1) if norm == "linf" else change.norm(dim=1)).max() <= 0.1 + 1e-6
    assert made.min() >= 0
    assert made.max() <= 1
    assert change.abs().sum() > 0


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_random_starts_lie_in_the_ball_and_come_from_the_rows_seed(norm: str) -> None:
    images, generator = pictures(4, 16) * 0.6 + 0.2, pixels(norm, epsilon=0.1, random_start=True)
    drawn = start(generator, images, torch.tensor([5, 6, 7, 8]))["pixels"]
    change = (drawn - images).flatten(1)
    size = change.abs().amax(1) if norm == "linf" else change.norm(dim=1)
    assert (size <= 0.1 + 1e-6).all()
    assert (size > 0.09).all()
    alone = start(generator, images[2:3], torch.tensor([7]))["pixels"]
    assert torch.allclose(alone, drawn[2:3], atol=1e-7)
    other = start(generator, images, torch.tensor([9, 6, 7, 8]))["pixels"]
    assert not torch.equal(other[0], drawn[0])
    assert torch.equal(other[1:], drawn[1:])


def test_the_default_l2_ball_grows_with_the_picture() -> None:
    for size in (16, 32):
        images, generator = torch.full((1, 3, size, size), 0.5), pixels("l2")
        moved = generator.step(start(generator, images), torch.ones_like(images))["pixels"]
        assert float((moved - images).norm()) == pytest.approx(2 / 255 * math.sqrt(3 * size * size), rel=1e-4)


def test_epsilon_may_be_a_fraction() -> None:
    assert pixels("linf", epsilon="4/255").epsilon == pytest.approx(4 / 255)
