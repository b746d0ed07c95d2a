"""Small classifiers with weights of their own, saved as their libraries save them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import timm
import torch
import transformers
from timm.models import save_for_hf
from torch import nn


def shake(module: nn.Module, seed: int = 0) -> nn.Module:
    """Weights that make the outputs differ from image to image, as those of an untrained model hardly do."""
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, (2 / parameter[0].numel()) ** 0.5, generator=random)
            elif name.endswith("bias"):
                parameter.zero_()  # libraries draw some of them from the global generator
    return module


NAMES = ["boot", "bag", "dress", "coat", "hat"]


SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}


def save_classifier(folder: Path, kind: str = "vit", *, names: list[str] = NAMES) -> Path:
    """A small classifier with its processor, as transformers saves them."""
    named: dict[str, Any] = {"id2label": dict(enumerate(names)), "label2id": {name: at for at, name in enumerate(names)}}
    if kind == "vit":
        config: Any = transformers.ViTConfig(**SMALL, image_size=32, patch_size=8, **named)
        processor: Any = transformers.ViTImageProcessor(size={"height": 32, "width": 32})
    elif kind == "resnet":
        config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", **named)
        processor = transformers.ConvNextImageProcessor(size={"shortest_edge": 48}, crop_pct=0.875)
    else:
        config = transformers.MobileNetV1Config(depth_multiplier=0.25, min_depth=4, **named)
        processor = transformers.MobileNetV1ImageProcessor(size={"shortest_edge": 48}, crop_size={"height": 40, "width": 40})
    shake(transformers.AutoModelForImageClassification.from_config(config)).save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


def save_model(folder: Path, name: str = "test_vit", *, config: dict[str, Any] | None = None, **arguments: Any) -> Path:
    """A small model with weights of its own in the layout of timm's hub repositories."""
    module = shake(timm.create_model(name, num_classes=len(NAMES), **arguments))
    save_for_hf(module, str(folder), model_config={"label_names": NAMES}, model_args=arguments, safe_serialization=True)
    if config:
        stored = json.loads((folder / "config.json").read_text())
        stored["pretrained_cfg"].update(config)
        (folder / "config.json").write_text(json.dumps(stored))
    return folder
