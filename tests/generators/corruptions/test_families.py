"""What holds for every family: nothing at severity 0, more with more, gradients, fixed patterns, any size."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from counterfoil.parts.generators.corruptions import COMMON, FAMILIES

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
    # Resampling a textured picture is only smooth between pixels, so those slopes are taken over a very short way.
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
