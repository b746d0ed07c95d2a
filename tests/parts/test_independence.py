from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from counterfoil.core.errors import BadPart
from counterfoil.parts import registry
from counterfoil.parts.models.http_model import HttpModel
from counterfoil.parts.models.modules import GroupedModel, ModuleModel
from counterfoil.parts.oracles.ensemble import EnsembleOracle
from counterfoil.parts.oracles.human import human_oracle
from counterfoil.parts.oracles.scoring import ClassifierOracle
from counterfoil.protocols import provenance
from tests.fakes import TinyModel
from tests.parts.created import clip_oracle, hf_model
from tests.parts.oracles.conftest import clip_folder

__all__ = ["clip_folder"]
NAMES = ["ant", "bee", "cat", "dog"]


def network(seed: int = 0, *, trunk: nn.Module | None = None) -> nn.Sequential:
    """A trunk and a head with weights of their own, unless the trunk is another's."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        own = nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        return nn.Sequential(trunk or own, nn.Linear(32, 40))


def model(module: nn.Module) -> ModuleModel:
    return ModuleModel(module, NAMES)


def oracle(module: nn.Module) -> ClassifierOracle:
    return ClassifierOracle(model(module))


def test_other_weights_are_independent() -> None:
    assert provenance.check_independent(model(network(0)), oracle(network(1))) is None
    assert provenance.shared_weights(model(network(0)), oracle(network(1))) == 0


def test_the_model_itself_is_refused_as_an_oracle() -> None:
    with pytest.raises(BadPart, match=r"not independent: the hash of its weights .* choose another, or set force=true"):
        provenance.check_independent(model(network(0)), oracle(network(0)))


def test_with_force_it_is_let_pass_and_noted() -> None:
    noted = provenance.check_independent(model(network(0)), oracle(network(0)), force=True)
    assert noted is not None and noted.endswith("the run was forced")


def test_a_common_trunk_is_found_under_another_head() -> None:
    first = network(0)
    second = network(1, trunk=first[0])
    with pytest.raises(BadPart, match=r"it shares 89% of its weights with the model under test"):
        provenance.check_independent(model(first), oracle(second))


def test_the_same_network_under_other_names_is_found() -> None:
    class Renamed(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.something_else = inner

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return self.something_else(images)

    assert provenance.same_source(model(network(0)), oracle(Renamed(network(0)))) is None
    assert provenance.shared_weights(model(network(0)), oracle(Renamed(network(0)))) == pytest.approx(1)


def test_weights_that_are_alike_everywhere_do_not_count() -> None:
    def plain(seed: int) -> nn.Module:
        return nn.Sequential(network(seed), nn.LayerNorm(4), nn.Sequential(nn.BatchNorm1d(512), nn.BatchNorm2d(1024)))

    assert provenance.shared_weights(model(plain(0)), oracle(plain(1))) == 0


def test_members_and_wrapped_models_are_looked_into() -> None:
    inside = EnsembleOracle([oracle(network(1)), ClassifierOracle(GroupedModel(model(network(0)), {"a": [0], "b": [1]}))])
    with pytest.raises(BadPart, match="not independent"):
        provenance.check_independent(model(network(0)), inside)
    assert provenance.check_independent(model(network(2)), inside) is None
    plain = TinyModel(seed=4)
    assert provenance.shared_weights(plain, EnsembleOracle([oracle(network(1)), ClassifierOracle(plain)])) > 0.2


def test_a_clip_under_test_may_not_judge_itself(clip_folder: Path) -> None:
    tested = hf_model(str(clip_folder), classes=NAMES)
    with pytest.raises(BadPart, match="the hash of its weights"):
        provenance.check_independent(tested, clip_oracle(str(clip_folder)))
    trunk = nn.Sequential(tested.encoder.model.vision_model)  # type: ignore[union-attr]
    assert provenance.shared_weights(model(trunk), clip_oracle(str(clip_folder))) == pytest.approx(1)


def test_one_endpoint_is_one_model() -> None:
    def http_model(url: str) -> HttpModel:
        return registry.create("model", url, {"classes": NAMES})

    first: Any = http_model("http://host/a")
    with pytest.raises(BadPart, match="its endpoint http://host/a is that of the model"):
        provenance.check_independent(first, ClassifierOracle(http_model("http://host/a")))
    assert provenance.check_independent(first, ClassifierOracle(http_model("http://host/b"))) is None


def test_an_oracle_without_weights_is_independent() -> None:
    assert provenance.check_independent(model(network(0)), human_oracle()) is None
