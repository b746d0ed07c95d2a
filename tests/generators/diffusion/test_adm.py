"""OpenAI's checkpoints: flags, the releases' own numbers, and files that are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from counterfoil.core.errors import BadSpec, BadWeights
from counterfoil.parts import weights
from counterfoil.parts.generators import adm as module
from counterfoil.parts.generators.adm import RELEASED, AdmDenoiser, AdmUNet, Flags, adm, signal_left
from counterfoil.testing import check_generator
from tests.generators.diffusion.conftest import save_adm
from tests.generators.diffusion.make_reference import CASES, FILE, inputs

MILLIONS = {  # parameters, as the papers and the files' own names have them
    "64x64_diffusion": 296,
    "128x128_diffusion": 422,
    "256x256_diffusion": 554,
    "256x256_diffusion_uncond": 553,
    "512x512_diffusion": 559,
    "imagenet64_uncond_100M_1500K": 121,
    "imagenet64_cond_270M_250K": 273,
    "cifar10_uncond_50M_500K": 53,
    "lsun_uncond_100M_1200K_bs128": 114,
}


@pytest.mark.parametrize("name", list(RELEASED))
def test_released_flags_build_networks_of_the_right_size(name: str) -> None:
    found = module.read_flags(None, file=Path(f"models/{name}.pt"))
    with torch.device("meta"):
        network = AdmUNet(found, classes=1000 if found.class_cond else None)
    count = sum(value.numel() for value in network.parameters()) / 1e6
    if name in MILLIONS:
        assert count == pytest.approx(MILLIONS[name], abs=1)
    assert count > 50


def test_text_and_mapping_say_the_same() -> None:
    text = "--image_size 64 --attention_resolutions 32,16 --class_cond True --use_fp16 True --lr=1e-4"
    values = {"image_size": 64, "attention_resolutions": [32, 16], "class_cond": True, "dropout": 0.1}
    assert module.read_flags(text, file=Path("x")) == module.read_flags(values, file=Path("x"))
    assert module.read_flags(text, file=Path("x")) == Flags(image_size=64, attention_resolutions="32,16", class_cond=True)


def test_heads_come_from_their_number_or_their_width() -> None:
    assert Flags(num_heads=4).heads(128) == 4
    assert Flags(num_head_channels=64).heads(256) == 4
    assert Flags(num_heads=4, num_heads_upsample=2).heads(128, up=True) == 2
    assert Flags(num_heads=4).heads(128, up=True) == 4


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ("--image_size", "each with its value"),
        ("image_size 64", "each with its value"),
        ("--image_sise 64", "no flag 'image_sise'; flags are image_size"),
        ("--zzz 64", "no flag 'zzz'; flags are image_size"),
        ("--image_size big", "image_size is a whole number, got 'big'"),
        ("--class_cond maybe", "class_cond is True or False"),
        ("--noise_schedule square", "linear or cosine"),
        ("--image_size 48", "give channel_mult too"),
        ("--num_channels 40", "40 channels; it has to be a multiple of 32"),
        ("--channel_mult 1,x", "numbers with commas between"),
        ("--num_heads 5", "cannot be shared among 5 attention heads"),
        ("--num_head_channels 512", "cannot be shared among 0 attention heads"),
    ],
)
def test_bad_flags_are_refused(given: Any, complaint: str) -> None:
    with pytest.raises(BadSpec, match=complaint):
        module.read_flags(given, file=Path("x"))


@pytest.mark.parametrize("case", list(CASES))
def test_stored_numbers_of_the_releases_own_code_come_out_again(tmp_path: Path, case: str) -> None:
    generator, expected = adm(str(save_adm(tmp_path, case)), flags=CASES[case]), load_file(FILE)
    denoiser = generator.denoiser
    assert isinstance(denoiser, AdmDenoiser)
    noisy, times, classes = inputs(case)
    with torch.no_grad():
        guess = denoiser.predict(noisy, times, classes)
        clean, _ = denoiser.process.split(guess, noisy, denoiser.process.alphas_cumprod[times].reshape(-1, 1, 1, 1))
    assert (guess - expected[f"{case}.guess"][:, :3]).abs().max() < 5e-5
    assert (clean - expected[f"{case}.clean"]).abs().max() < 2e-4


@pytest.mark.parametrize(("case", "options"), [("improved", {}), ("guided", {"noising": "inversion", "steps_per_level": 2})])
def test_contract(tmp_path: Path, case: str, options: dict[str, Any]) -> None:
    file = save_adm(tmp_path, case, image_size=16, channel_mult="1,2", attention_resolutions="8")
    flags = {**CASES[case], "image_size": 16, "channel_mult": "1,2", "attention_resolutions": "8"}
    check_generator(adm(str(file), flags=flags, steps=3, **options), exact=True)


def test_a_checkpoint_with_its_released_name_needs_no_flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(module.RELEASED, "small_release", "--image_size 32 --num_channels 32 --num_res_blocks 1 --num_heads 1")
    file = save_adm(tmp_path, "improved", "small_release.pt", num_heads=1, learn_sigma=False)
    assert adm(str(file)).size == 32


def test_classes_are_counted_in_the_checkpoint(tmp_path: Path) -> None:
    generator = adm(str(save_adm(tmp_path, "guided")), flags=CASES["guided"])
    assert generator.denoiser.classes == 1000
    assert generator.classes is not None and (len(generator.classes), generator.classes[1]) == (1000, "goldfish")
    assert adm(str(save_adm(tmp_path, "improved")), flags=CASES["improved"]).denoiser.classes is None


def test_the_noise_of_training_is_known() -> None:
    for schedule, kept in (("linear", [0.9999, 0.0785, 4.0e-5]), ("cosine", [0.99996, 0.4938, 0.0])):
        found = signal_left(Flags(noise_schedule=schedule))[[0, 499, 999]].tolist()
        assert found == pytest.approx(kept, rel=2e-3, abs=1e-6)
    few, many = signal_left(Flags(diffusion_steps=1000)), signal_left(Flags(diffusion_steps=4000))
    assert len(many) == 4000
    assert float(many[1999]) == pytest.approx(float(few[499]), rel=1e-2)


def test_provenance_names_flags_and_weights(tmp_path: Path) -> None:
    file = save_adm(tmp_path, "improved")
    account = adm(str(file), flags=CASES["improved"], sha256=weights.file_sha256(file)).provenance()
    assert account["weights"] == weights.file_sha256(file)
    assert "diffusion_steps=4000" in account["network"]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"num_res_blocks": 2}, r"another architecture than AdmUNet: .*put_blocks\."),
        ({"resblock_updown": True}, r"it also has input_blocks\.2\.0\.op\.weight"),
        ({"learn_sigma": False}, r"size mismatch for out\.2\.weight"),
        ({"class_cond": True}, r"no label_emb\.weight"),
    ],
)
def test_flags_of_another_network_name_the_keys(tmp_path: Path, changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(BadWeights, match=complaint):
        adm(str(save_adm(tmp_path, "improved")), flags={**CASES["improved"], **changes})


def test_unknown_checkpoints_need_flags(tmp_path: Path) -> None:
    with pytest.raises(BadSpec, match="not named like a released checkpoint"):
        adm(str(save_adm(tmp_path, "improved")))
