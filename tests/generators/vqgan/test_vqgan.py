"""VQGAN checkpoints: codebooks, the authors' numbers, and files that are refused."""

from __future__ import annotations

import os
import pickle
import shutil
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from counterfoil.core.errors import BadSpec, BadWeights
from counterfoil.parts import weights
from counterfoil.parts.contracts import State
from counterfoil.parts.generators.latent import LatentGenerator
from counterfoil.parts.generators.vqgan import GumbelCodes, GumbelVqganAutoencoder, NearestCodes, vqgan
from counterfoil.testing import check_generator, pictures
from tests.generators.named_weights import named_pictures, named_weights, uniform
from tests.generators.vqgan.conftest import save_run, weights_of
from tests.generators.vqgan.make_reference import FILE, authors_network, most_probable

Codebook = NearestCodes | GumbelCodes


def codebook(kind: type[Codebook], count: int = 300, width: int = 12) -> Any:
    book = kind(count, width).requires_grad_(False)
    book.load_state_dict(named_weights(book.state_dict()))
    return book


def latents(count: int = 8, width: int = 12) -> Tensor:
    return uniform(count, "latents", width, 5, 4) * 2 - 1


def test_the_nearest_code_is_the_nearest() -> None:
    book, given = codebook(NearestCodes), latents()
    cells = given.permute(0, 2, 3, 1).reshape(-1, 12).double()
    distances = torch.cdist(cells, book.embedding.weight.double(), compute_mode="donot_use_mm_for_euclid_dist")
    assert torch.equal(book.indices(given).flatten(), distances.argmin(1))
    assert torch.equal(book(given).permute(0, 2, 3, 1).reshape(-1, 12), book.embedding.weight[distances.argmin(1)])


def test_codes_about_equally_near_are_told_apart_as_the_authors_do() -> None:
    book, given = codebook(NearestCodes), latents() * 40  # codes so close together that rounding decides
    book.embedding.weight.mul_(1e-5)
    cells = given.permute(0, 2, 3, 1).reshape(-1, 12)
    table = book.embedding.weight
    distances = torch.sum(cells**2, dim=1, keepdim=True) + torch.sum(table**2, dim=1) - 2 * torch.matmul(cells, table.t())
    assert (distances == distances.amin(1, keepdim=True)).sum(1).float().mean() > 2  # many ties
    assert torch.equal(book.indices(given).flatten(), distances.argmin(1))


def test_the_most_probable_code_is_taken() -> None:
    book, given = codebook(GumbelCodes), latents()
    chances = torch.einsum("ndhw,kd->nkhw", given, book.proj.weight[:, :, 0, 0]) + book.proj.bias[:, None, None]
    assert torch.equal(book.indices(given), chances.argmax(1))
    assert len(book.indices(given).unique()) > 20


def test_the_expected_code_and_its_gradient_are_those_of_the_softmax() -> None:
    book, given = codebook(GumbelCodes), latents(3)
    direct, saving = given.clone().requires_grad_(), given.clone().requires_grad_()
    whole = torch.einsum("nkhw,kd->ndhw", book.proj(direct).softmax(1), book.embed.weight)
    expected = book.mean_code(saving)
    assert torch.allclose(expected, whole, atol=1e-6)
    weighting = latents(3).flip(1)
    gradients = [torch.autograd.grad((out * weighting).sum(), leaf)[0] for out, leaf in ((whole, direct), (expected, saving))]
    assert torch.allclose(*gradients, atol=1e-6)
    assert gradients[0].abs().sum() > 0


class Largest(TorchDispatchMode):
    """Notes the largest tensor that any operation gives."""

    def __init__(self) -> None:
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(tensor, Tensor):
                self.numel = max(self.numel, tensor.numel())
        return result


@pytest.mark.parametrize("kind", [NearestCodes, GumbelCodes])
def test_no_table_of_more_than_one_picture_is_made(kind: type[Codebook]) -> None:
    book, given = codebook(kind, count=1000), latents(16)
    with Largest() as largest:
        book(given)
    assert largest.numel == 1000 * 20


@pytest.mark.parametrize("kind", [NearestCodes, GumbelCodes])
def test_codes_are_chosen_in_full_precision(kind: type[Codebook]) -> None:
    book, given = codebook(kind), latents()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(book.indices(given), book.indices(given.clone()))
        lowered = book(given)
    assert torch.equal(lowered, book(given))
    assert lowered.dtype == torch.float32


KINDS = ["VQModel", "GumbelVQ"]


def start(generator: LatentGenerator, images: Tensor) -> State:
    return generator.start(images, torch.zeros(len(images), dtype=torch.long), torch.arange(len(images)))


def gradient_of(generator: LatentGenerator, state: State, weighting: Tensor) -> Tensor:
    leaf = state["latent"].clone().requires_grad_()
    return torch.autograd.grad((generator.render({**state, "latent": leaf}) * weighting).sum(), leaf)[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("space", ["before", "code"])
def test_contract(runs: dict[str, Path], kind: str, space: str) -> None:
    check_generator(vqgan(str(runs[kind]), space=space), exact=True)  # type: ignore[arg-type]


def test_a_gumbel_code_passes_its_gradient_through_the_expected_code(runs: dict[str, Path]) -> None:
    generator, weighting = vqgan(str(runs["GumbelVQ"])), named_pictures(2, 16, name="weighting")
    state, autoencoder = start(generator, named_pictures(2, 16)), generator.autoencoder
    assert isinstance(autoencoder, GumbelVqganAutoencoder)
    code = autoencoder.quantise(state["latent"]).requires_grad_()
    on_code = torch.autograd.grad((autoencoder.decode(code) * weighting).sum(), code)[0]
    leaf = state["latent"].clone().requires_grad_()
    expected = torch.autograd.grad(autoencoder.relax(leaf), leaf, on_code)[0]
    found = gradient_of(generator, state, weighting)
    assert torch.allclose(found, expected, atol=1e-6)
    assert not torch.allclose(found, on_code, atol=1e-3)


def test_the_reconstruction_is_the_decoded_code(runs: dict[str, Path]) -> None:
    generator, images = vqgan(str(runs["VQModel"])), named_pictures(3, 16)
    autoencoder: Any = generator.autoencoder
    with torch.no_grad():
        samples = autoencoder.samples(autoencoder.quantise(autoencoder.latents(images * 2 - 1)))
    assert torch.equal(generator.render(start(generator, images)), ((samples + 1) / 2).clamp(0, 1))
    assert samples.std() > 0.1


def test_other_sides_than_that_of_training_work(runs: dict[str, Path]) -> None:
    generator = vqgan(str(runs["VQModel"]), size=24)
    assert generator.size == 24
    assert vqgan(str(runs["VQModel"])).size == 16
    check_generator(generator, exact=True)


def test_a_side_that_does_not_divide_is_refused(runs: dict[str, Path]) -> None:
    with pytest.raises(BadSpec, match=r"size=17: .* multiples of 2; use 16 or 18"):
        vqgan(str(runs["VQModel"]), size=17)
    with pytest.raises(BadSpec, match="15 by 15 pixels"):
        start(vqgan(str(runs["VQModel"])), pictures(size=15))


def test_any_configuration_is_built(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"num_res_blocks": 2, "ch_mult": [1, 1, 2], "attn_resolutions": []}
    save_run(tmp_path, **changes)
    torch.save({"state_dict": weights_of("VQModel", **changes)}, tmp_path / "last.ckpt")
    check_generator(vqgan(str(tmp_path)), exact=True)


def test_ckpt_and_safetensors_are_the_same(runs: dict[str, Path], tmp_path: Path) -> None:
    shutil.copy(runs["VQModel"] / "model.yaml", tmp_path / "settings.yml")
    save_file(weights_of("VQModel"), tmp_path / "vqgan.safetensors")
    images = named_pictures(2, 16)
    rendered = []
    for place in (tmp_path / "vqgan.safetensors", tmp_path, runs["VQModel"] / "last.ckpt"):
        generator = vqgan(str(place))
        rendered.append(generator.render(start(generator, images)))
    assert torch.equal(rendered[0], rendered[1])
    assert torch.equal(rendered[0], rendered[2])


def test_the_layout_of_a_training_run_is_known(runs: dict[str, Path], tmp_path: Path) -> None:
    for folder, name in (("checkpoints", "last.ckpt"), ("configs", "model.yaml")):
        (tmp_path / folder).mkdir()
        shutil.copy(runs["VQModel"] / name, tmp_path / folder / name)
    assert vqgan(str(tmp_path)).size == 16
    assert vqgan(str(tmp_path / "checkpoints" / "last.ckpt")).size == 16


def test_provenance_names_codebook_weights_and_space(runs: dict[str, Path]) -> None:
    digest = weights.file_sha256(runs["GumbelVQ"] / "last.ckpt")
    account = vqgan(str(runs["GumbelVQ"]), sha256=digest, space="code").provenance()
    assert account == {"network": "VQGAN, GumbelCodes", "weights": digest, "space": "code"}


def test_callbacks_that_lightning_left_in_a_checkpoint_are_passed_over(
    runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "pytorch_lightning.callbacks.model_checkpoint"
    for depth in range(1, 4):
        parent = ".".join(name.split(".")[:depth])
        monkeypatch.setitem(sys.modules, parent, types.ModuleType(parent))
    callback = type("ModelCheckpoint", (), {"__module__": name})
    sys.modules[name].ModelCheckpoint = callback  # type: ignore[attr-defined]
    content = {"callbacks": {callback: {"best_model_path": "x"}}, "state_dict": weights_of("VQModel")}
    torch.save(content, tmp_path / "last.ckpt")
    monkeypatch.undo()
    assert name not in sys.modules
    shutil.copy(runs["VQModel"] / "model.yaml", tmp_path)
    assert vqgan(str(tmp_path)).size == 16


class Harm:
    """Runs a command when it is unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.target}",)


def test_a_checkpoint_that_would_run_code_is_refused(runs: dict[str, Path], tmp_path: Path) -> None:
    shutil.copy(runs["VQModel"] / "model.yaml", tmp_path)
    torch.save({"state_dict": weights_of("VQModel"), "callbacks": Harm(tmp_path / "harm")}, tmp_path / "last.ckpt")
    with pytest.raises(BadWeights, match="refused, it is a pickle that can run code"):
        vqgan(str(tmp_path))
    (tmp_path / "last.ckpt").write_bytes(pickle.dumps(Harm(tmp_path / "harm")))
    with pytest.raises(BadWeights, match="refused, it is a pickle that can run code"):
        vqgan(str(tmp_path))
    assert not (tmp_path / "harm").exists()


@pytest.fixture
def broken(runs: dict[str, Path], tmp_path: Path) -> Path:
    """A copy of a run for a test to break."""
    return shutil.copytree(runs["VQModel"], tmp_path / "broken")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadWeights, match=r"gone.ckpt': no such file"):
        vqgan(str(tmp_path / "gone.ckpt"))
    with pytest.raises(BadWeights, match="no weight file in it or in"):
        vqgan(str(tmp_path))


def test_a_missing_configuration_is_asked_for(broken: Path) -> None:
    (broken / "model.yaml").rename(broken / "model.txt")
    with pytest.raises(BadWeights, match=r"no configuration \(.yaml\) in it or in .*; give config="):
        vqgan(str(broken))
    assert vqgan(str(broken), config=str(broken / "model.txt")).size == 16


def test_two_candidates_are_not_guessed_between(broken: Path) -> None:
    shutil.copy(broken / "model.yaml", broken / "other.yaml")
    with pytest.raises(BadWeights, match=r"holds model.yaml and other.yaml; .*give config="):
        vqgan(str(broken))
    shutil.copy(broken / "last.ckpt", broken / "best.ckpt")
    with pytest.raises(BadWeights, match=r"holds best.ckpt and last.ckpt; .*give the file itself"):
        vqgan(str(broken), config=str(broken / "model.yaml"))


def test_another_hash_is_refused(broken: Path) -> None:
    for place in (broken, broken / "last.ckpt"):
        with pytest.raises(BadWeights, match=f"last.ckpt: SHA-256 is .* expected {'0' * 64}"):
            vqgan(str(place), sha256="0" * 64)


def test_a_gumbel_configuration_for_a_plain_checkpoint_names_the_keys(broken: Path) -> None:
    config = yaml.safe_load((broken / "model.yaml").read_text())
    config["model"]["target"] = "taming.models.vqgan.GumbelVQ"
    config["model"]["params"]["embed_dim"] = 32
    (broken / "model.yaml").write_text(yaml.safe_dump(config))
    with pytest.raises(BadWeights, match=r"last.ckpt: .*another architecture"):
        vqgan(str(broken))


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"num_res_blocks": 2}, r"lacks encoder\.down_blocks\.0\.resnets\.1\.norm1\.weight"),
        ({"attn_resolutions": []}, r"also has encoder\.down_blocks\.1\.attentions\.0"),
        ({"n_embed": 65}, r"quantize\.embedding\.weight"),
    ],
)
def test_another_architecture_names_the_keys(tmp_path: Path, changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(BadWeights, match=complaint):
        vqgan(str(save_run(tmp_path, **changes)))


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"in_channels": 1}, "in_channels is 1"),
        ({"double_z": True}, "double_z is True"),
        ({"resamp_with_conv": False}, "resamp_with_conv is False"),
        ({"ch": 20}, "20 channels; it has to be a multiple of 32"),
        ({"n_embed": 0}, "positive, got 0"),
        ({"n_embed": "many"}, "not a number"),
        ({"remap": "used.npy"}, "remap"),
    ],
)
def test_an_impossible_configuration_is_refused(tmp_path: Path, changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(BadWeights, match=complaint):
        vqgan(str(save_run(tmp_path, **changes)))


@pytest.mark.parametrize("text", ["{not: [yaml", "model: 3", "[1, 2]", "", "model: {params: {n_embed: 3}}"])
def test_a_file_that_is_no_configuration_is_refused(broken: Path, text: str) -> None:
    (broken / "model.yaml").write_text(text)
    with pytest.raises(BadWeights, match=r"model.yaml: (not YAML|has no model.params.ddconfig)"):
        vqgan(str(broken))


def test_an_entry_left_out_of_the_configuration_is_named(broken: Path) -> None:
    config = yaml.safe_load((broken / "model.yaml").read_text())
    del config["model"]["params"]["ddconfig"]["z_channels"]
    (broken / "model.yaml").write_text(yaml.safe_dump(config))
    with pytest.raises(BadWeights, match="z_channels is missing"):
        vqgan(str(broken))


F16: dict[str, Any] = {
    "double_z": False,
    "z_channels": 256,
    "resolution": 256,
    "in_channels": 3,
    "out_ch": 3,
    "ch": 128,
    "ch_mult": [1, 1, 2, 2, 4],
    "num_res_blocks": 2,
    "attn_resolutions": [16],
    "dropout": 0.0,
}

F8 = {**F16, "ch_mult": [1, 1, 2, 4], "attn_resolutions": [32]}

RELEASED = {
    "f16-1024": ("VQModel", {"n_embed": 1024, "embed_dim": 256, "ddconfig": F16}),
    "f16-16384": ("VQModel", {"n_embed": 16384, "embed_dim": 256, "ddconfig": F16}),
    "gumbel-f8": ("GumbelVQ", {"n_embed": 8192, "embed_dim": 256, "ddconfig": F8}),
}


def stages(generator: LatentGenerator, images: Tensor) -> dict[str, Tensor]:
    autoencoder: Any = generator.autoencoder
    with torch.no_grad():
        latents = autoencoder.latents(images * 2 - 1)
        return {
            "latents": latents,
            "indices": autoencoder.network.quantize.indices(latents),
            "decoded": autoencoder.samples(autoencoder.quantise(latents)),
        }


@pytest.mark.parametrize("kind", ["VQModel", "GumbelVQ"])
def test_stored_numbers_of_the_authors_code_come_out_again(runs: dict[str, Path], kind: str) -> None:
    expected = load_file(FILE)
    for name, values in stages(vqgan(str(runs[kind])), named_pictures(2, 16)).items():
        reference = expected[f"{kind}.{name}"]
        if name == "indices":
            assert torch.equal(values, reference)
            assert len(reference.unique()) > 20  # the images need many codes
        else:
            assert (values - reference).abs().max() < 5e-5


@pytest.mark.parametrize("name", list(RELEASED))
def test_checkpoints_of_the_authors_package_agree(tmp_path: Path, name: str) -> None:
    pytest.importorskip("taming.modules.diffusionmodules.model", reason="needs taming-transformers==0.0.1 to compare with")
    kind, params = RELEASED[name]
    if kind == "GumbelVQ":
        pytest.importorskip("einops", reason="the authors' Gumbel codebook needs einops")
        quantisers = pytest.importorskip("taming.modules.vqvae.quantize")
        if not hasattr(quantisers, "GumbelQuantize"):
            pytest.skip("this taming-transformers has no Gumbel codebook; their repository has it")
    network = authors_network(kind, params)
    state = named_weights(network.state_dict())
    network.load_state_dict(state)
    torch.save({"state_dict": network.state_dict(), "global_step": 1}, tmp_path / "last.ckpt")
    config = {"model": {"target": f"taming.models.vqgan.{kind}", "params": params}}
    (tmp_path / "model.yaml").write_text(yaml.safe_dump(config))

    images, generator = named_pictures(2, 64), vqgan(str(tmp_path))
    found = stages(generator, images)
    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr(torch.nn.functional, "gumbel_softmax", most_probable)
        latents = network.quant_conv(network.encoder(images * 2 - 1))
        codes, _, (_, _, indices) = network.quantize(latents)
        decoded = network.decoder(network.post_quant_conv(codes))
    assert generator.size == 256
    assert torch.equal(found["indices"].flatten(), indices.flatten())
    assert (found["latents"] - latents).abs().max() < 1e-4
    assert (found["decoded"] - decoded).abs().max() < 1e-4
