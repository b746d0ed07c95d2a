from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers
from PIL import Image

from counterfoil.parts import imagenet, labels
from counterfoil.parts.models.modules import ModuleModel, ZeroShotModel
from counterfoil.testing import check_model
from tests.parts.created import hf_model
from tests.parts.models.conftest import to_batch
from tests.parts.models.saved import NAMES, save_classifier


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


def test_the_models_contract_is_kept(vit: Path, tmp_path: Path) -> None:
    check_model(hf_model(str(vit)), size=40)
    check_model(hf_model(str(save_classifier(tmp_path, "mobilenet"))), size=64)


def test_names_and_size_come_from_the_configuration(vit: Path) -> None:
    model = hf_model(str(vit))
    assert isinstance(model, ModuleModel)
    assert list(model.classes) == NAMES
    assert model.size == 32
    assert model.provenance()["library"] == f"transformers {transformers.__version__}"


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


def test_clip_and_siglip_keep_the_contract(clip_folder: Path, siglip_folder: Path) -> None:
    for folder in (clip_folder, siglip_folder):
        check_model(hf_model(str(folder), classes=["red boot", "blue bag", "hat"]), size=48)


def test_clip_knows_the_names_of_imagenet(clip_folder: Path) -> None:
    model = hf_model(str(clip_folder), classes="imagenet", templates="{class}")
    assert len(model.classes) == 1000
    assert labels.match(["n01443537"], model.classes, what="model", aliases=model.aliases) == [1]
