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
from safetensors.torch import save_file
from torch import Tensor

from counterfoil.core.errors import BadSpec, BadWeights
from counterfoil.parts import weights
from counterfoil.parts.contracts import State
from counterfoil.parts.generators.latent import LatentGenerator
from counterfoil.parts.generators.vqgan import GumbelVqganAutoencoder, vqgan
from counterfoil.testing import check_generator, pictures
from tests.generators.named_weights import named_pictures
from tests.generators.vqgan.conftest import save_run, weights_of

KINDS = ["VQModel", "GumbelVQ"]


def start(generator: LatentGenerator, images: Tensor) -> State:
    return generator.start(images, torch.zeros(len(images), dtype=torch.long), torch.arange(len(images)))


def gradient_of(generator: LatentGenerator, state: State, weighting: Tensor) -> Tensor:
    leaf = state["latent"].clone().requires_grad_()
    return torch.autograd.grad((generator.render({**state, "latent": leaf}) * weighting).sum(), leaf)[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("space", ["before", "code"])
def test_contract(runs: dict[str, Path], kind: str, space: str) -> None:
    check_generator(vqgan(str(runs[kind]), space=space))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_do_not_depend_on_their_batch(runs: dict[str, Path], kind: str) -> None:
    generator, weighting = vqgan(str(runs[kind])), named_pictures(1, 16, name="weighting")
    images, others = named_pictures(8, 16), named_pictures(8, 16, name="others")
    mixed = torch.cat([others[:3], images[6:7], others[3:]])[:8]  # row 6 among strangers, now third
    here, there = start(generator, images), start(generator, mixed)
    for name in here:
        assert torch.equal(here[name][6], there[name][3])
    assert torch.equal(generator.render(here)[6], generator.render(there)[3])
    assert torch.equal(gradient_of(generator, here, weighting)[6], gradient_of(generator, there, weighting)[3])


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


def test_the_network_is_frozen_and_in_evaluation_mode(runs: dict[str, Path]) -> None:
    network = vqgan(str(runs["VQModel"])).autoencoder.network  # type: ignore[attr-defined]
    assert not network.training
    assert not any(parameter.requires_grad for parameter in network.parameters())


def test_other_sides_than_that_of_training_work(runs: dict[str, Path]) -> None:
    generator = vqgan(str(runs["VQModel"]), size=24)
    assert generator.size == 24
    assert vqgan(str(runs["VQModel"])).size == 16
    check_generator(generator)


def test_a_side_that_does_not_divide_is_refused(runs: dict[str, Path]) -> None:
    with pytest.raises(BadSpec, match=r"size=17: .* multiples of 2; use 16 or 18"):
        vqgan(str(runs["VQModel"]), size=17)
    with pytest.raises(BadSpec, match="15 by 15 pixels"):
        start(vqgan(str(runs["VQModel"])), pictures(size=15))


def test_any_configuration_is_built(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"num_res_blocks": 2, "ch_mult": [1, 1, 2], "attn_resolutions": []}
    save_run(tmp_path, **changes)
    torch.save({"state_dict": weights_of("VQModel", **changes)}, tmp_path / "last.ckpt")
    check_generator(vqgan(str(tmp_path)))


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


def test_moving_it_moves_the_network(runs: dict[str, Path]) -> None:
    generator = vqgan(str(runs["VQModel"]))
    assert generator.to("meta") is generator
    assert {value.device.type for value in generator.autoencoder.network.parameters()} == {"meta"}  # type: ignore[attr-defined]


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


def test_a_truncated_checkpoint_is_refused(broken: Path) -> None:
    (broken / "last.ckpt").write_bytes((broken / "last.ckpt").read_bytes()[:-5000])
    with pytest.raises(BadWeights, match=r"last\.ckpt"):
        vqgan(str(broken))


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
