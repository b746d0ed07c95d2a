"""Efficient-VDVAE: the authors' files as they are, their layers' own answers, and latents that move or stay."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from counterfoil.core.errors import BadSpec, BadWeights
from counterfoil.parts import registry
from counterfoil.parts.generators.vdvae import read_architecture, read_literal, vdvae
from tests.generators.named_weights import named_pictures
from tests.generators.vdvae.conftest import save_checkpoint, save_ini
from tests.generators.vdvae.make_reference import CASES, FILE, MODEL


@pytest.mark.parametrize("case", CASES)
def test_the_network_answers_as_the_authors_layers(tmp_path: Path, case: str) -> None:
    reference = {name.removeprefix(f"{case}."): value for name, value in load_file(FILE).items() if name.startswith(case)}
    network = vdvae(str(save_checkpoint(tmp_path, case))).autoencoder
    images, groups = named_pictures(2, 16), len(network.shapes)

    means = network.infer(images)

    names = "\n".join(f"{name} {tuple(value.shape)}" for name, value in sorted(network.state_dict().items()))
    assert names == bytes(reference["names"].tolist()).decode()
    for place, mean in enumerate(means):
        torch.testing.assert_close(mean, reference[f"latent.{place}"], rtol=0, atol=1e-5)
    torch.testing.assert_close(network.logits(means), reference["logits"], rtol=0, atol=1e-5)
    drawn = network.infer(images, lambda place, shape: torch.full((2, *shape), float(place == groups - 1)))
    spread = reference[f"spread.{groups - 1}"]
    spread = (0.6931472 * spread).exp() if case == "other" else spread
    torch.testing.assert_close(drawn[-1] - means[-1], spread, rtol=0, atol=2e-5)


def test_an_image_is_the_mean_of_the_mixture(tmp_path: Path) -> None:
    network = vdvae(str(save_checkpoint(tmp_path))).autoencoder
    latents = network.infer(named_pictures(1, 16))
    logits = network.logits(latents)[0, :, 3, 5].tolist()

    image = network.decode(latents)[0, :, 3, 5].tolist()

    weights = [math.exp(each) / sum(map(math.exp, logits[:2])) for each in logits[:2]]
    expected = [0.0, 0.0, 0.0]
    for component, weight in enumerate(weights):
        mean = [logits[2 + 6 * colour + component] for colour in range(3)]
        factor = [math.tanh(logits[2 + 6 * colour + 4 + component]) for colour in range(3)]
        red = min(max(mean[0], -1), 1)
        green = min(max(mean[1] + factor[0] * red, -1), 1)
        blue = min(max(mean[2] + factor[1] * red + factor[2] * green, -1), 1)
        expected = [total + weight * (value + 1) / 2 for total, value in zip(expected, (red, green, blue), strict=True)]
    assert image == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("levels", [None, (8,), (16,)])
def test_chosen_levels_move_and_the_others_stay(tmp_path: Path, levels: tuple[int, ...] | None) -> None:
    generator = vdvae(str(save_checkpoint(tmp_path)), levels=levels)
    images, seeds = named_pictures(2, 16), torch.arange(2)
    state = generator.start(images, seeds, seeds)

    stepped = generator.step(state, torch.ones_like(state["latent"]))

    sides = [side for _, side, _ in generator.autoencoder.shapes if levels is None or side in levels]
    assert state["latent"].shape == (2, 3 * sum(side * side for side in sides))
    assert levels is None or torch.equal(stepped["still"], state["still"])
    assert not torch.equal(generator.render(stepped), generator.render(state))
    whole = vdvae(str(tmp_path)).start(images, seeds, seeds)
    torch.testing.assert_close(generator.render(state), vdvae(str(tmp_path)).render(whole))


def test_noise_of_a_sample_follows_from_the_seed_alone(tmp_path: Path) -> None:
    generator = vdvae(str(save_checkpoint(tmp_path)), posterior="sample")
    images = named_pictures(1, 16).expand(3, -1, -1, -1)
    seeds = torch.tensor([5, 6, 5])

    latent = generator.start(images, seeds, seeds)["latent"]

    assert torch.equal(latent[0], latent[2])
    assert not torch.equal(latent[0], latent[1])


def test_the_gradient_reaches_every_level_that_moves(tmp_path: Path) -> None:
    generator = vdvae(str(save_checkpoint(tmp_path)))
    state = generator.start(named_pictures(1, 16), torch.zeros(1), torch.zeros(1, dtype=torch.int64))
    latent = state["latent"].requires_grad_()

    generator.render({**state, "latent": latent}).square().sum().backward()

    assert isinstance(latent.grad, Tensor)
    assert (latent.grad != 0).float().mean() > 0.9


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[1] * 2 + [3]", [1, 1, 3]),
        ("8.", 8.0),
        ("(1, 1)", [1, 1]),
        ("-250.", -250.0),
        ("'std'", "std"),
        ("[0] * (2 + 1)", [0] * 3),
    ],
)
def test_lists_are_read_as_they_are_written(text: str, value: object) -> None:
    assert read_literal(text) == value


@pytest.mark.parametrize(
    "text", ["__import__('os').getcwd()", "[1] * 99999999999", "[x for x in (1,)]", "open", "'a' * 10 ** 9", "(" * 500, "1 / 0"]
)
def test_nothing_else_is_evaluated(tmp_path: Path, text: str) -> None:
    with pytest.raises(BadWeights, match="up_strides"):
        read_architecture(save_ini(tmp_path, {**MODEL, "up_strides": text}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"up_filters": "[4]"}, "different lengths"),
        ({"down_strides": "[4] * 5"}, "strides of 8 down and 1024 up"),
        ({"distribution_base": "'var'"}, "neither 'std' nor 'logstd'"),
    ],
)
def test_a_damaged_configuration_is_refused(tmp_path: Path, change: dict[str, str], message: str) -> None:
    with pytest.raises(BadWeights, match=message):
        read_architecture(save_ini(tmp_path, {**MODEL, **change}))


def test_what_cannot_be_used_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(BadWeights, match=r"holds 0 files \*\.cfg"):
        vdvae(str(tmp_path))
    with pytest.raises(BadSpec, match="levels: no latents of 3 × 3; this network has 8, 16"):
        vdvae(str(save_checkpoint(tmp_path / "run")), levels=(3,))
    save_ini(tmp_path / "run", channels="1")
    with pytest.raises(BadWeights, match="a network for 1 channels; images have three"):
        vdvae(str(tmp_path / "run"))
    save_ini(tmp_path / "run", {**MODEL, "up_filters": "[4] + [5] * 3 + [8]"})
    with pytest.raises(BadWeights, match="another architecture"):
        registry.create("generator", f"vdvae:{tmp_path / 'run'}")
