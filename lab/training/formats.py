"""Writes trained models the way their libraries keep them on disk, in half precision."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn

from counterfoil_lab.checker import DEVIATION, MEAN

SIDE = 64


def place(model: nn.Module, device: str) -> nn.Module:
    """The model on a device, with channels last, as its images are."""
    return model.to(device).to(memory_format=torch.channels_last)


def save_half(model: Any, folder: Path) -> None:
    """Write a diffusers or transformers model with its own `save_pretrained`; the weights as float16."""
    half = copy.deepcopy(model).cpu().half()
    half.save_pretrained(folder, safe_serialization=True) if _is_diffusers(model) else half.save_pretrained(folder)
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config.pop("_name_or_path", None)  # where the model was trained on from is of no use elsewhere
    if "dtype" in config:
        # float16 is how the weights are stored, not how they are meant to be computed with.
        config["dtype"] = "float32"
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def save_timm(
    model: nn.Module, folder: Path, *, architecture: str, arguments: dict[str, Any], labels: list[str], channels: int = 3
) -> None:
    """Write a timm model as the folder that `timm.create_model("local-dir:…", pretrained=True)` reads."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: value.detach().cpu() for name, value in model.state_dict().items()}
    half = {name: (value.half() if value.is_floating_point() else value).contiguous() for name, value in weights.items()}
    config = {
        "architecture": architecture,
        "num_classes": len(labels),
        "model_args": {**arguments, "in_chans": channels},
        "pretrained_cfg": {
            "num_classes": len(labels),
            "input_size": [channels, SIDE, SIDE],
            "fixed_input_size": "img_size" in arguments,
            "interpolation": "bilinear",
            "crop_pct": 1.0,
            "mean": [MEAN] * channels,
            "std": [DEVIATION] * channels,
            "label_names": labels,
            "license": "mit",
        },
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    # Written aside and renamed, since other recipes may be reading the checker while it is trained.
    save_file(half, folder / "model.partial", metadata={"format": "pt"})
    (folder / "model.partial").replace(folder / "model.safetensors")


def _is_diffusers(model: Any) -> bool:
    return type(model).__module__.startswith("diffusers.")
