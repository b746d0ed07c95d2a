from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from counterfoil.core.errors import BadPart, BadWeights
from counterfoil.parts import weights
from counterfoil.parts.contracts import State
from counterfoil.parts.generators.diffusion import DiffusionGenerator, diffusion
from counterfoil.testing import check_generator
from tests.generators.diffusion.conftest import linear_process, save_pipeline
from tests.generators.named_weights import named_pictures

WEIGHTS = "diffusion_pytorch_model.safetensors"
AT_399 = float((1 - linear_process().alphas_cumprod[399]).sqrt())  # the strength at which ten steps are forty of training apart


def start(generator: DiffusionGenerator, images: Tensor, label: int = 0) -> State:
    return generator.start(images, torch.full((len(images),), label), torch.arange(len(images)))


@pytest.mark.parametrize("options", [{}, {"noising": "inversion", "steps_per_level": 2}, {"gradient": "full"}])
@pytest.mark.parametrize("name", ["plain", "classes"])
def test_contract(pipelines: dict[str, Path], name: str, options: dict[str, Any]) -> None:
    named = {"classes": list("abcde")} if name == "classes" else {}
    check_generator(diffusion(str(pipelines[name]), steps=3, **named, **options))


@pytest.mark.parametrize(
    ("scheduler", "config"),
    [
        ({}, {}),
        ({"prediction_type": "sample"}, {}),
        ({"prediction_type": "v_prediction", "clip_sample": False}, {"num_class_embeds": 5}),
    ],
)
def test_denoising_is_that_of_the_library(tmp_path: Path, scheduler: dict[str, Any], config: dict[str, Any]) -> None:
    from diffusers import DDIMScheduler, UNet2DModel

    folder = save_pipeline(tmp_path, scheduler=scheduler, **config)
    named = {"classes": list("abcde")} if config else {}
    generator, images = diffusion(str(folder), strength=AT_399, **named), named_pictures(4, 16)
    state = start(generator, images, label=3)
    network = UNet2DModel.from_pretrained(folder / "unet").eval()
    library = DDIMScheduler.from_pretrained(folder / "scheduler")
    library.set_timesteps(25)  # forty of the thousand times apart
    noisy = state["noisy"]
    told = {"class_labels": torch.full((4,), 3)} if config else {}
    for time in range(399, 0, -40):
        with torch.no_grad():
            guess = network(noisy, time, **told).sample
        noisy = library.step(guess, time, noisy, use_clipped_model_output=True).prev_sample
    expected = ((noisy + 1) / 2).clamp(0, 1)
    assert (generator.render(state) - expected).abs().max() < 1e-5
    assert expected.std() > 0.02


def test_rows_do_not_depend_on_their_batch(pipelines: dict[str, Path]) -> None:
    generator = diffusion(str(pipelines["classes"]), classes=list("abcde"), steps=3)
    images, others = named_pictures(8, 16), named_pictures(8, 16, name="others")
    mixed, seeds = others.clone(), torch.arange(8) + 50
    mixed[2], seeds[2] = images[6], 6
    labels, strange = torch.arange(8) % 5, torch.zeros(8, dtype=torch.long)
    strange[2] = labels[6]
    here, there = generator.start(images, labels, torch.arange(8)), generator.start(mixed, strange, seeds)
    for step in range(4):
        leaves = [state["noisy"].clone().requires_grad_() for state in (here, there)]
        pictures = [generator.render({**state, "noisy": leaf}) for state, leaf in zip((here, there), leaves, strict=True)]
        gradients = [torch.autograd.grad(made.sum(), leaf)[0] for made, leaf in zip(pictures, leaves, strict=True)]
        assert torch.equal(pictures[0][6], pictures[1][2])
        assert torch.equal(gradients[0][6], gradients[1][2])
        for name in here:
            assert torch.equal(here[name][6], there[name][2])
        here, there = (generator.step(state, 0.05 * slope) for state, slope in zip((here, there), gradients, strict=True))
        if step == 0:  # from here on the strangers are one level ahead
            level = torch.full_like(there["level"], 2)
            level[2] = there["level"][2]
            there = {**there, "level": level}


def test_classes_change_the_picture(pipelines: dict[str, Path]) -> None:
    generator, images = diffusion(str(pipelines["classes"]), classes=list("abcde")), named_pictures(2, 16)
    one, two = (generator.render(start(generator, images, label)) for label in (1, 2))
    assert (one - two).abs().max() > 1e-3
    assert generator.classes == list("abcde")


def test_the_old_layout_without_folders_is_known(tmp_path: Path, pipelines: dict[str, Path]) -> None:
    flat, nested = diffusion(str(save_pipeline(tmp_path, flat=True))), diffusion(str(pipelines["plain"]))
    images = named_pictures(2, 16)
    assert torch.equal(flat.render(start(flat, images)), nested.render(start(nested, images)))


def test_the_network_is_frozen_and_in_evaluation_mode(tmp_path: Path) -> None:
    generator = diffusion(str(save_pipeline(tmp_path, dropout=0.5)))
    network = generator.denoiser.network  # type: ignore[attr-defined]
    assert not network.training
    assert not any(parameter.requires_grad for parameter in network.parameters())
    images = named_pictures(2, 16)
    assert torch.equal(generator.render(start(generator, images)), generator.render(start(generator, images)))


def test_size_and_provenance(pipelines: dict[str, Path]) -> None:
    digest = weights.file_sha256(pipelines["plain"] / "unet" / WEIGHTS)
    generator = diffusion(str(pipelines["plain"]), sha256=digest)
    account = generator.provenance()
    assert generator.size == 16
    assert (account["network"], account["weights"], account["prediction"]) == ("UNet2DModel", digest, "epsilon")
    assert account["library"].startswith("diffusers ")
    assert "strength=0.4" in account["denoising"]


def test_moving_it_moves_the_network_and_the_ladder(pipelines: dict[str, Path]) -> None:
    generator = diffusion(str(pipelines["plain"]))
    assert generator.to("meta") is generator
    assert generator.levels.kept.device.type == "meta"
    assert next(generator.denoiser.network.parameters()).device.type == "meta"  # type: ignore[attr-defined]


def test_a_hub_id_fetches_network_and_scheduler(pipelines: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    calls: list[Any] = []

    def snapshot_download(name: str, *, revision: str | None, allow_patterns: list[str]) -> str:
        calls.append((name, revision, allow_patterns))
        return str(pipelines["plain"])

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    assert diffusion("someone/ddpm", revision="abc").size == 16
    assert calls[0][:2] == ("someone/ddpm", "abc")
    assert {"unet/config.json", f"unet/{WEIGHTS}", "scheduler/scheduler_config.json", "scheduler_config.json"} <= set(calls[0][2])


@pytest.fixture
def broken(pipelines: dict[str, Path], tmp_path: Path) -> Path:
    """A copy of a pipeline for a test to break."""
    return shutil.copytree(pipelines["plain"], tmp_path / "broken")


def change(path: Path, **entries: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **entries}))


def test_a_missing_folder_is_refused() -> None:
    with pytest.raises(BadWeights, match="no such folder, and not a hub id"):
        diffusion("/no/such/folder")


def test_a_missing_scheduler_is_refused(broken: Path) -> None:
    shutil.rmtree(broken / "scheduler")
    with pytest.raises(BadWeights, match=r"no scheduler_config.json in it or in its folder scheduler"):
        diffusion(str(broken))


def test_a_pickle_is_refused(broken: Path) -> None:
    (broken / "unet" / WEIGHTS).unlink()
    (broken / "unet" / "diffusion_pytorch_model.bin").write_bytes(b"\x80\x04.")
    with pytest.raises(BadWeights, match="is a pickle"):
        diffusion(str(broken))


def test_another_hash_is_refused(broken: Path) -> None:
    with pytest.raises(BadWeights, match=f"{WEIGHTS}: SHA-256 is .* expected {'0' * 64}"):
        diffusion(str(broken), sha256="0" * 64)


@pytest.mark.parametrize(("key", "problem"), [("conv_out.bias", "1 missing keys"), ("extra.weight", "1 unexpected keys")])
def test_weights_of_another_network_are_refused(broken: Path, key: str, problem: str) -> None:
    state = load_file(broken / "unet" / WEIGHTS)
    if state.pop(key, None) is None:
        state[key] = torch.zeros(2)
    save_file(state, broken / "unet" / WEIGHTS, {"format": "pt"})
    with pytest.raises(BadWeights, match=f"{problem}, {key} among them"):
        diffusion(str(broken))


@pytest.mark.parametrize(
    ("entries", "complaint"),
    [
        ({"_class_name": "UNet2DConditionModel"}, "names the class 'UNet2DConditionModel'; a UNet2DModel is needed"),
        ({"in_channels": 4}, "takes 4 channels"),
        ({"sample_size": [16, 32]}, "the side of its square images is needed"),
        ({"time_embedding_type": "fourier"}, "embedded in another way"),
    ],
)
def test_another_kind_of_network_is_refused(broken: Path, entries: dict[str, Any], complaint: str) -> None:
    change(broken / "unet" / "config.json", **entries)
    with pytest.raises(BadPart, match=complaint):
        diffusion(str(broken))


def test_a_scheduler_of_another_family_is_refused(broken: Path) -> None:
    (broken / "scheduler" / "scheduler_config.json").write_text('{"_class_name": "FlowMatchEulerDiscreteScheduler", "shift": 3}')
    with pytest.raises(BadPart, match="describes no noise by betas"):
        diffusion(str(broken))
    (broken / "scheduler" / "scheduler_config.json").write_text("{not json")
    with pytest.raises(BadWeights, match="not JSON"):
        diffusion(str(broken))
