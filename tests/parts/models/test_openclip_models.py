from __future__ import annotations

from pathlib import Path

import open_clip
import torch
from PIL import Image

from counterfoil.testing import check_model
from tests.parts.created import openclip_model
from tests.parts.models.conftest import to_batch

NAMES = ["red boot", "blue bag", "hat"]


def test_logits_are_those_of_open_clip_itself(openclip_folder: Path, square_scenes: list[Image.Image]) -> None:
    model = openclip_model(str(openclip_folder), classes=NAMES, templates=["a photo of a {class}"])
    module, transform = open_clip.create_model_from_pretrained(f"local-dir:{openclip_folder}")
    module.eval()
    with torch.no_grad():
        texts = module.encode_text(open_clip.tokenize([f"a photo of a {name}" for name in NAMES], 20), normalize=True)
        seen = module.encode_image(torch.stack([transform(scene) for scene in square_scenes]), normalize=True)
        own = seen @ texts.T * module.logit_scale.exp()
        ours = torch.cat([model.logits(to_batch(scene)) for scene in square_scenes])
    assert (ours - own).abs().max() <= 0.05 * own.std(dim=0).max()
    assert torch.equal(ours.argmax(dim=1), own.argmax(dim=1))


def test_the_models_contract_is_kept(openclip_folder: Path) -> None:
    model = openclip_model(str(openclip_folder), classes=NAMES)
    check_model(model, size=40)
    assert model.size == 32
    assert model.provenance()["templates"] == "an image of {class}"
