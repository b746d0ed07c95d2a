from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from counterfoil.core.errors import BadPart, BadSpec, BadWeights
from counterfoil.parts import images as pictures
from counterfoil.parts import weights
from counterfoil.parts.contracts import State
from counterfoil.parts.generators.style import adain
from counterfoil.parts.generators.style import generator as module
from counterfoil.parts.generators.style.generator import StyleGenerator, looks_of, style
from counterfoil.testing import check_generator
from tests.generators.named_weights import named_pictures, named_weights


@pytest.fixture(scope="module", autouse=True)
def small_styles() -> Iterator[None]:
    """Style pictures are looked at in a quarter of the usual size, which is quicker."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "STYLE_SIDE", 64)
        yield


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Encoder and decoder with named weights."""
    root = tmp_path_factory.mktemp("adain")
    for name, network in (("encoder", adain.encoder()), ("decoder", adain.decoder())):
        # Wider than named weights are, since half of what comes out of a layer is cut off; and about mid-grey at the end.
        state = {key: value * (2**0.5 if value.dim() > 1 else 1) for key, value in named_weights(network.state_dict()).items()}
        if name == "decoder":
            state["28.bias"] += 0.5
        torch.save(state, root / f"{name}.pth")
    return {name: str(root / f"{name}.pth") for name in ("encoder", "decoder")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three style pictures, one of them deeper down, and a file that is none."""
    root = tmp_path_factory.mktemp("styles")
    (root / "deeper").mkdir()
    for number, place in enumerate(("a.png", "b.png", "deeper/c.png")):
        grain = named_pictures(1, 64, name=f"style {number}")[0] ** (1 + 2 * number)
        (root / place).write_bytes(pictures.png(grain))
    (root / "notes.txt").write_text("not a picture")
    return root


@pytest.fixture(scope="module")
def generators(files: dict[str, str], folder: Path) -> dict[str, StyleGenerator]:
    return {moves: style(str(folder), **files, moves=moves) for moves in ("mix", "statistics")}  # type: ignore[arg-type]


def start(generator: StyleGenerator, images: Tensor) -> State:
    return generator.start(images, torch.zeros(len(images), dtype=torch.long), torch.arange(len(images)))


@pytest.mark.parametrize("moves", ["mix", "statistics"])
def test_contract(generators: dict[str, StyleGenerator], moves: str) -> None:
    check_generator(generators[moves], size=16)


@pytest.mark.parametrize("moves", ["mix", "statistics"])
def test_the_plain_reconstruction_is_decoder_after_encoder(generators: dict[str, StyleGenerator], moves: str) -> None:
    generator, images = generators[moves], named_pictures(2, 16)
    with torch.no_grad():
        expected = generator.decoder(generator.encoder(images)).clamp(0, 1)
    assert torch.allclose(generator.render(start(generator, images)), expected, atol=1e-4)
    assert expected.std() > 0.01


def test_a_whole_share_of_one_style_is_its_transfer(generators: dict[str, StyleGenerator]) -> None:
    generator, images = generators["mix"], named_pictures(2, 16)
    state = start(generator, images)
    state["mix"][:, 1] = 1.0
    with torch.no_grad():
        features = generator.encoder(images)
        own, other = adain.statistics(features), generator.looks[1:2]
        transferred = adain.dressed(adain.plain(features, own), other.expand(2, -1, -1))
        half = generator.decoder(0.5 * transferred + 0.5 * features).clamp(0, 1)  # as the paper mixes content and style
        whole = generator.decoder(transferred).clamp(0, 1)
    assert torch.allclose(generator.render(state), whole, atol=1e-4)
    state["mix"][:, 1] = 0.5
    assert torch.allclose(generator.render(state), half, atol=1e-4)


def test_a_step_goes_part_of_the_way_to_the_style_that_is_favoured_most(generators: dict[str, StyleGenerator]) -> None:
    generator = generators["mix"]
    state = start(generator, named_pictures(2, 16))
    state = generator.step(state, torch.tensor([[0.3, 0.1, 0.0], [0.0, 0.6, 0.8]]))
    assert torch.allclose(state["mix"], torch.tensor([[0.1**0.5, 0.0, 0.0], [0.0, 0.0, 1.0]]))
    state = generator.step(state, torch.tensor([[0.0, 0.5, 0.0], [0.0, 0.0, 0.0]]))
    assert torch.allclose(state["mix"], torch.tensor([[0.5 * 0.1**0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]))


def test_shares_are_never_negative_and_come_to_one_at_most(generators: dict[str, StyleGenerator]) -> None:
    generator = generators["mix"]
    state = start(generator, named_pictures(4, 16))
    for number in range(30):
        state = generator.step(state, 2 * torch.randn(4, 3, generator=torch.Generator().manual_seed(number)))
        assert (state["mix"] >= 0).all() and (state["mix"].sum(1) <= 1 + 1e-6).all()


def test_where_every_style_helps_the_model_the_picture_goes_back(generators: dict[str, StyleGenerator]) -> None:
    generator = generators["mix"]
    against = torch.tensor([[-0.3, -0.1, -0.2]])
    state = generator.step(start(generator, named_pictures(1, 16)), against)
    assert torch.allclose(state["mix"], torch.tensor([[0.0, 0.14**0.5, 0.0]]))  # it had nothing to give up: the least evil
    back = generator.step(state, against)["mix"]
    assert torch.allclose(back, state["mix"] * (1 - 0.14**0.5))


def test_equal_signals_leave_the_choice_to_the_seed(generators: dict[str, StyleGenerator]) -> None:
    generator = generators["mix"]
    state = start(generator, named_pictures(1, 16).expand(40, -1, -1, -1))
    moved = generator.step(state, torch.full((40, 3), -0.1))["mix"]
    assert (moved > 0).sum(1).tolist() == [1] * 40
    assert len(moved.argmax(1).unique()) == 3


def test_statistics_stay_within_reach(files: dict[str, str], folder: Path) -> None:
    generator = style(str(folder), **files, moves="statistics", reach=0.5)
    state = start(generator, named_pictures(2, 16))
    state = generator.step(state, torch.full_like(state["statistics"], 0.4))
    assert torch.allclose(state["statistics"], torch.tensor(0.4))
    state = generator.step(state, torch.full_like(state["statistics"], 0.4))
    assert torch.allclose(state["statistics"], torch.tensor(0.5))


def test_statistics_are_counted_in_deviations_over_the_styles(generators: dict[str, StyleGenerator]) -> None:
    generator = generators["statistics"]
    state = start(generator, named_pictures(1, 16))
    state["statistics"][:, 0] = 1.0
    with torch.no_grad():
        look = state["own"].clone()
        look[:, 0] += generator.looks[:, 0].std(0)
        expected = generator.decoder(adain.dressed(state["pattern"], look)).clamp(0, 1)
    assert torch.allclose(generator.render(state), expected, atol=1e-5)


@pytest.mark.parametrize("moves", ["mix", "statistics"])
def test_rows_do_not_depend_on_their_batch(generators: dict[str, StyleGenerator], moves: str) -> None:
    generator, weighting = generators[moves], named_pictures(1, 16, name="weighting")
    images, others = named_pictures(8, 16), named_pictures(8, 16, name="others")
    mixed = torch.cat([others[:3], images[6:7], others[3:]])[:8]
    results = []
    for given, row in ((images, 6), (mixed, 3)):
        state = start(generator, given)
        state[moves] = state[moves] + torch.linspace(0.1, 0.2, state[moves][0].numel()).reshape(state[moves].shape[1:])
        leaf = state[moves].clone().requires_grad_()
        made = generator.render({**state, moves: leaf})
        results.append((made[row], torch.autograd.grad((made * weighting).sum(), leaf)[0][row], state["pattern"][row]))
    for here, there in zip(*results, strict=True):
        assert torch.equal(here, there)


def test_styles_are_read_from_all_folders_and_taken_evenly(
    generators: dict[str, StyleGenerator], files: dict[str, str], folder: Path
) -> None:
    assert len(generators["mix"].looks) == 3
    two = style(str(folder), **files, styles=2)
    assert torch.allclose(two.looks, generators["mix"].looks[:2])
    paths = [folder / "a.png"]
    assert torch.equal(looks_of(paths, two.encoder), generators["mix"].looks[:1])


def test_provenance_names_networks_and_styles(generators: dict[str, StyleGenerator], files: dict[str, str], folder: Path) -> None:
    account = generators["mix"].provenance()
    assert account["encoder"] == weights.file_sha256(files["encoder"])
    assert account["decoder"] == weights.file_sha256(files["decoder"])
    assert (account["styles"], account["moves"]) == ("3", "mix")
    assert account["style pictures"] != style(str(folder / "deeper"), **files).provenance()["style pictures"]


def test_moving_it_moves_everything(files: dict[str, str], folder: Path) -> None:
    generator = style(str(folder / "deeper"), **files)
    assert generator.to("meta") is generator
    assert generator.looks.device.type == "meta"
    assert next(generator.encoder.parameters()).device.type == next(generator.decoder.parameters()).device.type == "meta"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [({"moves": "both"}, "'mix' or 'statistics'"), ({"reach": 0.0}, "positive"), ({"styles": 0}, "at least one")],
)
def test_bad_options_are_refused(files: dict[str, str], folder: Path, options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(BadSpec, match=complaint):
        style(str(folder), **files, **options)


def test_one_style_has_no_deviation(files: dict[str, str], folder: Path) -> None:
    with pytest.raises(BadSpec, match="there is one; use two or more"):
        style(str(folder / "deeper"), **files, moves="statistics")


def test_bad_style_folders_are_refused(files: dict[str, str], tmp_path: Path) -> None:
    for place in ("", "/no/such/folder"):
        with pytest.raises(BadPart, match="no such folder"):
            style(place, **files)
    with pytest.raises(BadPart, match="no pictures in it"):
        style(str(tmp_path), **files)
    (tmp_path / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n broken")
    with pytest.raises(BadPart, match=r"style picture .*broken.png"):
        style(str(tmp_path), **files)


def test_bad_weights_are_refused(files: dict[str, str], folder: Path, tmp_path: Path) -> None:
    with pytest.raises(BadWeights, match="no such file"):
        style(str(folder), encoder="/no/such/file.pth", decoder=files["decoder"])
    (tmp_path / "pickle.pth").write_bytes(pickle.dumps(Path("x")))
    with pytest.raises(BadWeights, match="refused, it is a pickle"):
        style(str(folder), encoder=files["encoder"], decoder=str(tmp_path / "pickle.pth"))
    with pytest.raises(BadWeights, match="SHA-256 is"):
        style(str(folder), **files, decoder_sha256="0" * 64)
    with pytest.raises(BadWeights, match="another architecture"):
        style(str(folder), encoder=files["decoder"], decoder=files["decoder"])


def test_pictures_that_do_not_divide_are_refused(generators: dict[str, StyleGenerator]) -> None:
    with pytest.raises(BadSpec, match="multiples of 8; use 16 or 24"):
        start(generators["mix"], named_pictures(1, 20))
