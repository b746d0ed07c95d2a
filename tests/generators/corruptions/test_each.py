"""What is particular to a family, against an independent computation."""

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
from counterfoil.parts.generators.corruptions import FAMILIES, JPEG_QUALITY, convolve, luma, streak

Photos = Callable[..., Tensor]


def change(name: str, images: Tensor, severity: float, *, seed: int = 1) -> Tensor:
    return FAMILIES[name](images, torch.full((len(images), 1, 1, 1), severity), torch.full((len(images),), seed))


def directions(name: str, images: Tensor) -> tuple[Tensor, Tensor]:
    """The two pictures a family makes at full severity, depending on the side the seed gives."""
    made = {tuple(picture.flatten().tolist()): picture for seed in range(12) for picture in change(name, images, 1.0, seed=seed)}
    first, second = made.values()
    return first, second


def test_gaussian_noise_reaches_its_strength() -> None:
    made = change("gaussian-noise", torch.full((1, 3, 64, 64), 0.5), 1.0)
    assert float((made - 0.5).std()) == pytest.approx(0.38, rel=0.03)


@pytest.mark.parametrize("light", [0.1, 0.5, 0.9])
def test_shot_noise_has_the_spread_of_counted_photons(light: float) -> None:
    made = change("shot-noise", torch.full((1, 3, 64, 64), light), 1.0)
    assert float((made - light).var()) == pytest.approx(light / 3, rel=0.06)


def test_impulses_hit_the_stated_share() -> None:
    made = change("impulse-noise", torch.full((1, 3, 64, 64), 0.5), 1.0)
    assert float((made == 0).float().mean()) == pytest.approx(0.135, abs=0.012)
    assert float((made == 1).float().mean()) == pytest.approx(0.135, abs=0.012)
    assert set(made.unique().tolist()) == {0.0, 0.5, 1.0}


def test_stronger_impulses_keep_the_weaker_ones() -> None:
    grey = torch.full((1, 3, 32, 32), 0.5)
    weak, strong = change("impulse-noise", grey, 0.3), change("impulse-noise", grey, 0.6)
    assert torch.equal(strong[weak != 0.5], weak[weak != 0.5])


@pytest.mark.parametrize("level", [1, 3, 5])
def test_jpeg_at_a_level_is_a_real_encoders_picture(level: int, photos: Photos) -> None:
    images = (photos(1, 32) * 255).round() / 255
    file = io.BytesIO()
    Image.fromarray((images[0].permute(1, 2, 0) * 255).byte().numpy()).save(file, "JPEG", quality=JPEG_QUALITY[level])
    expected = torch.from_numpy(np.array(Image.open(file))).permute(2, 0, 1) / 255
    assert torch.allclose(change("jpeg", images, level / 5)[0], expected, atol=1e-6)


def test_pixelation_leaves_one_value_a_block(photos: Photos) -> None:
    images = photos(1, 32)
    made = change("pixelate", images, 1.0)  # a quarter of the side: blocks of 4 by 4
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
    made = change("translation", images, 1.0)[0, 0]
    grid = torch.arange(65.0)
    down, across = (made.sum(1) @ grid / made.sum() - 32, made.sum(0) @ grid / made.sum() - 32)
    assert float(torch.hypot(down, across)) == pytest.approx(13, abs=0.01)


def test_hue_keeps_mean_and_strength_of_every_pixels_colour(photos: Photos) -> None:
    images = photos(2)
    made = change("hue", images, 0.6)
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
    made = change("contrast", images, 1.0)
    assert torch.allclose(made.mean((2, 3)), images.mean((2, 3)), atol=1e-5)
    assert torch.allclose(made.std((2, 3)), 0.05 * images.std((2, 3)), rtol=1e-3)


@pytest.mark.parametrize("name", ["defocus-blur", "motion-blur", "glass-blur", "zoom-blur"])
def test_blur_keeps_flat_pictures_and_smooths_textured_ones(name: str, photos: Photos) -> None:
    flat, textured = torch.full((1, 3, 64, 64), 0.4), photos(1, 64)
    assert torch.allclose(change(name, flat, 1.0), flat, atol=1e-5)

    def roughness(images: Tensor) -> float:
        return float(images.diff(dim=2).abs().mean() + images.diff(dim=3).abs().mean())

    assert roughness(change(name, textured, 1.0)) < 0.6 * roughness(textured)


def test_defocus_spreads_a_point_into_a_disc() -> None:
    point = torch.zeros(1, 3, 224, 224)
    point[:, :, 112, 112] = 1
    made = change("defocus-blur", point, 1.0)[0, 0]
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
    assert change(name, dark, 1.0).clamp(0, 1).mean() > 0.2


def test_fog_hides_three_quarters_of_the_contrast(photos: Photos) -> None:
    one, other = photos(1), photos(1, seed=5)
    assert torch.allclose(change("fog", one, 1.0) - change("fog", other, 1.0), (one - other) / 4, atol=1e-5)


def test_between_levels_values_lie_on_straight_lines() -> None:
    values = (0.0, 1.0, 3.0, 4.0, 8.0, 10.0)
    assert levels._along(torch.tensor([0.0, 0.1, 0.2, 0.5, 0.9, 1.0]), values).tolist() == pytest.approx(
        [0, 0.5, 1, 3.5, 9, 10], abs=1e-5
    )
