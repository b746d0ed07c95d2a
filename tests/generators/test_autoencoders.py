from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from counterfoil.core.errors import BadPart, BadSpec, BadWeights
from counterfoil.parts import weights
from counterfoil.parts.contracts import State
from counterfoil.parts.generators.autoencoders import VectorAutoencoder, autoencoder
from counterfoil.parts.generators.latent import LatentGenerator
from counterfoil.testing import check_generator, pictures
from tests.generators.conftest import save_network

NAMES = ["VQModel", "AutoencoderKL", "AutoencoderTiny"]

WEIGHTS = "diffusion_pytorch_model.safetensors"


def start(generator: LatentGenerator, images: Tensor) -> State:
    return generator.start(images, torch.zeros(len(images), dtype=torch.long), torch.arange(len(images)))


def forward(folder: Path, images: Tensor) -> Tensor:
    """The library's own network on images in [0, 1], by its own forward pass."""
    import diffusers

    name = json.loads((folder / "config.json").read_text())["_class_name"]
    network = getattr(diffusers, name).from_pretrained(folder).eval()
    with torch.no_grad():
        if name == "AutoencoderTiny":  # its forward also rounds latents to 8 bits, for storage
            samples = network.decode(network.encode(images * 2 - 1).latents).sample
        else:
            samples = network(images * 2 - 1).sample
    return ((samples + 1) / 2).clamp(0, 1)


@pytest.mark.parametrize("name", NAMES)
def test_contract(networks: dict[str, Path], name: str) -> None:
    check_generator(autoencoder(str(networks[name])), size=32, exact=True)


@pytest.mark.parametrize("name", NAMES)
def test_the_reconstruction_is_the_networks_own(networks: dict[str, Path], name: str) -> None:
    generator, images = autoencoder(str(networks[name])), pictures(8)
    rendered = generator.render(start(generator, images))
    # The library adds and takes away the latent on the way to a code, which rounds the last bit.
    torch.testing.assert_close(rendered, forward(networks[name], images), atol=1e-5, rtol=0)
    assert rendered.std() > 0.01  # an image, not one grey


@pytest.mark.parametrize("config", [{"lookup_from_codebook": True}, {"norm_type": "spatial", "block_out_channels": (32, 32, 32)}])
def test_other_vector_networks_reconstruct_alike_in_both_spaces(tmp_path: Path, config: dict[str, object]) -> None:
    folder, images = save_network(tmp_path, "VQModel", **config), pictures(8)
    for space in ("before", "code"):
        generator = autoencoder(str(folder), space=space)  # type: ignore[arg-type]
        torch.testing.assert_close(generator.render(start(generator, images)), forward(folder, images), atol=1e-5, rtol=0)


def test_the_network_is_frozen_float32_and_in_evaluation_mode(networks: dict[str, Path], tmp_path: Path) -> None:
    folder = shutil.copytree(networks["AutoencoderKL"], tmp_path / "half")
    save_file({name: value.half() for name, value in load_file(folder / WEIGHTS).items()}, folder / WEIGHTS, {"format": "pt"})
    network = autoencoder(str(folder)).autoencoder.network  # type: ignore[attr-defined]
    assert not network.training
    assert not any(parameter.requires_grad for parameter in network.parameters())
    assert {parameter.dtype for parameter in network.parameters()} == {torch.float32}


def test_the_posterior_is_not_sampled(networks: dict[str, Path]) -> None:
    generator, images = autoencoder(str(networks["AutoencoderKL"])), pictures()
    before = torch.get_rng_state()
    first, second = start(generator, images), start(generator, images)
    assert torch.equal(first["latent"], second["latent"])
    assert torch.equal(torch.get_rng_state(), before)


def test_before_quantisation_a_tiny_step_shows_nothing_and_on_the_code_it_does(networks: dict[str, Path]) -> None:
    images = pictures()
    shown = {}
    for space in ("before", "code"):
        generator = autoencoder(str(networks["VQModel"]), space=space)  # type: ignore[arg-type]
        state = start(generator, images)
        state["latent"] = start(autoencoder(str(networks["VQModel"]), space="code"), images)["latent"]  # right on the codes
        moved = generator.step(state, torch.full_like(state["latent"], 1e-3))
        shown[space] = (generator.render(moved) - generator.render(state)).abs().max().item()
    assert shown["before"] <= 1e-6  # the same codes, found by z + (code - z), which rounds
    assert shown["code"] > 1e-5


def test_before_quantisation_pictures_are_always_of_codes(networks: dict[str, Path]) -> None:
    generator = autoencoder(str(networks["VQModel"]))
    state = start(generator, pictures())
    moved = generator.step(state, torch.randn(state["latent"].shape, generator=torch.Generator().manual_seed(0)))
    assert isinstance(generator.autoencoder, VectorAutoencoder)
    codes = generator.autoencoder.quantise(moved["latent"]).permute(0, 2, 3, 1).reshape(-1, 1, 4)
    book = generator.autoencoder.network.quantize.embedding.weight
    assert (codes - book).abs().amax(2).amin(1).max() < 1e-5
    assert torch.equal(
        generator.render(moved), generator.autoencoder.decode(generator.autoencoder.quantise(moved["latent"])).clamp(0, 1)
    )


def test_the_straight_through_gradient_is_that_of_the_code(networks: dict[str, Path]) -> None:
    before, code = autoencoder(str(networks["VQModel"])), autoencoder(str(networks["VQModel"]), space="code")
    images, weighting = pictures(), pictures(seed=3)
    gradients = []
    for generator in (before, code):
        leaf = start(generator, images)["latent"].requires_grad_()
        gradients.append(torch.autograd.grad((generator.render({"latent": leaf}) * weighting).sum(), leaf)[0])
    assert torch.equal(*gradients)
    assert gradients[0].abs().sum() > 0


def test_the_size_is_the_networks_own_unless_asked_otherwise(networks: dict[str, Path], tmp_path: Path) -> None:
    assert autoencoder(str(networks["VQModel"])).size == 32
    assert autoencoder(str(networks["VQModel"]), size=48).size == 48
    assert autoencoder(str(networks["AutoencoderTiny"])).size is None  # it is of any size
    down, up = ("DownEncoderBlock2D",) * 4, ("UpDecoderBlock2D",) * 4
    eight = save_network(tmp_path, "AutoencoderKL", block_out_channels=(8,) * 4, down_block_types=down, up_block_types=up)
    assert autoencoder(str(eight)).size is None  # 32 for a network that divides by 8 is a placeholder


@pytest.mark.parametrize(("size", "advice"), [(50, "use 48 or 52"), (3, "use 4"), (0, "use 4"), (-4, "multiples of 4")])
def test_a_size_that_does_not_divide_is_refused(networks: dict[str, Path], size: int, advice: str) -> None:
    with pytest.raises(BadSpec, match=advice):
        autoencoder(str(networks["VQModel"]), size=size)


def test_pictures_that_do_not_divide_are_refused(networks: dict[str, Path]) -> None:
    with pytest.raises(BadSpec, match=r"30 by 30 pixels: .* use 28 or 32"):
        start(autoencoder(str(networks["AutoencoderTiny"])), pictures(size=30))


def test_provenance_names_network_weights_library_and_space(networks: dict[str, Path]) -> None:
    digest = weights.file_sha256(networks["VQModel"] / WEIGHTS)
    account = autoencoder(str(networks["VQModel"]), sha256=digest.upper(), space="code").provenance()
    library = account.pop("library")
    assert account == {"network": "VQModel", "weights": digest, "space": "code"}
    assert library.startswith("diffusers ")


def test_moving_it_moves_the_network(networks: dict[str, Path]) -> None:
    generator = autoencoder(str(networks["VQModel"]))
    assert generator.to("meta") is generator
    assert {parameter.device.type for parameter in generator.autoencoder.network.parameters()} == {"meta"}  # type: ignore[attr-defined]


def test_a_subfolder_is_looked_into(networks: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(networks["AutoencoderKL"], tmp_path / "vae")
    assert autoencoder(str(tmp_path), subfolder="vae").provenance()["network"] == "AutoencoderKL"


def test_a_hub_id_fetches_config_and_safetensors_only(
    networks: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub

    shutil.copytree(networks["AutoencoderTiny"], tmp_path / "vae")
    calls = []

    def snapshot_download(name: str, **options: object) -> str:
        calls.append((name, options))
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    generator = autoencoder("someone/network", revision="abc", subfolder="vae")
    assert generator.provenance()["network"] == "AutoencoderTiny"
    assert calls == [("someone/network", {"revision": "abc", "allow_patterns": ["vae/config.json", f"vae/{WEIGHTS}"]})]


def test_a_hub_out_of_reach_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub
    from huggingface_hub.errors import LocalEntryNotFoundError

    def snapshot_download(name: str, **options: object) -> str:
        raise LocalEntryNotFoundError("no network\nand nothing cached")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    with pytest.raises(BadWeights, match=r"someone/network: .*no network and nothing cached") as caught:
        autoencoder("someone/network")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["/no/such/folder", "./nor here", ""])
def test_what_is_neither_folder_nor_hub_id_is_refused(name: str) -> None:
    with pytest.raises(BadWeights, match="no such folder, and not a hub id"):
        autoencoder(name)


@pytest.fixture
def broken(networks: dict[str, Path], tmp_path: Path) -> Path:
    """A copy of a network for a test to break."""
    return shutil.copytree(networks["VQModel"], tmp_path / "broken")


def test_a_folder_without_a_configuration_is_refused(broken: Path) -> None:
    (broken / "config.json").unlink()
    with pytest.raises(BadWeights, match=r"no config.json in it"):
        autoencoder(str(broken))


@pytest.mark.parametrize("text", ["{not json", "[1, 2]"])
def test_a_configuration_that_is_none_is_refused(broken: Path, text: str) -> None:
    (broken / "config.json").write_text(text)
    with pytest.raises(BadWeights, match=r"config.json: "):
        autoencoder(str(broken))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"_class_name": "UNet2DModel"}, "names the class 'UNet2DModel'; autoencoders are VQModel"),
        ({"_class_name": None}, "names the class None"),
        ({"in_channels": 1}, "takes 1 channels and gives 3"),
    ],
)
def test_another_kind_of_network_is_refused(broken: Path, change: dict[str, object], complaint: str) -> None:
    config = broken / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), **change}))
    with pytest.raises(BadPart, match=complaint):
        autoencoder(str(broken))


def test_a_folder_without_weights_is_refused(broken: Path) -> None:
    (broken / WEIGHTS).unlink()
    with pytest.raises(BadWeights, match=f"no {WEIGHTS} in it"):
        autoencoder(str(broken))


def test_a_weight_file_in_place_of_its_folder_is_refused(broken: Path) -> None:
    with pytest.raises(BadWeights, match="is a file; give the folder"):
        autoencoder(str(broken / WEIGHTS))


@pytest.mark.parametrize(("key", "problem"), [("decoder.conv_out.bias", "lack"), ("extra.weight", "also have")])
def test_weights_of_another_network_are_refused(broken: Path, key: str, problem: str) -> None:
    state = load_file(broken / WEIGHTS)
    if key in state:
        del state[key]
    else:
        state[key] = torch.zeros(2)
    save_file(state, broken / WEIGHTS, {"format": "pt"})
    with pytest.raises(BadWeights, match=f"the weights {problem} {key}, config.json"):
        autoencoder(str(broken))


def test_weights_of_other_shapes_are_refused(broken: Path) -> None:
    state = load_file(broken / WEIGHTS)
    state["quantize.embedding.weight"] = torch.zeros(7, 4)
    save_file(state, broken / WEIGHTS, {"format": "pt"})
    with pytest.raises(BadWeights, match=WEIGHTS):
        autoencoder(str(broken))
