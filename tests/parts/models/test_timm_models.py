from __future__ import annotations

import json
from pathlib import Path

import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import save_file
from timm.data import create_transform, resolve_model_data_config

from counterfoil.parts import labels
from counterfoil.parts.models.modules import ModuleModel
from tests.parts.created import timm_model
from tests.parts.models.conftest import shake, to_batch
from tests.parts.models.saved import NAMES, save_model


def assert_agrees(model: ModuleModel, pictures: list[Image.Image]) -> None:
    """Top-1 is that of timm's own transform; logits lie within 5 % of their spread over images."""
    settings = resolve_model_data_config(model.module)
    transform = create_transform(**settings)
    with torch.no_grad():
        inputs = [(transform(picture)[None], model.preprocessing(to_batch(picture))) for picture in pictures]
        own = torch.cat([model.module(theirs) for theirs, _ in inputs])
        ours = torch.cat([model.logits(to_batch(picture)) for picture in pictures])
    levels = max(float((theirs - mine).abs().max()) for theirs, mine in inputs) * min(settings["std"]) * 255
    assert levels <= 1.7  # timm rounds to 8 bits twice while resizing
    assert (ours - own).abs().max() <= 0.05 * own.std(dim=0).max()
    assert torch.equal(ours.argmax(dim=1), own.argmax(dim=1))
    typical = own.mean(dim=0)  # without what random weights say of every image, predictions differ and mean more
    assert torch.equal((ours - typical).argmax(dim=1), (own - typical).argmax(dim=1))
    assert len((own - typical).argmax(dim=1).unique()) > 1


@pytest.mark.parametrize("name", ["test_vit", "test_resnet", "test_convnext"])
def test_preprocessing_agrees_with_timms_transform(tmp_path: Path, name: str, square_scenes: list[Image.Image]) -> None:
    assert_agrees(timm_model(str(save_model(tmp_path, name))), square_scenes)


@pytest.mark.parametrize("mode", ["center", "squash", "border"])
def test_every_crop_mode_agrees_on_pictures_of_any_shape(tmp_path: Path, mode: str, oblong_scenes: list[Image.Image]) -> None:
    config = {"crop_mode": mode, "crop_pct": 0.9, "mean": [0.5, 0.4, 0.3], "std": [0.5, 0.6, 0.7]}
    assert_agrees(timm_model(str(save_model(tmp_path, config=config))), oblong_scenes)


def test_a_grey_model_sees_grey_pictures(tmp_path: Path, square_scenes: list[Image.Image]) -> None:
    folder = save_model(tmp_path, "test_efficientnet", in_chans=1, config={"mean": [0.5], "std": [0.25]})
    model = timm_model(str(folder))
    assert model.preprocessing.grey
    settings = {**resolve_model_data_config(model.module), "mean": (0.5,), "std": (0.25,)}
    transform = create_transform(**settings)
    with torch.no_grad():
        theirs = torch.stack([transform(picture.convert("L")) for picture in square_scenes])
        ours = torch.cat([model.preprocessing(to_batch(picture)) for picture in square_scenes])
        assert (theirs - ours).abs().max() * 0.25 * 255 <= 2.2  # one more rounding, that to grey
        assert torch.equal(model.module(theirs).argmax(dim=1), model.module(ours).argmax(dim=1))


def test_a_folder_gives_its_own_weights_and_names(tmp_path: Path) -> None:
    model = timm_model(str(save_model(tmp_path)))
    again = timm.create_model(f"local-dir:{tmp_path}", pretrained=True).eval()
    batch = torch.rand(2, 3, 160, 160)
    with torch.no_grad():
        assert torch.allclose(model.logits(batch), again(model.preprocessing(batch)), atol=1e-5)
    assert list(model.classes) == NAMES
    assert model.size == 160
    assert model.provenance()["library"] == f"timm {timm.__version__}"
    assert "state_dict" not in model.module.pretrained_cfg  # type: ignore[operator]


def test_an_imagenet_model_has_names_and_wordnet_ids() -> None:
    model = timm_model("test_vit", pretrained=False)
    wanted = ["n01443537", "tench", "Cardigan Welsh corgi", "crane bird"]
    assert labels.match(wanted, model.classes, what="model", aliases=model.aliases) == [1, 0, 264, 134]


def test_every_class_of_the_larger_imagenet_has_a_name_of_its_own() -> None:
    model = timm_model("resnetv2_50x1_bit.goog_in21k", pretrained=False)
    assert len(model.classes) == len(set(model.classes)) == 21843
    assert labels.match(["n02012849"], model.classes, what="model", aliases=model.aliases)


def test_label_names_may_be_ids_with_descriptions(tmp_path: Path) -> None:
    folder = save_model(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    config["label_names"] = {str(index): f"id{index}" for index in range(5)}
    config["label_descriptions"] = {f"id{index}": name for index, name in enumerate(NAMES)}
    (folder / "config.json").write_text(json.dumps(config))
    model = timm_model(str(folder))
    assert list(model.classes) == NAMES
    assert labels.match(["id3"], model.classes, what="model", aliases=model.aliases) == [3]


def test_local_weights_are_loaded_into_a_named_model(tmp_path: Path) -> None:
    module = shake(timm.create_model("test_vit", num_classes=3), seed=7)
    save_file(module.state_dict(), tmp_path / "mine.safetensors")
    model = timm_model("test_vit", weights=str(tmp_path / "mine.safetensors"), classes=["a", "b", "c"])
    assert torch.equal(model.module.head.weight, module.head.weight)  # type: ignore[union-attr, arg-type]
    assert list(model.classes) == ["a", "b", "c"]
