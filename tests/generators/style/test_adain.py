from __future__ import annotations

from pathlib import Path

import pytest
import torch

from counterfoil.core.errors import BadWeights
from counterfoil.parts.generators.style import adain
from tests.generators.named_weights import named_pictures, named_weights


def test_layers_are_numbered_as_in_the_published_weights() -> None:
    convolutions = {
        name.partition(".")[0]: tuple(value.shape[:2]) for name, value in adain.encoder().state_dict().items() if "w" in name
    }
    assert convolutions == {
        "0": (3, 3), "2": (64, 3), "5": (64, 64), "9": (128, 64), "12": (128, 128), "16": (256, 128),
        "19": (256, 256), "22": (256, 256), "25": (256, 256), "29": (512, 256),
    }  # fmt: skip
    convolutions = {
        name.partition(".")[0]: tuple(value.shape[:2]) for name, value in adain.decoder().state_dict().items() if "w" in name
    }
    assert convolutions == {
        "1": (256, 512), "5": (256, 256), "8": (256, 256), "11": (256, 256), "14": (128, 256),
        "18": (128, 128), "21": (64, 128), "25": (64, 64), "28": (3, 64),
    }  # fmt: skip


def test_sides_come_back() -> None:
    with torch.no_grad():
        features = adain.encoder()(named_pictures(1, 24))
        assert features.shape == (1, 512, 3, 3)
        assert adain.decoder()(features).shape == (1, 3, 24, 24)


def test_dressing_gives_the_other_look_and_keeps_the_pattern() -> None:
    features, other = named_pictures(2, 16) * 3, named_pictures(2, 16, name="other") - 4
    own, look = adain.statistics(features), adain.statistics(other)
    dressed = adain.dressed(adain.plain(features, own), look)
    assert torch.allclose(adain.statistics(dressed)[:, 0], look[:, 0], atol=1e-5)
    assert torch.allclose(adain.statistics(dressed)[:, 1], look[:, 1], rtol=1e-2)
    for row in range(2):
        for channel in range(3):
            both = torch.stack([features[row, channel].flatten(), dressed[row, channel].flatten()])
            assert torch.corrcoef(both)[0, 1] > 0.9999


def test_statistics_are_mean_and_spread() -> None:
    features = named_pictures(3, 16)
    expected = torch.stack([features.mean((2, 3)), features.flatten(2).std(2)], dim=1)
    assert torch.allclose(adain.statistics(features), expected, atol=1e-3)


def test_the_rest_of_vgg_is_left_out(tmp_path: Path) -> None:
    state = named_weights(adain.encoder().state_dict())
    torch.save({**state, "32.weight": torch.zeros(2), "51.bias": torch.zeros(2)}, tmp_path / "vgg.pth")
    network = adain.load(adain.encoder(), tmp_path / "vgg.pth")
    assert torch.equal(network[2].weight, state["2.weight"])
    assert not network.training
    assert not any(parameter.requires_grad for parameter in network.parameters())


def test_weights_of_another_network_name_the_keys(tmp_path: Path) -> None:
    state = named_weights(adain.encoder().state_dict())
    del state["9.bias"]
    torch.save({**state, "classifier.0.weight": torch.zeros(2)}, tmp_path / "vgg.pth")
    with pytest.raises(BadWeights, match=r"vgg.pth: .*lacks 9\.bias; it also has classifier\.0\.weight"):
        adain.load(adain.encoder(), tmp_path / "vgg.pth")
