from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from counterfoil.core.errors import BadPart
from counterfoil.parts.contracts import Model
from counterfoil.parts.models.modules import ModuleModel
from counterfoil.parts.models.preprocessing import square


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


def test_a_module_becomes_a_frozen_model_in_evaluation_mode() -> None:
    model = ModuleModel(Means().train(), ["red", "green", "blue"])
    assert isinstance(model, Model)
    assert not model.module.training
    assert not any(parameter.requires_grad for parameter in model.module.parameters())
    assert model.size is None


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
