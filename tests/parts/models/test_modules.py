"""Modules as models: preprocessing, what they answer, and groups of their classes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from counterfoil.core.errors import BadPart, BadSpec
from counterfoil.parts import registry
from counterfoil.parts.models.modules import GroupedModel, ModuleModel
from counterfoil.parts.models.preprocessing import Preprocessing, share_seen, square
from counterfoil.parts.oracles.scoring import ClassifierOracle
from counterfoil.testing import pictures
from tests.fakes import TinyModel
from tests.parts.created import grouped_model
from tests.worlds import FAKES


class Means(nn.Module):
    """Scores three classes by the mean of each colour."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))
        self.dropout = nn.Dropout(0.5)

    def forward(self, images: Tensor) -> Tensor:
        return self.dropout(images.mean(dim=(2, 3)) * self.scale)


class Answering(nn.Module):
    """Answers whatever it is told to."""

    def __init__(self, answer: object) -> None:
        super().__init__()
        self.answer = answer

    def forward(self, images: Tensor) -> object:
        return self.answer


def test_logits_are_those_of_the_preprocessed_pictures() -> None:
    batch = torch.rand(2, 3, 20, 30)
    model = ModuleModel(Means(), ["red", "green", "blue"], preprocessing=square(8, mean=(0.1,) * 3, std=(0.5,) * 3))
    assert model.size == 8
    assert torch.allclose(model.logits(batch), (square(8)(batch).mean(dim=(2, 3)) - 0.1) / 0.5, atol=1e-6)


def test_gradients_reach_the_pictures_but_not_the_weights() -> None:
    batch = torch.rand(2, 3, 8, 8, requires_grad=True)
    model = ModuleModel(Means(), ["red", "green", "blue"])
    model.logits(batch)[:, 1].sum().backward()
    assert batch.grad is not None
    assert torch.allclose(batch.grad[:, 1], torch.full((2, 8, 8), 1 / 64))
    assert all(parameter.grad is None for parameter in model.module.parameters())


def test_an_output_with_logits_in_it_is_understood() -> None:
    model = ModuleModel(Answering(SimpleNamespace(logits=torch.ones(1, 2, dtype=torch.float16))), ["a", "b"])
    assert model.logits(torch.rand(1, 3, 4, 4)).dtype == torch.float32


def test_more_outputs_than_names_are_refused() -> None:
    with pytest.raises(BadPart, match=r"scores of shape \(1, 1001\) for 1 images and 2 class names"):
        ModuleModel(Answering(torch.zeros(1, 1001)), ["a", "b"]).logits(torch.rand(1, 3, 4, 4))


def test_an_answer_that_is_no_logits_is_refused() -> None:
    with pytest.raises(BadPart, match="answers with a tuple"):
        ModuleModel(Answering((1, 2)), ["a", "b"]).logits(torch.rand(1, 3, 4, 4))


@pytest.mark.parametrize("classes", ["ab", [], ["one"]])
def test_a_model_without_class_names_is_refused(classes: object) -> None:
    with pytest.raises(BadPart, match="names of two or more classes"):
        ModuleModel(Means(), classes)  # type: ignore[arg-type]


def test_provenance_changes_with_the_weights() -> None:
    model = ModuleModel(Means(), ["red", "green", "blue"], origin={"source": "here"})
    before = model.provenance()
    assert before["source"] == "here"
    model.module.scale.data[0] = 2  # type: ignore[union-attr, operator]
    assert model.provenance()["weights"] != before["weights"]


def test_a_square_is_resized_cropped_and_normalised() -> None:
    prepared = square(32, mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25), crop=0.5)(torch.full((1, 3, 100, 120), 0.75))
    assert prepared.shape == (1, 3, 32, 32)
    assert torch.allclose(prepared, torch.ones(()))
    assert square(32, crop=0.5).resize == (64, 64)


def test_the_longer_side_is_filled_around() -> None:
    prepared = Preprocessing(size=(8, 8), resizing="longer", fill=(1.0, 0.0, 0.0))(torch.full((1, 3, 4, 8), 0.5))
    assert prepared[0, :, 0, 0].tolist() == [1, 0, 0]
    assert torch.allclose(prepared[0, :, 2:6], torch.tensor(0.5))


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


GROUPS = {"insect": ["ant", "bee"], "mammal": ["cat", "dog"]}


def test_a_groups_probability_is_the_sum_of_its_members() -> None:
    images = pictures(4, 16)
    each = TinyModel().logits(images).softmax(dim=1)
    together = GroupedModel(TinyModel(), GROUPS).logits(images).softmax(dim=1)
    assert torch.allclose(together, torch.stack([each[:, :2].sum(1), each[:, 2:].sum(1)], dim=1), atol=1e-6)


def test_classes_in_no_group_are_left_out_or_kept_as_one() -> None:
    images, groups = pictures(4, 16), {"insect": ["ant", "bee"], "dog": ["dog"]}
    each = TinyModel().logits(images).softmax(dim=1)
    dropped = GroupedModel(TinyModel(), groups)
    kept = GroupedModel(TinyModel(), groups, others="keep")
    assert list(dropped.classes) == ["insect", "dog"]
    assert list(kept.classes) == ["insect", "dog", "(other)"]
    assert torch.allclose(kept.logits(images).softmax(dim=1)[:, 2], each[:, 2], atol=1e-6)
    assert torch.allclose(dropped.logits(images).softmax(dim=1)[:, 1], each[:, 3] / (1 - each[:, 2]), atol=1e-6)


def test_the_inner_model_is_found_by_name_with_its_options() -> None:
    model = grouped_model(f"python:{FAKES}:TinyModel", groups=GROUPS, options={"seed": 3})
    images = pictures(2, 16)
    expected = GroupedModel(TinyModel(seed=3), GROUPS).logits(images)
    assert torch.equal(model.logits(images), expected)
    assert model.provenance()["groups"] == "insect: 2, mammal: 2"
