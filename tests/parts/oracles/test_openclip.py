from __future__ import annotations

import hashlib
from pathlib import Path

import open_clip
import pytest
import torch
from safetensors.torch import load_file, save_file

from counterfoil.core.errors import BadWeights
from counterfoil.parts import registry
from counterfoil.testing import check_oracle
from tests.parts.created import openclip_oracle
from tests.parts.oracles.conftest import CLASSES, pictures, sharpen, to_batch

LABELS = torch.tensor([0, 1, 2, 3, 0, 1])


def test_probabilities_are_those_of_open_clip_itself(openclip_folder: Path) -> None:
    images = pictures(size=32)
    name = f"local-dir:{openclip_folder}"
    model, _, transform = open_clip.create_model_and_transforms(name)
    text = open_clip.get_tokenizer(name)([f"an image of {word}" for word in CLASSES])
    with torch.no_grad():
        expected = model.eval().get_logits(torch.stack([transform(image) for image in images]), text)[0].softmax(dim=1)
    oracle = openclip_oracle(str(openclip_folder)).bind(CLASSES)
    verdicts = oracle.judge(to_batch(images), LABELS)
    assert torch.allclose(oracle.probabilities(to_batch(images)), expected, atol=1e-5)
    assert verdicts.predicted.tolist() == expected.argmax(dim=1).tolist()
    assert len(verdicts.predicted.unique()) > 1


def test_the_oracles_contract_is_kept(openclip_folder: Path) -> None:
    check_oracle(openclip_oracle(str(openclip_folder)), CLASSES, size=48)


def test_pictures_are_prepared_as_open_clip_does(openclip_folder: Path) -> None:
    images = pictures(size=50)
    _, _, transform = open_clip.create_model_and_transforms(f"local-dir:{openclip_folder}")
    theirs = torch.stack([transform(image) for image in images])
    ours = openclip_oracle(str(openclip_folder)).encoder.preprocessing(to_batch(images))  # type: ignore[attr-defined]
    assert (ours - theirs).abs().max() * 0.2 * 255 <= 1.7


@pytest.fixture(scope="module")
def small_file(tmp_path_factory: pytest.TempPathFactory, openclip_folder: Path) -> Path:
    """A checkpoint for an architecture that is made known to open_clip under the name `small-test`."""
    folder = tmp_path_factory.mktemp("configs")
    import json

    config = json.loads((openclip_folder / "open_clip_config.json").read_text())["model_cfg"]
    (folder / "small-test.json").write_text(json.dumps(config))
    open_clip.add_model_config(folder / "small-test.json")
    model = open_clip.create_model("small-test")
    sharpen(model)
    save_file(model.state_dict(), folder / "weights.safetensors")
    return folder / "weights.safetensors"


def test_an_architecture_takes_weights_from_a_file(small_file: Path) -> None:
    oracle = openclip_oracle(f"small-test/{small_file}", sha256=hashlib.sha256(small_file.read_bytes()).hexdigest())
    loaded = oracle.encoder.model.state_dict()  # type: ignore[attr-defined]
    assert all(torch.equal(value, loaded[key]) for key, value in load_file(small_file).items())
    with pytest.raises(BadWeights, match="SHA-256 is"):
        openclip_oracle(f"small-test/{small_file}", sha256="0" * 64)


def test_weights_trained_with_quick_gelu_get_it(small_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_clip, "get_pretrained_cfg", lambda *_: {"url": "x", "quick_gelu": True, "mean": (0.1, 0.2, 0.3)})
    monkeypatch.setattr(open_clip, "download_pretrained", lambda *_: str(small_file))
    encoder = registry.create("encoder", "openclip:small-test/openai")
    assert any(type(module).__name__ == "QuickGELU" for module in encoder.model.modules())
    assert encoder.preprocessing.mean == (0.1, 0.2, 0.3)
    plain = registry.create("encoder", f"openclip:small-test/{small_file}")
    assert not any(type(module).__name__ == "QuickGELU" for module in plain.model.modules())
