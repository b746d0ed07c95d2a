from __future__ import annotations

import hashlib
import pickle
from pathlib import Path

import httpx2
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torchvision import models

from counterfoil.core.errors import BadWeights
from counterfoil.parts import labels
from tests.parts.created import torchvision_model
from tests.parts.models.conftest import shake, to_batch


@pytest.mark.parametrize("name", ["mobilenet_v3_small", "shufflenet_v2_x0_5/IMAGENET1K_V1"])
@pytest.mark.parametrize("shape", ["square", "oblong"])
def test_preprocessing_agrees_with_the_weights_transform(
    name: str, shape: str, square_scenes: list[Image.Image], oblong_scenes: list[Image.Image]
) -> None:
    pictures = [scene.resize((scene.width * 3 // 2, scene.height * 3 // 2)) for scene in square_scenes]
    pictures = pictures if shape == "square" else oblong_scenes
    model = torchvision_model(name, pretrained=False)
    shake(model.module)
    architecture, _, version = name.partition("/")
    transform = models.get_model_weights(architecture)[version or "DEFAULT"].transforms()
    with torch.no_grad():
        theirs = torch.stack([transform(picture) for picture in pictures])
        ours = torch.cat([model.preprocessing(to_batch(picture)) for picture in pictures])
        assert (theirs - ours).abs().max() * 0.225 * 255 <= 1.7  # torchvision rounds to 8 bits twice while resizing
        own, mine = model.module(theirs), torch.cat([model.logits(to_batch(picture)) for picture in pictures])
    assert (mine - own).abs().max() <= 0.05 * own.std(dim=0).max()
    assert torch.equal(mine.argmax(dim=1), own.argmax(dim=1))


def test_classes_are_imagenets_with_wordnet_ids() -> None:
    model = torchvision_model("mobilenet_v3_small", pretrained=False)
    assert labels.match(["goldfish", "n01440764"], model.classes, what="model", aliases=model.aliases) == [1, 0]
    assert model.size == 224


@pytest.mark.parametrize("name", ["vit_b_16/IMAGENET1K_SWAG_E2E_V1", "googlenet", "inception_v3", "maxvit_t"])
def test_settings_are_those_of_the_published_weights(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library's builder, given published weights, makes a module with the same names, shapes and switches."""
    architecture, _, version = name.partition("/")
    published = models.get_model_weights(architecture)[version or "DEFAULT"]
    with torch.device("meta"):
        module = torchvision_model(name, pretrained=False).module
        monkeypatch.setattr(type(published), "get_state_dict", lambda self, **_: module.state_dict())
        expected = models.get_model(architecture, weights=published).eval()
    auxiliary = ("aux1.", "aux2.", "AuxLogits.")
    shapes = {key: value.shape for key, value in module.state_dict().items() if not key.startswith(auxiliary)}
    assert shapes == {key: value.shape for key, value in expected.state_dict().items() if not key.startswith(auxiliary)}
    assert getattr(module, "transform_input", None) == getattr(expected, "transform_input", None)


def test_local_weights_are_loaded(tmp_path: Path) -> None:
    module = shake(models.mobilenet_v3_small(num_classes=3), seed=5)
    save_file(module.state_dict(), tmp_path / "mine.safetensors")
    model = torchvision_model("mobilenet_v3_small", weights=str(tmp_path / "mine.safetensors"), classes=["a", "b", "c"])
    assert torch.equal(model.module.classifier[3].weight, module.classifier[3].weight)  # type: ignore[index, union-attr, operator]
    with pytest.raises(BadWeights, match="size mismatch"):
        torchvision_model("mobilenet_v3_small", weights=str(tmp_path / "mine.safetensors"))


def test_the_old_names_of_densenets_are_understood(tmp_path: Path) -> None:
    module = models.densenet121(num_classes=2)
    old = {key.replace("norm1.", "norm.1.").replace("conv2.", "conv.2."): value for key, value in module.state_dict().items()}
    torch.save(old, tmp_path / "old.pth")
    assert old.keys() != module.state_dict().keys()
    model = torchvision_model("densenet121", weights=str(tmp_path / "old.pth"), classes=["a", "b"])
    ours = model.module.state_dict()
    assert all(torch.equal(value, ours[key]) for key, value in module.state_dict().items())


def test_published_weights_in_torchs_cache_are_used_and_their_hash_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = shake(models.squeezenet1_1(), seed=3)
    cache = tmp_path / "checkpoints"
    cache.mkdir()
    torch.save(module.state_dict(), cache / "weights.pth")
    begins = hashlib.sha256((cache / "weights.pth").read_bytes()).hexdigest()[:8]
    published = models.SqueezeNet1_1_Weights.DEFAULT
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    monkeypatch.setattr(published.value, "url", f"https://example.org/models/squeezenet-{begins}.pth")
    (cache / "weights.pth").rename(cache / f"squeezenet-{begins}.pth")
    loaded = torchvision_model("squeezenet1_1").module.state_dict()
    assert all(torch.equal(value, loaded[key]) for key, value in module.state_dict().items())
    (cache / f"squeezenet-{begins}.pth").write_bytes(b"something else")
    with pytest.raises(BadWeights, match=f"SHA-256 is .*, expected {begins}"):
        torchvision_model("squeezenet1_1")


def test_a_pickle_in_torchs_cache_is_refused_and_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str, str]]:
            return open, (str(tmp_path / "ran"), "w")

    content = pickle.dumps({"weight": Trap()}, protocol=2)
    name = f"squeezenet-{hashlib.sha256(content).hexdigest()[:8]}.pth"
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / name).write_bytes(content)
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    monkeypatch.setattr(models.SqueezeNet1_1_Weights.DEFAULT.value, "url", f"https://example.org/models/{name}")
    with pytest.raises(BadWeights, match=f"{name}: refused, it is a pickle that can run code"):
        torchvision_model("squeezenet1_1")
    assert not (tmp_path / "ran").exists()


def test_weights_that_cannot_be_had_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object, **__: object) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    monkeypatch.setattr(httpx2, "stream", unreachable)
    with pytest.raises(BadWeights, match=rf"https://.*no route to host.*put the file at {tmp_path}/checkpoints/") as caught:
        torchvision_model("squeezenet1_1")
    assert "\n" not in str(caught.value)
