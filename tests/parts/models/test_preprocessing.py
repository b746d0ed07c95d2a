from __future__ import annotations

import pytest
import torch
from torch import nn

from counterfoil.core.errors import BadPart, BadSpec
from counterfoil.parts import registry
from counterfoil.parts.models.modules import ModuleModel
from counterfoil.parts.models.preprocessing import Preprocessing, share_seen, square
from counterfoil.parts.oracles.scoring import ClassifierOracle


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


def test_without_its_crop_an_image_of_the_models_size_reaches_it_untouched() -> None:
    own = Preprocessing(size=(24, 24), resize=(32, 32), resizing="shorter")
    images = torch.rand(2, 3, 24, 24, generator=torch.Generator().manual_seed(0))
    assert torch.equal(own.with_crop("none")(images), images)
    assert not torch.equal(own.with_crop("own")(images), images)


@pytest.mark.parametrize(
    ("made", "height", "width", "share"),
    [
        (Preprocessing(size=(224, 224), resize=(256, 256)), 224, 224, 0.875**2),
        (Preprocessing(size=(224, 224), resize=(256, 256)).with_crop("none"), 224, 224, 1.0),
        (Preprocessing(size=(224, 224)), 224, 448, 0.5),
        (Preprocessing(size=(224, 224), resizing="longer"), 224, 448, 1.0),
        (Preprocessing(size=(224, 224), resizing="squash"), 224, 448, 1.0),
        (Preprocessing(), 10, 20, 1.0),
    ],
)
def test_the_share_of_an_image_that_a_model_sees(made: Preprocessing, height: int, width: int, share: float) -> None:
    model = ModuleModel(nn.Flatten(), ["a", "b"], preprocessing=made)
    assert share_seen(ClassifierOracle(model), height, width) == pytest.approx(share)


@pytest.mark.parametrize("kind", ["timm:test_vit", "torchvision:mobilenet_v3_small"])
def test_the_crop_of_a_published_model_is_an_option(kind: str) -> None:
    own, whole = (registry.create("model", kind, {"pretrained": False, "crop": crop}) for crop in ("own", "none"))
    assert share_seen(own, 224, 224) < 0.95 and share_seen(whole, 224, 224) == 1
    with pytest.raises(BadSpec, match="crop: input should be 'own' or 'none', got 'some'"):
        registry.check_options("model", kind, {"crop": "some"})
