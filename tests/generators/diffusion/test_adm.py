from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from counterfoil.core.errors import BadSpec, BadWeights
from counterfoil.parts import weights
from counterfoil.parts.generators import adm as module
from counterfoil.parts.generators.adm import AdmDenoiser, AdmUNet, Flags, adm, signal_left
from counterfoil.testing import check_generator
from tests.generators.diffusion.make_reference import CASES, FILE, inputs
from tests.generators.named_weights import named_pictures, named_weights


def save(folder: Path, case: str, name: str = "model.pt", **changes: Any) -> Path:
    """A checkpoint with named weights: plain tensors by name, as the releases are."""
    chosen = module.read_flags({**CASES[case], **changes}, file=folder)
    with torch.device("meta"):
        network = AdmUNet(chosen, classes=1000 if chosen.class_cond else None)
    torch.save(named_weights(network.state_dict()), folder / name)
    return folder / name


@pytest.mark.parametrize("case", list(CASES))
def test_stored_numbers_of_the_releases_own_code_come_out_again(tmp_path: Path, case: str) -> None:
    generator, expected = adm(str(save(tmp_path, case)), flags=CASES[case]), load_file(FILE)
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
    file = save(tmp_path, case, image_size=16, channel_mult="1,2", attention_resolutions="8")
    flags = {**CASES[case], "image_size": 16, "channel_mult": "1,2", "attention_resolutions": "8"}
    check_generator(adm(str(file), flags=flags, steps=3, **options))


def test_rows_do_not_depend_on_their_batch(tmp_path: Path) -> None:
    generator = adm(str(save(tmp_path, "guided")), flags=CASES["guided"], steps=2)
    images, others = named_pictures(8, 32), named_pictures(8, 32, name="others")
    mixed, seeds, labels = others.clone(), torch.arange(8) + 50, torch.arange(8)
    mixed[2], seeds[2], labels[2] = images[6], 6, 6
    here, there = generator.start(images, torch.arange(8), torch.arange(8)), generator.start(mixed, labels, seeds)
    leaves = [state["noisy"].clone().requires_grad_() for state in (here, there)]
    pictures = [generator.render({**state, "noisy": leaf}) for state, leaf in zip((here, there), leaves, strict=True)]
    gradients = [torch.autograd.grad(made.sum(), leaf)[0] for made, leaf in zip(pictures, leaves, strict=True)]
    assert torch.equal(pictures[0][6], pictures[1][2])
    assert torch.equal(gradients[0][6], gradients[1][2])


def test_a_checkpoint_with_its_released_name_needs_no_flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(module.RELEASED, "small_release", "--image_size 32 --num_channels 32 --num_res_blocks 1 --num_heads 1")
    file = save(tmp_path, "improved", "small_release.pt", num_heads=1, learn_sigma=False)
    assert adm(str(file)).size == 32


def test_classes_are_counted_in_the_checkpoint(tmp_path: Path) -> None:
    generator = adm(str(save(tmp_path, "guided")), flags=CASES["guided"])
    assert generator.denoiser.classes == 1000
    assert generator.classes is not None and (len(generator.classes), generator.classes[1]) == (1000, "goldfish")
    assert adm(str(save(tmp_path, "improved")), flags=CASES["improved"]).denoiser.classes is None


def test_the_noise_of_training_is_known() -> None:
    for schedule, kept in (("linear", [0.9999, 0.0785, 4.0e-5]), ("cosine", [0.99996, 0.4938, 0.0])):
        found = signal_left(Flags(noise_schedule=schedule))[[0, 499, 999]].tolist()
        assert found == pytest.approx(kept, rel=2e-3, abs=1e-6)
    few, many = signal_left(Flags(diffusion_steps=1000)), signal_left(Flags(diffusion_steps=4000))
    assert len(many) == 4000
    assert float(many[1999]) == pytest.approx(float(few[499]), rel=1e-2)


def test_safetensors_are_read_too(tmp_path: Path) -> None:
    file = save(tmp_path, "improved")
    save_file(torch.load(file, weights_only=True), tmp_path / "model.safetensors")
    images = named_pictures(1, 32)
    made = []
    for path in (file, tmp_path / "model.safetensors"):
        generator = adm(str(path), flags=CASES["improved"], steps=1)
        made.append(generator.render(generator.start(images, torch.zeros(1, dtype=torch.long), torch.zeros(1, dtype=torch.long))))
    assert torch.equal(*made)


def test_provenance_names_flags_and_weights(tmp_path: Path) -> None:
    file = save(tmp_path, "improved")
    account = adm(str(file), flags=CASES["improved"], sha256=weights.file_sha256(file)).provenance()
    assert account["weights"] == weights.file_sha256(file)
    assert "diffusion_steps=4000" in account["network"]


def test_bad_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadWeights, match="no such file"):
        adm(str(tmp_path / "gone.pt"))
    (tmp_path / "pickle.pt").write_bytes(pickle.dumps(Path("x")))
    with pytest.raises(BadWeights, match="refused, it is a pickle"):
        adm(str(tmp_path / "pickle.pt"), flags=CASES["improved"])
    with pytest.raises(BadWeights, match="SHA-256 is"):
        adm(str(save(tmp_path, "improved")), flags=CASES["improved"], sha256="0" * 64)


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
        adm(str(save(tmp_path, "improved")), flags={**CASES["improved"], **changes})


def test_unknown_checkpoints_need_flags(tmp_path: Path) -> None:
    with pytest.raises(BadSpec, match="not named like a released checkpoint"):
        adm(str(save(tmp_path, "improved")))
