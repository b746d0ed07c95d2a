from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from counterfoil.core.errors import LabelMismatch
from counterfoil.parts import registry
from counterfoil.parts.contracts import Oracle
from counterfoil.parts.models.modules import ModuleModel
from counterfoil.parts.oracles.scoring import ClassifierOptions, ClassifierOracle, classifier_oracle


class Colours(nn.Module):
    """Scores red, green, blue and grey by the colours' means."""

    def forward(self, images: Tensor) -> Tensor:
        means = images.mean(dim=(2, 3))
        return 10 * torch.cat([means, 1 - means.std(dim=1, keepdim=True)], dim=1)


@pytest.fixture
def model() -> ModuleModel:
    return ModuleModel(Colours(), ["red", "green", "blue", "grey"], aliases=[["rot"], ["grün"], ["blau"], ["grau"]])


def plain(*colours: tuple[float, float, float]) -> Tensor:
    return torch.tensor(colours, dtype=torch.float32)[:, :, None, None].expand(-1, -1, 4, 4).contiguous()


def test_the_label_must_be_the_most_probable_of_the_bound_classes(model: ModuleModel) -> None:
    oracle = ClassifierOracle(model).bind(["Blue", "Red"])
    assert isinstance(oracle, Oracle)
    batch = plain((0.9, 0, 0.1), (0.9, 0, 0.1), (0.2, 0.9, 0.3))
    verdicts = oracle.judge(batch, torch.tensor([1, 0, 0]))
    expected = torch.tensor([[0.1, 0.9], [0.1, 0.9], [0.3, 0.2]]).mul(10).softmax(dim=1)
    assert verdicts.keeps_label.tolist() == [1, 0, 1]  # green and grey are not asked about
    assert verdicts.predicted.tolist() == [1, 1, 0]
    assert verdicts.scores.tolist() == pytest.approx([expected[0, 1].item(), expected[1, 0].item(), expected[2, 0].item()])


def test_aliases_of_the_model_count(model: ModuleModel) -> None:
    verdicts = ClassifierOracle(model).bind(["grun", "rot"]).judge(plain((0, 1, 0)), torch.tensor([0]))
    assert verdicts.keeps_label.tolist() == [1]


def test_classes_the_model_does_not_know_are_refused(model: ModuleModel) -> None:
    with pytest.raises(LabelMismatch, match="oracle classifier:colours: 1 of 2 classes are not among its 4"):
        ClassifierOracle(model, name="colours").bind(["red", "yellow"])


@pytest.mark.parametrize(("unsure", "expected"), [("reject", [1, 0]), ("abstain", [1, -1])])
def test_below_its_confidence_it_rejects_or_abstains(
    model: ModuleModel, monkeypatch: pytest.MonkeyPatch, unsure: str, expected: list[int]
) -> None:
    asked: list[object] = []
    monkeypatch.setattr(registry, "create", lambda *arguments: asked.append(arguments) or model)
    oracle = classifier_oracle("lab:colours", ClassifierOptions(0.9, below_threshold=unsure, options={"depth": 3}))
    assert asked == [("model", "lab:colours", {"depth": 3})]
    batch = plain((1, 0, 0), (0.5, 0.45, 0.4))
    assert oracle.bind(["red", "green", "blue"]).judge(batch, torch.tensor([0, 0])).keeps_label.tolist() == expected
