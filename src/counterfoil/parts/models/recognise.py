"""Find out what a user's model is: a part's name, a folder, or a file, with the architecture of a plain state dictionary."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from counterfoil.core.errors import BadPart, BadWeights, CounterfoilError
from counterfoil.core.spec import PartSpec
from counterfoil.parts import weights
from counterfoil.parts.pretrained import read_config

STATES = (".pth", ".pt", ".bin", ".safetensors", ".ckpt", ".tar")
COMMON = (
    "resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "mobilenetv2_100", "mobilenetv3_large_100", "efficientnet_b0",
    "efficientnet_b1", "efficientnet_b2", "efficientnet_b3", "tf_efficientnet_lite0", "densenet121", "vgg16", "convnext_tiny",
    "convnext_small", "convnext_base", "vit_tiny_patch16_224", "vit_small_patch16_224", "vit_base_patch16_224",
    "deit_small_patch16_224", "swin_tiny_patch4_window7_224", "swin_base_patch4_window7_224", "regnety_016",
)  # fmt: skip
"""Architectures of timm that a plain state dictionary is tried against."""


def recognise(given: str, *, arch: str | None = None, classes: Sequence[str] = ()) -> PartSpec:
    """The part that a user's model is.

    `given` is a part's name (`timm:resnet50.a1_in1k`), a folder as timm, transformers or open_clip save one, or a file: ONNX,
    an exported or TorchScript program, or a state dictionary, whose architecture is `arch` or one that fits. `classes` are
    the names of its outputs, if it does not say them.
    """
    path = Path(given).expanduser()
    if not path.exists():
        if ":" in given:
            return PartSpec(name=given, options={"classes": list(classes)} if classes else {})
        raise BadPart(f"{given}: no such file or folder, and no name of a model; name one as in timm:resnet50, or a checkpoint")
    named = {"classes": list(classes)} if classes else {}
    if path.is_dir():
        return PartSpec(name=_folder(path), options=named)
    kind = {".onnx": "onnx", ".pt2": "pt2"}.get(path.suffix) or ("torchscript" if _is_program(path) else "")
    if kind:
        return PartSpec(name=f"{kind}:{path}", options=named)
    if path.suffix not in STATES:
        raise BadPart(
            f"{path}: a file of a kind that is not known; give a folder, .onnx, .pt2, TorchScript or a state dictionary"
        )
    state = weights.load_state(path)
    outputs = _outputs(state)
    if classes and outputs and len(classes) != outputs:
        raise BadPart(
            f"{path}: its head has {outputs} outputs for {len(classes)} classes; give their names in order with --classes"
        )
    found = arch or f"timm:{_fitting(path, state, outputs)}"
    if not found.startswith(("timm:", "torchvision:")):
        raise BadPart(f"--arch {found}: name an architecture of timm or torchvision, as in timm:resnet18")
    return PartSpec(name=found, options={"weights": str(path), **named})


def _folder(path: Path) -> str:
    """The name of the model in a folder."""
    if (path / "open_clip_config.json").is_file():
        return f"openclip:{path}"
    if not (path / "config.json").is_file():
        raise BadPart(f"{path}: a folder without config.json; save the model with save_pretrained or timm's save_for_hf")
    config = read_config(path / "config.json")
    if "architecture" in config:
        return f"timm:{path}"
    if "model_type" in config:
        return f"hf:{path}"
    raise BadPart(f"{path}: its config.json names neither an architecture of timm nor a model type of transformers")


def _is_program(path: Path) -> bool:
    """Tell a TorchScript program, which holds code, from a state dictionary, which does not."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as file:
        return any("/code/" in name for name in file.namelist())


def _outputs(state: Mapping[str, torch.Tensor]) -> int:
    """The number of outputs: rows of the last matrix with a bias of its length; 0 if there is none."""
    found = [name for name, value in state.items() if name.endswith(".weight") and value.ndim == 2]
    heads = [name for name in found if (bias := state.get(name.removesuffix("weight") + "bias")) is not None and bias.ndim == 1]
    return len(state[heads[-1]]) if heads else 0


def _fitting(path: Path, state: Mapping[str, torch.Tensor], outputs: int) -> str:
    """The name of timm's architecture whose weights have these names and shapes."""
    shapes = {name: tuple(value.shape) for name, value in state.items()}
    for name in _candidates(path):
        try:
            if _shapes(name, outputs) == shapes:
                return name
        except CounterfoilError:
            raise
        except Exception:  # an architecture that takes other options; the next one
            continue
    raise BadWeights(
        f"{path}: a state dictionary of {len(shapes)} tensors, and no common architecture has these; say which it is, as in "
        "--arch timm:resnet18 or --arch torchvision:resnet18"
    )


def _candidates(path: Path) -> Iterator[str]:
    """Architectures to try: those named by the file and its folder, then common ones."""
    from timm.models import list_models

    told = f"{path.parent.name}/{path.stem}".lower().replace("-", "_")
    yield from sorted((name for name in list_models() if name in told), key=len, reverse=True)[:8]
    yield from COMMON


def _shapes(name: str, outputs: int) -> dict[str, tuple[int, ...]]:
    """Names and shapes of an architecture's weights, without computing any."""
    import timm

    with torch.device("meta"):
        network: Any = timm.create_model(name, pretrained=False, num_classes=outputs or 1000)
    return {key: tuple(value.shape) for key, value in network.state_dict().items()}
