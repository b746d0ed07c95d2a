"""Models of timm, torchvision, transformers and open_clip, each against the library's own answers."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
import timm
import torch
import transformers
from PIL import Image
from safetensors.torch import save_file
from timm.data import create_transform, resolve_model_data_config
from torchvision import models

from counterfoil.core.errors import BadPart, BadWeights
from counterfoil.parts import imagenet, labels
from counterfoil.parts.models.modules import ModuleModel, ZeroShotModel
from counterfoil.parts.models.preprocessing import from_processor
from tests.parts.created import hf_model, timm_model, torchvision_model
from tests.parts.models.saved import NAMES, save_classifier, save_model, shake
from tests.parts.scenes import to_batch


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


def test_weights_that_cannot_be_had_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object, **__: object) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    monkeypatch.setattr(httpx2, "stream", unreachable)
    with pytest.raises(BadWeights, match=rf"https://.*no route to host.*put the file at {tmp_path}/checkpoints/") as caught:
        torchvision_model("squeezenet1_1")
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def vit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_classifier(tmp_path_factory.mktemp("vit"))


@pytest.mark.parametrize("kind", ["vit", "resnet"])
def test_logits_are_those_of_transformers_itself(tmp_path: Path, kind: str, square_scenes: list[Image.Image]) -> None:
    folder = save_classifier(tmp_path, kind)
    model = hf_model(str(folder))
    processor = transformers.AutoImageProcessor.from_pretrained(folder)
    module = transformers.AutoModelForImageClassification.from_pretrained(folder).eval()
    with torch.no_grad():
        own = torch.cat([module(**processor(images=scene, return_tensors="pt")).logits for scene in square_scenes])
        ours = torch.cat([model.logits(to_batch(scene)) for scene in square_scenes])
    typical = own.mean(dim=0)
    assert (ours - own).abs().max() <= 0.05 * own.std(dim=0).max()
    assert torch.equal((ours - typical).argmax(dim=1), (own - typical).argmax(dim=1))
    assert len((own - typical).argmax(dim=1).unique()) > 1


def test_imagenets_names_are_recognised_and_made_unlike(tmp_path: Path) -> None:
    names = ["background", *[entry.lemmas for entry in imagenet.classes()]]
    model = hf_model(str(save_classifier(tmp_path, "mobilenet", names=names)))
    assert len(model.classes) == len(set(model.classes)) == 1001
    wanted = ["n01440764", "tench", "crane bird", "crane", "background"]
    assert [labels.match([name], model.classes, what="m", aliases=model.aliases)[0] for name in wanted] == [1, 1, 135, 518, 0]


def test_clip_classifies_by_names(clip_folder: Path, square_scenes: list[Image.Image]) -> None:
    names, template = ["red boot", "blue bag", "hat"], "a photo of a {class}"
    model = hf_model(str(clip_folder), classes=names, templates=template)
    assert isinstance(model, ZeroShotModel)
    processor = transformers.AutoProcessor.from_pretrained(clip_folder)
    texts = [template.replace("{class}", name) for name in names]
    scenes = [scene.resize((36, 36)) for scene in square_scenes]  # the size it resizes to: nothing is left to rounding
    inputs = processor(text=texts, images=scenes, return_tensors="pt", padding=True)
    with torch.no_grad():
        own = transformers.CLIPModel.from_pretrained(clip_folder).eval()(**inputs).logits_per_image
        ours = torch.cat([model.logits(to_batch(scene)) for scene in scenes])
    assert torch.allclose(ours, own, atol=1e-4)
    assert (own - own.mean(dim=0)).abs().max() > 0.1  # the images do not all look the same to it
    assert model.size == 32


def test_clip_knows_the_names_of_imagenet(clip_folder: Path) -> None:
    model = hf_model(str(clip_folder), classes="imagenet", templates="{class}")
    assert len(model.classes) == 1000
    assert labels.match(["n01443537"], model.classes, what="model", aliases=model.aliases) == [1]


PROCESSORS: dict[str, tuple[str, dict[str, Any]]] = {
    "vit": ("ViTImageProcessor", {"size": {"height": 64, "width": 64}}),
    "siglip": ("SiglipImageProcessor", {"size": {"height": 48, "width": 64}}),
    "clip": ("CLIPImageProcessor", {"size": {"shortest_edge": 72}, "crop_size": {"height": 64, "width": 64}}),
    "deit": ("DeiTImageProcessor", {"size": {"height": 80, "width": 80}, "crop_size": {"height": 64, "width": 64}}),
    "beit": ("BeitImageProcessor", {"size": {"height": 64, "width": 64}}),
    "bit": ("BitImageProcessor", {"size": {"shortest_edge": 73}, "crop_size": {"height": 64, "width": 64}}),
    "convnext": ("ConvNextImageProcessor", {"size": {"shortest_edge": 64}, "crop_pct": 0.9}),
    "convnext, large": ("ConvNextImageProcessor", {"size": {"shortest_edge": 384}}),
    "efficientnet": ("EfficientNetImageProcessor", {"size": {"height": 64, "width": 64}}),
    "efficientnet, offset": ("EfficientNetImageProcessor", {"rescale_offset": True, "rescale_factor": 1 / 127.5, "resample": 2}),
    "levit": ("LevitImageProcessor", {"size": {"shortest_edge": 56}, "crop_size": {"height": 56, "width": 56}}),
    "mobilenet v1": ("MobileNetV1ImageProcessor", {"size": {"shortest_edge": 80}, "crop_size": {"height": 64, "width": 64}}),
    "mobilevit": ("MobileViTImageProcessor", {"size": {"shortest_edge": 72}, "crop_size": {"height": 64, "width": 64}}),
    "poolformer": (
        "PoolFormerImageProcessor",
        {"crop_pct": 0.9, "size": {"shortest_edge": 64}, "crop_size": {"height": 64, "width": 64}},
    ),
    "pvt": ("PvtImageProcessor", {"size": {"height": 64, "width": 64}}),
    "not rescaled": ("ViTImageProcessor", {"size": {"height": 32, "width": 32}, "do_rescale": False, "do_normalize": False}),
    "not normalised": ("ViTImageProcessor", {"size": {"height": 32, "width": 32}, "do_normalize": False}),
}


@pytest.mark.parametrize("name", PROCESSORS)
def test_pictures_are_prepared_as_the_processor_does(name: str, oblong_scenes: list[Image.Image]) -> None:
    kind, options = PROCESSORS[name]
    processor = getattr(transformers, kind)(**options)
    preprocessing = from_processor(processor, what=name)
    for scene in oblong_scenes:
        theirs = torch.as_tensor(processor(images=scene, return_tensors="pt")["pixel_values"]).float()
        ours = preprocessing(to_batch(scene))
        assert ours.shape == theirs.shape
        levels = (ours - theirs).abs() * torch.tensor(preprocessing.std or (1.0,) * 3)[:, None, None] * 255
        assert levels.max() <= 2.6  # a processor rounds to 8 bits, and its bicubic filter once for each direction
        assert levels.mean() <= 0.5


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("PerceiverImageProcessor", {}, "does something not known here|disagree"),
        ("Siglip2ImageProcessor", {}, "patches of changing number"),
        ("ViTImageProcessor", {"resample": 1}, "Pillow's filter 1"),
        ("ViTImageProcessor", {"size": {"longest_edge": 64}}, "resizes to {'longest_edge': 64}"),
    ],
)
def test_a_processor_with_other_steps_is_refused(kind: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadPart, match=message):
        from_processor(getattr(transformers, kind)(**options), what="x")


def test_a_processor_that_does_more_than_its_settings_say_is_found_out() -> None:
    class Brighter(transformers.ViTImageProcessor):
        def rescale_and_normalize(self, images: torch.Tensor, *rest: Any) -> torch.Tensor:
            return super().rescale_and_normalize(images, *rest) + 0.1

    with pytest.raises(BadPart, match=r"disagree by 1\d\.\d levels of 255"):
        from_processor(Brighter(size={"height": 32, "width": 32}), what="x")


WORDS = ["red boot", "blue bag", "hat"]
