from __future__ import annotations

import torch

from counterfoil.parts.models.modules import GroupedModel
from counterfoil.testing import check_model, pictures
from tests.fakes import TinyModel
from tests.parts.created import grouped_model
from tests.worlds import FAKES

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


def test_the_models_contract_is_kept() -> None:
    check_model(GroupedModel(TinyModel(), GROUPS), size=16)
    assert not GroupedModel(TinyModel(differentiable=False), GROUPS).differentiable


def test_the_inner_model_is_found_by_name_with_its_options() -> None:
    model = grouped_model(f"python:{FAKES}:TinyModel", groups=GROUPS, options={"seed": 3})
    images = pictures(2, 16)
    expected = GroupedModel(TinyModel(seed=3), GROUPS).logits(images)
    assert torch.equal(model.logits(images), expected)
    assert model.provenance()["groups"] == "insect: 2, mammal: 2"


def test_a_subset_of_the_classes_is_a_group_of_one_each() -> None:
    images = pictures(4, 16)
    model = GroupedModel(TinyModel(), {"dog": ["dog"], "bee": ["bee"]})
    assert torch.allclose(model.logits(images), TinyModel().logits(images)[:, [3, 1]], atol=1e-6)
