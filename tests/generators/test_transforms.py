"""Corruptions against independent computations, the patterns they draw, and the search among their families."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torchvision.transforms.functional as vision
from PIL import Image
from torch import Tensor

from counterfoil.engine.guidance import GradientAscent, Rows, StepLength
from counterfoil.parts.contracts import State
from counterfoil.parts.generators import draws
from counterfoil.parts.generators.corruptions import COMMON, FAMILIES, GROUPS, JPEG_QUALITY
from counterfoil.parts.generators.transforms import TransformGenerator, transforms
from counterfoil.parts.images import to_grey
from tests.generators.small import start

Photos = Callable[..., Tensor]


def corrupt(name: str, images: Tensor, severity: float, *, seed: int = 1) -> Tensor:
    return FAMILIES[name](images, torch.full((len(images), 1, 1, 1), severity), torch.full((len(images),), seed))


def directions(name: str, images: Tensor) -> tuple[Tensor, Tensor]:
    """The two images a family makes at full severity, depending on the side the seed gives."""
    made = {tuple(picture.flatten().tolist()): picture for seed in range(12) for picture in corrupt(name, images, 1.0, seed=seed)}
    first, second = made.values()
    return first, second


def test_gaussian_noise_reaches_its_strength() -> None:
    made = corrupt("gaussian-noise", torch.full((1, 3, 64, 64), 0.5), 1.0)
    assert float((made - 0.5).std()) == pytest.approx(0.38, rel=0.03)


@pytest.mark.parametrize("light", [0.1, 0.5, 0.9])
def test_shot_noise_has_the_spread_of_counted_photons(light: float) -> None:
    made = corrupt("shot-noise", torch.full((1, 3, 64, 64), light), 1.0)
    assert float((made - light).var()) == pytest.approx(light / 3, rel=0.06)


def test_impulses_hit_the_stated_share() -> None:
    made = corrupt("impulse-noise", torch.full((1, 3, 64, 64), 0.5), 1.0)
    assert float((made == 0).float().mean()) == pytest.approx(0.135, abs=0.012)
    assert float((made == 1).float().mean()) == pytest.approx(0.135, abs=0.012)
    assert set(made.unique().tolist()) == {0.0, 0.5, 1.0}


@pytest.mark.parametrize("level", [1, 3, 5])
def test_jpeg_at_a_level_is_a_real_encoders_picture(level: int, photos: Photos) -> None:
    images = (photos(1, 32) * 255).round() / 255
    file = io.BytesIO()
    Image.fromarray((images[0].permute(1, 2, 0) * 255).byte().numpy()).save(file, "JPEG", quality=JPEG_QUALITY[level])
    expected = torch.from_numpy(np.array(Image.open(file))).permute(2, 0, 1) / 255
    assert torch.allclose(corrupt("jpeg", images, level / 5)[0], expected, atol=1e-6)


def test_pixelation_leaves_one_value_a_block(photos: Photos) -> None:
    images = photos(1, 32)
    made = corrupt("pixelate", images, 1.0)  # a quarter of the side: blocks of 4 by 4
    blocks = images.reshape(1, 3, 8, 4, 8, 4).mean((3, 5))
    assert torch.allclose(made, blocks.repeat_interleave(4, 2).repeat_interleave(4, 3), atol=1e-5)


def test_rotation_is_by_thirty_degrees_to_either_side(photos: Photos) -> None:
    images = photos(1, 33)
    middle = torch.hypot(*torch.meshgrid(torch.arange(33.0) - 16, torch.arange(33.0) - 16, indexing="ij")) < 10
    expected = [vision.rotate(images, angle, vision.InterpolationMode.BILINEAR)[0] for angle in (30.0, -30.0)]
    made = directions("rotation", images)
    errors = [[float((a - b)[:, middle].abs().max()) for b in expected] for a in made]
    assert max(min(row) for row in errors) < 1e-4
    assert {row.index(min(row)) for row in errors} == {0, 1}


def test_scaling_is_up_or_down_and_keeps_the_middle(photos: Photos) -> None:
    images = photos(1, 33)
    for made in directions("scaling", images):
        assert torch.allclose(made[:, 16, 16], images[0, :, 16, 16], atol=1e-6)


def test_translation_moves_the_picture_by_a_fifth() -> None:
    images = torch.zeros(1, 3, 65, 65)
    images[:, :, 32, 32] = 1
    made = corrupt("translation", images, 1.0)[0, 0]
    grid = torch.arange(65.0)
    down, across = (made.sum(1) @ grid / made.sum() - 32, made.sum(0) @ grid / made.sum() - 32)
    assert float(torch.hypot(down, across)) == pytest.approx(13, abs=0.01)


def test_hue_keeps_mean_and_strength_of_every_pixels_colour(photos: Photos) -> None:
    images = photos(2)
    made = corrupt("hue", images, 0.6)
    assert torch.allclose(made.mean(1), images.mean(1), atol=1e-6)
    assert torch.allclose(
        (made - made.mean(1, keepdim=True)).norm(dim=1), (images - images.mean(1, keepdim=True)).norm(dim=1), atol=1e-5
    )
    assert (made - images).abs().mean() > 0.01


def test_saturation_fades_to_grey_or_triples_the_colour(photos: Photos) -> None:
    images = photos(1)
    grey = to_grey(images)[0]
    made = sorted(directions("saturation", images), key=lambda picture: float((picture - grey).abs().mean()))
    assert torch.allclose(made[0], grey.expand(3, -1, -1), atol=1e-6)
    assert torch.allclose(made[1], grey + 3 * (images[0] - grey), atol=1e-5)


def test_contrast_shrinks_to_a_twentieth(photos: Photos) -> None:
    images = photos(2)
    made = corrupt("contrast", images, 1.0)
    assert torch.allclose(made.mean((2, 3)), images.mean((2, 3)), atol=1e-5)
    assert torch.allclose(made.std((2, 3)), 0.05 * images.std((2, 3)), rtol=1e-3)


@pytest.mark.parametrize("name", ["defocus-blur", "motion-blur", "glass-blur", "zoom-blur"])
def test_blur_keeps_flat_pictures_and_smooths_textured_ones(name: str, photos: Photos) -> None:
    flat, textured = torch.full((1, 3, 64, 64), 0.4), photos(1, 64)
    assert torch.allclose(corrupt(name, flat, 1.0), flat, atol=1e-5)

    def roughness(images: Tensor) -> float:
        return float(images.diff(dim=2).abs().mean() + images.diff(dim=3).abs().mean())

    assert roughness(corrupt(name, textured, 1.0)) < 0.6 * roughness(textured)


def test_defocus_spreads_a_point_into_a_disc() -> None:
    point = torch.zeros(1, 3, 224, 224)
    point[:, :, 112, 112] = 1
    made = corrupt("defocus-blur", point, 1.0)[0, 0]
    reach = torch.hypot(*torch.meshgrid(torch.arange(224.0) - 112, torch.arange(224.0) - 112, indexing="ij"))
    assert (made[reach <= 10] > 0).all()
    assert (made[reach >= 11] == 0).all()
    assert float(made.sum()) == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("name", ["snow", "frost"])
def test_snow_and_frost_whiten_dark_pictures(name: str) -> None:
    dark = torch.full((4, 3, 64, 64), 0.1)
    assert corrupt(name, dark, 1.0).clamp(0, 1).mean() > 0.2


def test_fog_hides_three_quarters_of_the_contrast(photos: Photos) -> None:
    one, other = photos(1), photos(1, seed=5)
    assert torch.allclose(corrupt("fog", one, 1.0) - corrupt("fog", other, 1.0), (one - other) / 4, atol=1e-5)


SEEDS = torch.arange(100, 116)

RANDOM = set(FAMILIES) - {"brightness", "contrast", "defocus-blur", "zoom-blur", "pixelate", "jpeg"}

Photos = Callable[..., Tensor]

every = pytest.mark.parametrize("name", list(FAMILIES))


def change(name: str, images: Tensor, severity: float | Tensor, seeds: Tensor = SEEDS) -> Tensor:
    return FAMILIES[name](images, torch.as_tensor(severity).expand(len(images), 1, 1, 1), seeds[: len(images)])


@every
def test_the_picture_follows_its_severity_without_jumps(name: str, photos: Photos) -> None:
    images = photos(2)
    for dose in (0.0, 0.2, 0.4, 0.6, 0.8, 0.999):
        nearby = change(name, images, dose + 1e-3).clamp(0, 1) - change(name, images, dose).clamp(0, 1)
        assert nearby.abs().mean() < 2e-3


@pytest.mark.parametrize("name", sorted(set(FAMILIES) - {"impulse-noise"}))  # a threshold: see the next test
@pytest.mark.parametrize("dose", [0.1, 0.5, 0.9])
def test_the_gradient_is_the_slope(name: str, dose: float, photos: Photos) -> None:
    images, weighting = photos(1, 64, seed=4), photos(1, 64, seed=9)

    def score(severity: Tensor) -> Tensor:
        return (change(name, images, severity).double() * weighting).sum()

    severity = torch.tensor(dose, requires_grad=True)
    gradient = torch.autograd.grad(score(severity), severity)[0].item()
    # Resampling a textured image is only smooth between pixels, so those slopes are taken over a very short way.
    way = 2e-4 if name in ("rotation", "translation", "scaling", "elastic", "zoom-blur") else 1e-2
    slope = ((score(torch.tensor(dose + way)) - score(torch.tensor(dose - way))) / (2 * way)).item()
    assert gradient != 0
    assert gradient == pytest.approx(slope, rel=0.1, abs=0.5)


def test_the_gradient_of_impulses_is_that_of_the_mean_over_many_patterns(photos: Photos) -> None:
    dark = photos(1, 8).expand(512, -1, -1, -1) * 0.4  # more values can rise than fall
    severity = torch.full((512, 1, 1, 1), 0.5, requires_grad=True)
    gradient = torch.autograd.grad(FAMILIES["impulse-noise"](dark, severity, torch.arange(512)).sum(), severity)[0]
    before, after = (change("impulse-noise", dark, dose, torch.arange(512)).sum((1, 2, 3)).mean() for dose in (0.25, 0.75))
    assert float(gradient.mean()) == pytest.approx(float(after - before) / 0.5, rel=0.05)


@every
def test_black_and_white_pictures_have_finite_gradients(name: str) -> None:
    images = torch.stack([torch.zeros(3, 16, 16), torch.ones(3, 16, 16)]).requires_grad_()
    severity = torch.full((2, 1, 1, 1), 0.3, requires_grad=True)
    for gradient in torch.autograd.grad(FAMILIES[name](images, severity, SEEDS[:2]).sum(), [images, severity]):
        assert torch.isfinite(gradient).all()


@every
def test_the_pattern_is_fixed_by_the_seed(name: str, photos: Photos) -> None:
    images = photos(1).expand(len(SEEDS), -1, -1, -1)
    first, again = change(name, images, 0.7), change(name, images, 0.7)
    assert torch.equal(first, again)
    assert (len({tuple(row.flatten().tolist()) for row in first}) > 1) == (name in RANDOM)


@every
@pytest.mark.parametrize("size", [(8, 8), (33, 47)])
def test_any_size_will_do(name: str, size: tuple[int, int]) -> None:
    images = torch.rand(2, 3, *size, generator=torch.Generator().manual_seed(0))
    for dose in (0.2, 1.0):
        changed = change(name, images, dose)
        assert changed.shape == images.shape
        assert torch.isfinite(changed).all()


ALL_SEEDS = torch.tensor([0, 1, 2, 7, 2**31, 2**40 + 3, 2**62, 2**63 - 1])


def test_a_row_depends_on_its_seed_alone() -> None:
    together = draws.normal(ALL_SEEDS, "test", 3, 9, 9)
    for row, seed in enumerate(ALL_SEEDS):
        assert torch.equal(draws.normal(seed[None], "test", 3, 9, 9)[0], together[row])


def test_seeds_and_purposes_give_unrelated_patterns() -> None:
    rows = torch.cat([draws.uniform(ALL_SEEDS, purpose, 4096) for purpose in ("one", "two")])
    correlation = torch.corrcoef(rows) - torch.eye(len(rows))
    assert correlation.abs().max() < 5 / 4096**0.5


def test_uniform_and_normal_have_the_moments_of_their_laws() -> None:
    flat, bell = (draw(torch.arange(16), "moments", 128, 128) for draw in (draws.uniform, draws.normal))
    assert flat.min() > 0
    assert flat.max() < 1
    assert flat.mean() == pytest.approx(1 / 2, abs=0.003)
    assert flat.var() == pytest.approx(1 / 12, rel=0.01)
    assert bell.mean() == pytest.approx(0, abs=0.01)
    assert bell.std() == pytest.approx(1, rel=0.01)
    assert (bell**4).mean() == pytest.approx(3, rel=0.03)


def test_plasma_fills_the_range_of_every_row() -> None:
    clouds = draws.plasma(ALL_SEEDS, "clouds", size=(24, 40))
    assert clouds.shape == (len(ALL_SEEDS), 1, 24, 40)
    assert torch.equal(clouds.amin((1, 2, 3)), torch.zeros(len(ALL_SEEDS)))
    assert torch.equal(clouds.amax((1, 2, 3)), torch.ones(len(ALL_SEEDS)))


def test_no_word_of_the_hash_becomes_zero_or_one() -> None:
    made = draws.fractions(torch.tensor([0, 1, 255, 256, 2**31, 2**32 - 256, 2**32 - 1]))
    assert made.min() > 0
    assert made.max() < 1
    assert torch.erfinv(made * 2 - 1).isfinite().all()


def test_no_two_of_a_million_seeds_share_their_numbers() -> None:
    """With keys of 32 bits more than a hundred pairs would."""
    seeds = torch.arange(2**20) * 2_654_435_761
    weights = torch.tensor([1.0, 2.0**-7, 2.0**-15, 2.0**-23], dtype=torch.float64)
    assert len((draws.uniform(seeds, "pairs", 4).double() @ weights).unique()) == len(seeds)


Photos = Callable[..., Tensor]

Loss = Callable[[Tensor], Tensor]


def severities(generator: TransformGenerator, state: State, **doses: float) -> State:
    severity = state["severity"].clone()
    for name, dose in doses.items():
        severity[:, generator.families.index(name.replace("_", "-"))] = dose
    return {**state, "severity": severity}


def gradient_of(generator: TransformGenerator, state: State, loss: Loss) -> Tensor:
    leaf = state["severity"].clone().requires_grad_()
    return torch.autograd.grad(loss(generator.render({**state, "severity": leaf})).sum(), leaf)[0]


def climb(generator: TransformGenerator, images: Tensor, loss: Loss, *, step: float, budget: int) -> State:
    state, guide = start(generator, images), GradientAscent(StepLength(step, "l2", "scale"))
    for _ in range(budget):
        signal = guide.direction(gradient_of(generator, state, loss), Rows(state["severity"], state["scale"], [], []))
        state = generator.step(state, signal)
    return state


def brightness(images: Tensor) -> Tensor:
    return images.sum((1, 2, 3))


def flatness(images: Tensor) -> Tensor:
    return -images.var((2, 3)).sum(1)


def test_names_groups_and_lists_choose_families() -> None:
    assert transforms("").families == tuple(FAMILIES)
    assert set(transforms("imagenet-c").families) == set(COMMON)
    assert transforms("fog, noise").families == ("fog", *GROUPS["noise"])
    assert transforms("", families=["hue", "rotation", "hue"]).families == ("rotation", "hue")


def test_severity_zero_is_the_source_to_the_last_bit(photos: Photos) -> None:
    images, generator = photos(8), transforms("")
    state = start(generator, images)
    assert torch.equal(generator.render(state), images)
    leaf = state["severity"].clone().requires_grad_()
    assert torch.equal(generator.render({**state, "severity": leaf}), images)


@pytest.mark.parametrize("name", list(FAMILIES))
def test_at_zero_the_gradient_is_the_chord_to_the_first_level(name: str, photos: Photos) -> None:
    images, weighting = photos(4), photos(4, seed=30)
    alone, all_of_them = transforms(name), transforms("")
    gradient = gradient_of(alone, start(alone, images), lambda made: made * weighting)[:, 0]
    first = alone.render({**start(alone, images), "severity": torch.full((4, 1), 0.2)})
    expected = ((first - images).double() / 0.2 * weighting).sum((1, 2, 3))
    assert (gradient != 0).all()
    assert gradient.tolist() == pytest.approx(expected.tolist(), rel=1e-3, abs=1e-2)
    among = gradient_of(all_of_them, start(all_of_them, images), lambda made: made * weighting)
    assert torch.allclose(among[:, all_of_them.families.index(name)], gradient, rtol=1e-4, atol=1e-3)


def test_a_family_at_work_is_felt_together_with_those_not_yet(photos: Photos) -> None:
    images, weighting, generator = photos(2), photos(2, seed=30), transforms("contrast,brightness", choose="all")
    state = severities(generator, start(generator, images), contrast=0.5)
    rendered = generator.render(state)
    assert torch.allclose(rendered, images + 0.475 * (images.mean((2, 3), keepdim=True) - images), atol=1e-6)
    gradient = gradient_of(generator, state, lambda made: made * weighting)
    by_brightness = 0.5 * weighting.sum((1, 2, 3))
    by_contrast = (0.95 * (images.mean((2, 3), keepdim=True) - images) * weighting).sum((1, 2, 3))
    assert torch.allclose(gradient[:, generator.families.index("brightness")], by_brightness, rtol=1e-3)
    assert torch.allclose(gradient[:, generator.families.index("contrast")], by_contrast, rtol=1e-3)


@pytest.mark.parametrize(("loss", "family"), [(brightness, "brightness"), (flatness, "contrast")])
def test_each_picture_gets_the_family_that_raises_its_loss_most(loss: Loss, family: str, photos: Photos) -> None:
    generator = transforms("brightness,contrast,hue,rotation")
    state = climb(generator, photos(3), loss, step=0.1, budget=4)
    expected = torch.zeros(3, 4)
    expected[:, generator.families.index(family)] = 0.4
    assert torch.allclose(state["severity"], expected, atol=1e-6)


def test_the_family_once_chosen_keeps_growing_up_to_one() -> None:
    generator = transforms("hue,fog,jpeg")
    state = generator.step(start(generator, torch.zeros(1, 3, 8, 8)), torch.tensor([[0.0, 0.4, 0.0]]))
    for signal, dose in (([0.4, 0.0, 0.0], 0.8), ([0.0, -0.1, 0.0], 0.9), ([0.3, 0.0, 0.0], 1.0), ([0.3, 0.0, 0.0], 1.0)):
        state = generator.step(state, torch.tensor([signal]))
        assert torch.allclose(state["severity"], torch.tensor([[0.0, dose, 0.0]]))


def test_as_many_kinds_are_taken_up_as_allowed() -> None:
    generator = transforms("hue,fog,jpeg", kinds=2)
    state = start(generator, torch.zeros(1, 3, 8, 8))
    for column in (1, 0, 2, 2):  # the third kind is not taken up; the steepest of the two at work moves instead
        signal = torch.full((1, 3), 0.0)
        signal[0, column], signal[0, 0] = 0.3, signal[0, 0] + 0.01 if column else 0.3
        state = generator.step(state, signal)
    assert (state["severity"] > 0).tolist() == [[True, True, False]]
    assert state["severity"][0, 0] > 0.85


def test_a_family_at_its_end_makes_room_for_the_other_one() -> None:
    generator = transforms("hue,fog,jpeg", kinds=2)
    state = start(generator, torch.zeros(1, 3, 8, 8))
    state["severity"] = torch.tensor([[1.0, 0.25, 0.0]])
    assert torch.allclose(generator.step(state, torch.tensor([[0.5, 0.0, 0.0]]))["severity"], torch.tensor([[1.0, 0.75, 0.0]]))


def test_all_follow_the_signal_when_asked_and_stay_in_range() -> None:
    generator = transforms("hue,fog,jpeg", choose="all")
    state = generator.step(start(generator, torch.zeros(1, 3, 8, 8)), torch.tensor([[0.5, -0.5, 1.5]]))
    assert state["severity"].tolist() == [[0.5, 0.0, 1.0]]


def test_signs_leave_the_choice_to_the_seed() -> None:
    generator = transforms("")
    state = start(generator, torch.zeros(200, 3, 8, 8), torch.arange(200))
    chosen = generator.step(state, torch.full_like(state["severity"], 0.1))["severity"].argmax(1)
    assert len(chosen.unique()) == len(FAMILIES)
    assert torch.equal(chosen, generator.step(state, torch.full_like(state["severity"], 0.1))["severity"].argmax(1))


def test_only_families_that_may_move_are_rendered(photos: Photos, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    for name, family in list(FAMILIES.items()):
        monkeypatch.setitem(FAMILIES, name, lambda *given, name=name, family=family: (seen.append(name), family(*given))[1])
    generator = transforms("")
    state = severities(generator, start(generator, photos(1)), fog=0.3)
    gradient_of(generator, state, brightness)
    assert seen == ["fog"]
    generator.render(start(generator, photos(1)))
    assert seen == ["fog"]  # nothing at work, and no gradient asked for
    gradient_of(generator, start(generator, photos(1)), brightness)
    assert seen == ["fog", *FAMILIES]
