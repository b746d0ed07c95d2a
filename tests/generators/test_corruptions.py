"""The families of corruptions, each against an independent computation, and what all of them keep to."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torchvision.transforms.functional as vision
from PIL import Image
from torch import Tensor

from counterfoil.parts.generators import corruptions as levels
from counterfoil.parts.generators.corruptions import COMMON, FAMILIES, JPEG_QUALITY, convolve, luma, streak

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


def test_stronger_impulses_keep_the_weaker_ones() -> None:
    grey = torch.full((1, 3, 32, 32), 0.5)
    weak, strong = corrupt("impulse-noise", grey, 0.3), corrupt("impulse-noise", grey, 0.6)
    assert torch.equal(strong[weak != 0.5], weak[weak != 0.5])


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
    grey = luma(images)[0]
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


def test_a_streak_lies_along_its_angle() -> None:
    level, steep = streak(9.0, torch.tensor(0.0)), streak(9.0, torch.tensor(90.0))
    assert torch.equal(level.nonzero()[:, 0].unique(), torch.tensor([5]))
    assert torch.allclose(level, steep.T, atol=1e-6)
    assert float(level.sum()) == pytest.approx(10, abs=1e-5)  # nine, and half a pixel at both ends


def test_convolution_mirrors_at_the_border() -> None:
    image = torch.arange(5.0).reshape(1, 1, 1, 5).expand(1, 3, 5, 5)
    made = convolve(image, torch.tensor([[0.0, 0, 0], [1, 0, 1], [0, 0, 0]]))
    assert made[0, 0, 0].tolist() == [1.0, 1.0, 2.0, 3.0, 3.0]


@pytest.mark.parametrize("name", ["snow", "frost"])
def test_snow_and_frost_whiten_dark_pictures(name: str) -> None:
    dark = torch.full((4, 3, 64, 64), 0.1)
    assert corrupt(name, dark, 1.0).clamp(0, 1).mean() > 0.2


def test_fog_hides_three_quarters_of_the_contrast(photos: Photos) -> None:
    one, other = photos(1), photos(1, seed=5)
    assert torch.allclose(corrupt("fog", one, 1.0) - corrupt("fog", other, 1.0), (one - other) / 4, atol=1e-5)


def test_between_levels_values_lie_on_straight_lines() -> None:
    values = (0.0, 1.0, 3.0, 4.0, 8.0, 10.0)
    assert levels._along(torch.tensor([0.0, 0.1, 0.2, 0.5, 0.9, 1.0]), values).tolist() == pytest.approx(
        [0, 0.5, 1, 3.5, 9, 10], abs=1e-5
    )


SEEDS = torch.arange(100, 116)

RANDOM = set(FAMILIES) - {"brightness", "contrast", "defocus-blur", "zoom-blur", "pixelate", "jpeg"}

Photos = Callable[..., Tensor]

every = pytest.mark.parametrize("name", list(FAMILIES))


def change(name: str, images: Tensor, severity: float | Tensor, seeds: Tensor = SEEDS) -> Tensor:
    return FAMILIES[name](images, torch.as_tensor(severity).expand(len(images), 1, 1, 1), seeds[: len(images)])


def test_all_of_imagenet_c_is_there() -> None:
    assert len(set(COMMON) & set(FAMILIES)) == len(COMMON) == 15


@every
def test_severity_zero_changes_nothing(name: str, photos: Photos) -> None:
    images = photos(4)
    assert (change(name, images, 0.0) - images).abs().max() < 1e-6


@every
def test_more_severity_is_more_change(name: str, photos: Photos) -> None:
    images = photos(4, 64)
    distances = torch.stack(
        [(change(name, images, dose).clamp(0, 1) - images).abs().mean((1, 2, 3)) for dose in (0.05, 0.2, 0.5, 1.0)]
    )
    assert (distances[0] > 0).all()
    assert (distances[1:] > 0.9 * distances[:-1]).all()  # pixels that fall between pixels hurt more than larger ones that fit
    assert (distances[-1] > distances[0]).all()


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
def test_gradients_pass_to_the_picture(name: str, photos: Photos) -> None:
    images = photos(1).requires_grad_()
    gradient = torch.autograd.grad((change(name, images, 0.5) * photos(1, seed=7)).sum(), images)[0]
    assert torch.isfinite(gradient).all()
    assert (gradient != 0).float().mean() > 0.5


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
def test_rows_of_a_batch_may_have_any_severities(name: str, photos: Photos) -> None:
    images, doses = photos(4), torch.tensor([0.0, 0.1, 0.55, 1.0]).reshape(4, 1, 1, 1)
    together = FAMILIES[name](images, doses, SEEDS[:4])
    for row in range(4):
        alone = FAMILIES[name](images[row : row + 1], doses[row : row + 1], SEEDS[row : row + 1])
        assert torch.allclose(alone, together[row : row + 1], atol=1e-5)


@every
@pytest.mark.parametrize("size", [(8, 8), (33, 47)])
def test_any_size_will_do(name: str, size: tuple[int, int]) -> None:
    images = torch.rand(2, 3, *size, generator=torch.Generator().manual_seed(0))
    for dose in (0.2, 1.0):
        changed = change(name, images, dose)
        assert changed.shape == images.shape
        assert torch.isfinite(changed).all()
