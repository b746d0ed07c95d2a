from __future__ import annotations

import pytest
import torch

from counterfoil.core.errors import BadPart
from counterfoil.parts.models.preprocessing import Preprocessing, square


def test_the_default_leaves_pictures_alone() -> None:
    batch = torch.rand(2, 3, 9, 7)
    assert Preprocessing()(batch) is batch


def test_grey_is_weighed_as_pillow_does() -> None:
    pure = torch.eye(3)[:, :, None, None]  # a red, a green and a blue pixel
    assert Preprocessing(grey=True)(pure).flatten().tolist() == pytest.approx([0.299, 0.587, 0.114])


def test_a_square_is_resized_cropped_and_normalised() -> None:
    prepared = square(32, mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25), crop=0.5)(torch.full((1, 3, 100, 120), 0.75))
    assert prepared.shape == (1, 3, 32, 32)
    assert torch.allclose(prepared, torch.ones(()))
    assert square(32, crop=0.5).resize == (64, 64)


def test_the_longer_side_is_filled_around() -> None:
    prepared = Preprocessing(size=(8, 8), resizing="longer", fill=(1.0, 0.0, 0.0))(torch.full((1, 3, 4, 8), 0.5))
    assert prepared[0, :, 0, 0].tolist() == [1, 0, 0]
    assert torch.allclose(prepared[0, :, 2:6], torch.tensor(0.5))


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("grey", [False, True])
def test_gradients_reach_the_pictures(interpolation: str, grey: bool) -> None:
    batch = (torch.rand(1, 3, 12, 12, generator=torch.Generator().manual_seed(0)) * 0.4 + 0.3).requires_grad_()
    levels = (0.5,) if grey else (0.5, 0.5, 0.5)
    prepared = Preprocessing(size=(6, 6), resize=(8, 8), interpolation=interpolation, mean=levels, std=levels, grey=grey)(batch)
    prepared.sum().backward()
    assert batch.grad is not None
    assert (batch.grad[..., 4:8, 4:8] != 0).all()


def test_each_picture_is_treated_by_itself() -> None:
    batch = torch.rand(3, 3, 20, 20)
    prepared = Preprocessing(size=(8, 8), resize=(10, 10), interpolation="bicubic")
    assert torch.allclose(prepared(batch)[1:2], prepared(batch[1:2]))


@pytest.mark.parametrize(
    "settings",
    [{"mean": (0.5,), "std": (0.5,)}, {"mean": (0.5,) * 3, "std": (0.5,) * 3, "grey": True}, {"mean": (0.5,) * 3}],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(BadPart, match="preprocessing: "):
        Preprocessing(**settings)  # type: ignore[arg-type]


def test_a_crop_of_more_than_everything_is_refused() -> None:
    with pytest.raises(BadPart, match="crop is the share"):
        square(32, crop=1.5)
