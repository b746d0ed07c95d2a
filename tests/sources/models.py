"""Models, oracles and encoders: small networks saved as their libraries save them."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.fakes import CLASSES
from tests.sources import own
from tests.worlds import FAKES

NAMES = list(CLASSES)
WORDS = ["red boot", "blue bag", "hat"]
TINY = f"python:{FAKES}:TinyModel"
PLAIN: dict[str, Any] = {"classes": NAMES, "size": 16, "mean": 0, "std": 1}


def _timm(folder: Path, stack: ExitStack) -> Any:
    from tests.parts.models.saved import save_model

    return f"timm:{save_model(folder)}", {}


def _hf(folder: Path, stack: ExitStack) -> Any:
    from tests.parts.models.saved import save_classifier

    return f"hf:{save_classifier(folder)}", {}


def _onnx(folder: Path, stack: ExitStack) -> Any:
    from tests.parts.models import programs

    return f"onnx:{programs.onnx_file(folder / 'm.onnx')}", PLAIN


def _torchscript(folder: Path, stack: ExitStack) -> Any:
    from tests.parts.models import programs

    return f"torchscript:{programs.script_program(folder / 'm.pt')}", PLAIN


def _pt2(folder: Path, stack: ExitStack) -> Any:
    from tests.parts.models import programs

    return f"pt2:{programs.export_program(folder / 'm.pt2')}", PLAIN


def _clip(folder: Path, stack: ExitStack) -> Any:
    from tests.parts.oracles.conftest import save_clip

    return f"clip:{save_clip(folder)}", {}


def _openclip(folder: Path, stack: ExitStack) -> Any:
    from tests.parts.oracles.conftest import save_openclip

    return f"openclip:{save_openclip(folder)}", {}


def _openclip_model(folder: Path, stack: ExitStack) -> Any:
    return _openclip(folder, stack)[0], {"classes": WORDS}


def _vlm(folder: Path, stack: ExitStack) -> Any:
    from tests.parts.oracles import small_vlm

    return f"vlm:{small_vlm.save_vlm(folder)}", {}


def _trunk(folder: Path, stack: ExitStack) -> Any:
    import transformers

    from tests.parts.models.saved import SMALL

    transformers.Dinov2Model(transformers.Dinov2Config(**SMALL, image_size=32, patch_size=8)).save_pretrained(folder)
    transformers.BitImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}).save_pretrained(folder)
    return f"hf:{folder}", {}


def _features(folder: Path, stack: ExitStack) -> Any:
    from tests.parts.models import programs

    return f"torchscript:{programs.script_program(folder / 'm.pt')}", {"size": 16, "scale": 1.0}


RECIPES: dict[tuple[str, str], Any] = {
    ("model", "timm"): _timm,
    ("model", "torchvision"): lambda folder, stack: ("torchvision:mobilenet_v3_small", {"pretrained": False}),
    ("model", "python"): lambda folder, stack: (TINY, {}),
    ("model", "hf"): _hf,
    ("model", "openclip"): _openclip_model,
    ("model", "onnx"): _onnx,
    ("model", "torchscript"): _torchscript,
    ("model", "pt2"): _pt2,
    ("model", "grouped"): lambda folder, stack: (f"grouped:{TINY}", {"groups": {"insect": ["ant", "bee"], "mammal": "2-3"}}),
    ("model", "lab"): lambda folder, stack: ("lab:narrow", {}),
    ("oracle", "clip"): _clip,
    ("oracle", "openclip"): _openclip,
    ("oracle", "classifier"): lambda folder, stack: (f"classifier:{TINY}", {}),
    ("oracle", "ensemble"): lambda folder, stack: (
        "ensemble:",
        {"members": [f"classifier:{TINY}", _clip(folder, stack)[0]]},
    ),
    ("oracle", "vlm"): _vlm,
    ("oracle", "probe"): lambda folder, stack: (f"probe:{own.part_name('encoder')}", {"head": "knn", "k": 5}),
    ("oracle", "human"): lambda folder, stack: ("human:", {}),
    ("oracle", "lab"): lambda folder, stack: ("lab:clip", {}),
    ("oracle", "daylight"): lambda folder, stack: ("daylight:", {}),
    ("encoder", "clip"): _clip,
    ("encoder", "openclip"): _openclip,
    ("encoder", "torchscript"): _features,
    ("encoder", "hf"): _trunk,
    ("encoder", "timm"): _timm,
    ("encoder", "lab"): lambda folder, stack: ("lab:clip", {}),
    ("chat", "vlm"): lambda folder, stack: (_vlm(folder, stack)[0], {"max_tokens": 4}),
}
