from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from PIL import Image

from counterfoil.core.errors import BadPart
from counterfoil.parts.models.preprocessing import from_processor
from tests.parts.models.conftest import to_batch

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


def test_mobilevit_takes_blue_first() -> None:
    red = torch.zeros(1, 3, 80, 80)
    red[:, 0] = 1
    kind, options = PROCESSORS["mobilevit"]
    assert from_processor(getattr(transformers, kind)(**options), what="x")(red)[0, :, 5, 5].tolist() == [0, 0, 1]


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
