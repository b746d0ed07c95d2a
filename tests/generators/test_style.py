"""Style transfer: the networks by their published numbering, and the search among styles."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from counterfoil.core.errors import BadSpec
from counterfoil.parts import images as pictures
from counterfoil.parts.generators import style as module
from counterfoil.parts.generators.style import StyleGenerator, read_styles, style
from tests.generators.named_weights import named_pictures, named_weights
from tests.generators.small import start


@pytest.fixture(scope="module", autouse=True)
def small_styles() -> Iterator[None]:
    """Style images are read in a quarter of the usual size, which is quicker."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "STYLE_SIDE", 64)
        yield


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Encoder and decoder with named weights."""
    root = tmp_path_factory.mktemp("adain")
    for name, network in (("encoder", module.build_encoder()), ("decoder", module.build_decoder())):
        # Wider than named weights are, since half of what comes out of a layer is cut off; and about mid-grey at the end.
        state = {key: value * (2**0.5 if value.dim() > 1 else 1) for key, value in named_weights(network.state_dict()).items()}
        if name == "decoder":
            state["28.bias"] += 0.5
        torch.save(state, root / f"{name}.pth")
    return {name: str(root / f"{name}.pth") for name in ("encoder", "decoder")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three style images, one of them deeper down, and a file that is none."""
    root = tmp_path_factory.mktemp("styles")
    (root / "deeper").mkdir()
    for number, place in enumerate(("a.png", "b.png", "deeper/c.png")):
        grain = named_pictures(1, 64, name=f"style {number}")[0] ** (1 + 2 * number)
        (root / place).write_bytes(pictures.png(grain))
    (root / "notes.txt").write_text("not an image")
    return root


@pytest.fixture(scope="module")
def generator(files: dict[str, str], folder: Path) -> StyleGenerator:
    return style(str(folder), **files)


def test_the_plain_reconstruction_is_decoder_after_encoder(generator: StyleGenerator) -> None:
    images = named_pictures(2, 16)
    with torch.no_grad():
        expected = generator.decoder(generator.encoder(images)).clamp(0, 1)
    assert torch.allclose(generator.render(start(generator, images)), expected, atol=1e-4)
    assert expected.std() > 0.01


def test_a_whole_share_of_one_style_is_its_transfer(generator: StyleGenerator) -> None:
    images = named_pictures(2, 16)
    state = start(generator, images)
    state["mix"][:, 1] = 1.0
    with torch.no_grad():
        features = generator.encoder(images)
        own, other = module.statistics(features), generator.styles[1:2]
        transferred = module.restyle(module.normalise(features, own), other.expand(2, -1, -1))
        half = generator.decoder(0.5 * transferred + 0.5 * features).clamp(0, 1)  # as the paper mixes content and style
        whole = generator.decoder(transferred).clamp(0, 1)
    assert torch.allclose(generator.render(state), whole, atol=1e-4)
    state["mix"][:, 1] = 0.5
    assert torch.allclose(generator.render(state), half, atol=1e-4)


def test_a_step_goes_part_of_the_way_to_the_style_that_is_favoured_most(generator: StyleGenerator) -> None:
    state = start(generator, named_pictures(2, 16))
    state = generator.step(state, torch.tensor([[0.3, 0.1, 0.0], [0.0, 0.6, 0.8]]))
    assert torch.allclose(state["mix"], torch.tensor([[0.1**0.5, 0.0, 0.0], [0.0, 0.0, 1.0]]))
    state = generator.step(state, torch.tensor([[0.0, 0.5, 0.0], [0.0, 0.0, 0.0]]))
    assert torch.allclose(state["mix"], torch.tensor([[0.5 * 0.1**0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]))


def test_shares_are_never_negative_and_come_to_one_at_most(generator: StyleGenerator) -> None:
    state = start(generator, named_pictures(4, 16))
    for number in range(30):
        state = generator.step(state, 2 * torch.randn(4, 3, generator=torch.Generator().manual_seed(number)))
        assert (state["mix"] >= 0).all() and (state["mix"].sum(1) <= 1 + 1e-6).all()


def test_where_every_style_helps_the_model_the_picture_goes_back(generator: StyleGenerator) -> None:
    against = torch.tensor([[-0.3, -0.1, -0.2]])
    state = generator.step(start(generator, named_pictures(1, 16)), against)
    assert torch.allclose(state["mix"], torch.tensor([[0.0, 0.14**0.5, 0.0]]))  # it had nothing to give up: the least evil
    back = generator.step(state, against)["mix"]
    assert torch.allclose(back, state["mix"] * (1 - 0.14**0.5))


def test_equal_signals_leave_the_choice_to_the_seed(generator: StyleGenerator) -> None:
    state = start(generator, named_pictures(1, 16).expand(40, -1, -1, -1))
    moved = generator.step(state, torch.full((40, 3), -0.1))["mix"]
    assert (moved > 0).sum(1).tolist() == [1] * 40
    assert len(moved.argmax(1).unique()) == 3


def test_styles_are_read_from_all_folders_and_taken_evenly(
    generator: StyleGenerator, files: dict[str, str], folder: Path
) -> None:
    assert len(generator.styles) == 3
    two = style(str(folder), **files, styles=2)
    assert torch.allclose(two.styles, generator.styles[:2])
    paths = [folder / "a.png"]
    assert torch.equal(read_styles(paths, two.encoder), generator.styles[:1])


def test_pictures_that_do_not_divide_are_refused(generator: StyleGenerator) -> None:
    with pytest.raises(BadSpec, match="multiples of 8; use 16 or 24"):
        start(generator, named_pictures(1, 20))


def convolutions(network: torch.nn.Sequential) -> dict[str, tuple[int, int]]:
    named = network.state_dict().items()
    return {name.partition(".")[0]: (value.shape[0], value.shape[1]) for name, value in named if "weight" in name}


def test_layers_are_numbered_as_in_the_published_weights() -> None:
    assert convolutions(module.build_encoder()) == {
        "0": (3, 3), "2": (64, 3), "5": (64, 64), "9": (128, 64), "12": (128, 128), "16": (256, 128),
        "19": (256, 256), "22": (256, 256), "25": (256, 256), "29": (512, 256),
    }  # fmt: skip
    assert convolutions(module.build_decoder()) == {
        "1": (256, 512), "5": (256, 256), "8": (256, 256), "11": (256, 256), "14": (128, 256),
        "18": (128, 128), "21": (64, 128), "25": (64, 64), "28": (3, 64),
    }  # fmt: skip


def test_dressing_gives_the_other_look_and_keeps_the_pattern() -> None:
    features, other = named_pictures(2, 16) * 3, named_pictures(2, 16, name="other") - 4
    own, look = module.statistics(features), module.statistics(other)
    dressed = module.restyle(module.normalise(features, own), look)
    assert torch.allclose(module.statistics(dressed)[:, 0], look[:, 0], atol=1e-5)
    assert torch.allclose(module.statistics(dressed)[:, 1], look[:, 1], rtol=1e-2)
    for row in range(2):
        for channel in range(3):
            both = torch.stack([features[row, channel].flatten(), dressed[row, channel].flatten()])
            assert torch.corrcoef(both)[0, 1] > 0.9999


def test_the_rest_of_vgg_is_left_out(tmp_path: Path) -> None:
    state = named_weights(module.build_encoder().state_dict())
    torch.save({**state, "32.weight": torch.zeros(2), "51.bias": torch.zeros(2)}, tmp_path / "vgg.pth")
    network = module.load(module.build_encoder(), tmp_path / "vgg.pth")
    assert torch.equal(network[2].weight, state["2.weight"])
    assert not network.training
    assert not any(parameter.requires_grad for parameter in network.parameters())


def test_statistics_of_features_are_mean_and_spread() -> None:
    features = named_pictures(3, 16)
    expected = torch.stack([features.mean((2, 3)), features.flatten(2).std(2)], dim=1)
    assert torch.allclose(module.statistics(features), expected, atol=1e-3)
