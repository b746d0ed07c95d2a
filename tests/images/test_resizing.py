"""Resizing, cropping and normalising agree with the libraries models were trained with, and let gradients through."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from counterfoil.core.errors import BadPart
from counterfoil.parts import images

from .made import scene, tensor


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("target", [(40, 40), (20, 70), (150, 150), (100, 64)])
def test_resizing_agrees_with_pillow(interpolation: str, target: tuple[int, int]) -> None:
    picture = scene(100, 80)
    expected = tensor(picture.resize((target[1], target[0]), getattr(Image.Resampling, interpolation.upper())))
    resized = images.resize(tensor(picture)[None], target, interpolation=interpolation)[0]
    assert (resized - expected).abs().max() <= 1.6 / 255  # Pillow rounds to 8 bits after the width and after the height


def test_resizing_to_one_number_brings_the_shorter_side_there() -> None:
    assert images.resize(torch.rand(1, 3, 100, 151), 50).shape == (1, 3, 50, 75)
    assert images.resize(torch.rand(1, 3, 151, 100), 50).shape == (1, 3, 75, 50)


def test_resizing_to_the_same_size_changes_nothing() -> None:
    batch = torch.rand(2, 3, 20, 30)
    assert images.resize(batch, (20, 30)) is batch


def test_an_unknown_interpolation_is_refused() -> None:
    with pytest.raises(BadPart, match="no interpolation named 'cubist'"):
        images.resize(torch.rand(1, 3, 8, 8), 4, interpolation="cubist")


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_gradients_pass_through_resizing_and_normalisation(interpolation: str) -> None:
    batch = (torch.rand(1, 3, 6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 0.4 + 0.3).requires_grad_()

    def prepare(values: torch.Tensor) -> torch.Tensor:
        fitted = images.centre_crop(images.resize(values, 5, interpolation=interpolation), 4)
        return images.normalise(fitted, (0.5, 0.4, 0.3), (0.2, 0.2, 0.1))

    assert torch.autograd.gradcheck(prepare, (batch,))


def test_normalising_without_gradients_first_does_not_harm_gradients_later() -> None:
    batch = torch.rand(1, 3, 4, 4)
    with torch.inference_mode():
        images.normalise(batch, (0.11, 0.22, 0.33), (0.44, 0.55, 0.66))
    leaf = batch.clone().requires_grad_()
    images.normalise(leaf, (0.11, 0.22, 0.33), (0.44, 0.55, 0.66)).sum().backward()
    assert leaf.grad is not None
    assert torch.allclose(leaf.grad[0, :, 0, 0], 1 / torch.tensor([0.44, 0.55, 0.66]))


def test_grey_is_pillows() -> None:
    picture = scene(40, 30)
    expected = torch.from_numpy(np.array(picture.convert("L"))).float()
    assert (images.to_grey(tensor(picture)[None])[0, 0] * 255 - expected).abs().max() <= 0.51


@pytest.mark.parametrize(("height", "width", "size"), [(7, 9, 4), (8, 8, 8), (9, 6, (5, 3)), (5, 5, 8), (4, 9, 7)])
def test_the_centre_crop_is_torchvisions(height: int, width: int, size: int | tuple[int, int]) -> None:
    from torchvision.transforms.functional import center_crop

    batch = torch.rand(2, 3, height, width)
    assert torch.equal(images.centre_crop(batch, size), center_crop(batch, [size] if isinstance(size, int) else list(size)))


def test_what_is_missing_around_a_crop_is_filled() -> None:
    filled = images.centre_crop(torch.zeros(1, 3, 2, 2), 4, fill=(0.1, 0.2, 0.3))
    assert torch.allclose(filled[0, :, 0, 0], torch.tensor([0.1, 0.2, 0.3]))
    assert filled[0, :, 1:3, 1:3].abs().max() == 0


def test_fitting_gives_a_square() -> None:
    assert images.fit(torch.rand(2, 3, 31, 50), 16).shape == (2, 3, 16, 16)
