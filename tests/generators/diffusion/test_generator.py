from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from counterfoil.core.errors import BadSpec
from counterfoil.parts.contracts import State
from counterfoil.parts.generators.diffusion import Denoising, DiffusionGenerator, class_names
from counterfoil.testing import check_generator
from tests.generators.diffusion.conftest import MEAN, SPREAD, GaussianDenoiser, linear_process
from tests.generators.named_weights import named_pictures


def start(generator: DiffusionGenerator, images: Tensor, seeds: Tensor | None = None) -> State:
    seeds = torch.arange(len(images)) if seeds is None else seeds
    return generator.start(images, torch.zeros(len(images), dtype=torch.long), seeds)


def gradient_of(generator: DiffusionGenerator, state: State, weighting: Tensor) -> Tensor:
    leaf = state["noisy"].clone().requires_grad_()
    return torch.autograd.grad((generator.render({**state, "noisy": leaf}) * weighting).sum(), leaf)[0]


def exact(**options: Any) -> DiffusionGenerator:
    return DiffusionGenerator(GaussianDenoiser(), Denoising(**options))


def advanced(generator: DiffusionGenerator, state: State, steps: int) -> State:
    for _ in range(steps):
        state = generator.step(state, torch.zeros_like(state["noisy"]))
    return state


@pytest.mark.parametrize("gradient", ["one-step", "full"])
@pytest.mark.parametrize("noising", ["random", "inversion"])
def test_contract(gradient: str, noising: str) -> None:
    check_generator(exact(gradient=gradient, noising=noising))


def test_pictures_start_with_as_much_noise_as_asked_for() -> None:
    generator, images = exact(strength=0.5), torch.full((4, 3, 64, 64), 0.5)  # mid-grey is 0 in [-1, 1]
    noisy = start(generator, images)["noisy"]
    assert noisy.std().item() == pytest.approx(0.5, abs=0.01)
    assert noisy.mean().item() == pytest.approx(0.0, abs=0.01)
    kept = generator.levels.kept[0]
    assert (1 - kept).sqrt().item() == pytest.approx(0.5, abs=0.01)


def test_noise_comes_from_the_seed_alone() -> None:
    generator, images = exact(), named_pictures(2, 16)
    one, two = start(generator, images, torch.tensor([5, 5])), start(generator, images.flip(0), torch.tensor([5, 6]))
    kept = generator.levels.kept[0]
    noise = [(state["noisy"] - kept.sqrt() * (pictures * 2 - 1)) for state, pictures in ((one, images), (two, images.flip(0)))]
    assert torch.allclose(noise[0][0], noise[0][1], atol=1e-5)
    assert torch.allclose(noise[0][0], noise[1][0], atol=1e-5)
    assert (noise[0][0] - noise[1][1]).abs().max() > 0.5


def test_with_many_steps_an_exact_denoiser_maps_noise_to_pictures_as_it_should() -> None:
    generator, images = exact(steps=128), named_pictures(4, 16)
    state, kept = start(generator, images), generator.levels.kept[0]
    # For normal pixels the deterministic path keeps a pixel's place in the distribution: how many deviations from the mean.
    place = (state["noisy"] - kept.sqrt() * MEAN) / (kept * SPREAD**2 + 1 - kept).sqrt()
    expected = ((MEAN + SPREAD * place + 1) / 2).clamp(0, 1)
    assert (generator.render(state) - expected).abs().max() < 0.01


def test_an_inverted_picture_denoises_back_to_itself() -> None:
    images = named_pictures(4, 16)
    errors = {}
    for noising in ("random", "inversion"):
        generator = exact(noising=noising, steps=50)
        errors[noising] = (generator.render(start(generator, images)) - images).abs().mean().item()
    assert errors["inversion"] < 0.01
    assert errors["random"] > 0.05


@pytest.mark.parametrize("gradient", ["one-step", "full"])
def test_a_step_along_nothing_changes_nothing(gradient: str) -> None:
    generator, images = exact(gradient=gradient), named_pictures(4, 16)
    state = start(generator, images)
    plain = generator.render(state)
    for _ in range(12):
        state = advanced(generator, state, 1)
        assert torch.equal(generator.render(state), plain)
    assert state["level"].tolist() == [9] * 4


def test_steps_go_down_the_ladder_and_stay_at_its_foot() -> None:
    generator = exact(steps=3, steps_per_level=2)
    state = start(generator, named_pictures(1, 16))
    levels, scales = [], []
    for _ in range(8):
        levels.append(int(state["level"]))
        scales.append(float(state["scale"]))
        state = advanced(generator, state, 1)
    assert levels == [0, 0, 1, 1, 2, 2, 2, 2]
    assert scales == pytest.approx([float((1 - generator.levels.kept[level]).sqrt()) for level in levels])


def test_a_signal_moves_the_noisy_picture_before_it_is_denoised() -> None:
    generator = exact(steps_per_level=2)
    state = start(generator, named_pictures(2, 16))
    signal = named_pictures(2, 16, name="signal")
    assert torch.equal(generator.step(state, signal)["noisy"], state["noisy"] + signal)
    moved = {**state, "noisy": state["noisy"] + signal}
    assert torch.equal(generator.render(generator.step(generator.step(state, signal), 0 * signal)), generator.render(moved))


def slope(generator: DiffusionGenerator, levels: list[int]) -> float:
    """How much a linear denoiser's clean picture moves with the noisy one at the first of the levels, through all of them."""
    total, ladder = 1.0, generator.levels
    for number, level in enumerate(levels):
        kept = float(ladder.kept[level])
        to_clean = kept**0.5 * SPREAD**2 / (kept * SPREAD**2 + 1 - kept)
        if number == len(levels) - 1:
            return total * to_clean
        below = float(ladder.kept[level + 1])
        total *= below**0.5 * to_clean + (1 - below) ** 0.5 * (1 - kept**0.5 * to_clean) / (1 - kept) ** 0.5
    return total


@pytest.mark.parametrize("level", [0, 4, 9])
def test_gradients_are_those_of_the_guess_or_of_the_whole_chain(level: int) -> None:
    weighting = named_pictures(2, 16, name="weighting")
    for gradient, levels in (("one-step", [level]), ("full", list(range(level, 10)))):
        generator = exact(gradient=gradient)
        state = advanced(generator, start(generator, named_pictures(2, 16)), level)
        expected = weighting / 2 * slope(generator, levels)  # half: from [-1, 1] to [0, 1]
        assert torch.allclose(gradient_of(generator, state, weighting), expected, atol=1e-5)


@pytest.mark.parametrize("gradient", ["one-step", "full"])
def test_rows_at_different_levels_do_not_touch_each_other(gradient: str) -> None:
    generator, weighting = exact(gradient=gradient), named_pictures(1, 16, name="weighting")
    state = start(generator, named_pictures(8, 16))
    alone = [advanced(generator, state, 2 * row) for row in range(5)]
    mixed = {name: torch.cat([*(alone[row][name][row : row + 1] for row in range(5)), rows[5:]]) for name, rows in state.items()}
    assert mixed["level"].tolist() == [0, 2, 4, 6, 8, 0, 0, 0]
    rendered, gradients = generator.render(mixed), gradient_of(generator, mixed, weighting)
    onward = generator.step(mixed, mixed["noisy"] * 0.01)
    for row in range(5):
        assert torch.equal(rendered[row], generator.render(alone[row])[row])
        assert torch.equal(gradients[row], gradient_of(generator, alone[row], weighting)[row])
        expected = generator.step(alone[row], alone[row]["noisy"] * 0.01)
        for name in expected:
            assert torch.equal(onward[name][row], expected[name][row])


def test_labels_are_the_networks_own_numbers() -> None:
    labels = torch.tensor([2, 0, 1])
    for count, told in ((9, (2, 0, 1)), (None, (0, 0, 0))):
        denoiser = GaussianDenoiser(classes=count)
        generator = DiffusionGenerator(denoiser)
        generator.render(generator.start(named_pictures(3, 16), labels, torch.arange(3)))
        assert {tuple(classes.tolist()) for classes in denoiser.seen} == {told}


@pytest.mark.parametrize(
    ("given", "count", "complaint"),
    [
        (None, 5, "nobody says which; give their names"),
        (["a", "b"], 5, "2 different class names given for 5"),
        (["a", "a"], 2, "1 different class names"),
        (["a"], None, "the network knows of none"),
        ("cat", 5, "nobody says which"),
    ],
)
def test_a_network_whose_classes_have_no_names_is_refused(given: Any, count: int | None, complaint: str) -> None:
    with pytest.raises(BadSpec, match=complaint):
        class_names(given, count, what="diffusion:x")


def test_a_network_of_imagenet_knows_its_names() -> None:
    names = class_names("imagenet", 1000, what="adm:x")
    assert names is not None and names[0] == "tench" and class_names(None, None, what="adm:x") is None


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"steps_per_level": 0}, "at least one step"),
        ({"noising": "none"}, "no noising named 'none'"),
        ({"gradient": "x"}, "no gradient named"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(BadSpec, match=complaint):
        Denoising(**options)


def test_provenance_says_how_pictures_are_denoised() -> None:
    account = exact(steps=5).provenance()
    assert account["network"] == "exact"
    assert account["denoising"] == repr(Denoising(steps=5))


def test_cut_guesses_keep_pictures_in_range_all_the_way() -> None:
    generator = DiffusionGenerator(GaussianDenoiser(linear_process(limit=0.5)))
    rendered = generator.render(start(generator, named_pictures(4, 16)))
    assert rendered.min() >= 0.25
    assert rendered.max() <= 0.75
