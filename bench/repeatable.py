"""Whether a model's answers and gradients are the same to the last digit every time.

    python -m bench.repeatable [--device cuda] [--models resnet50,vit_base_patch16_224] [--precisions float32,bf16] [--keep NAME]

Models of timm with random weights, pictures of 256 pixels that they resize, in the number formats of a run. Every row asks the
same thing `--times` times and counts the different answers; between, something else is computed, so that the card is not found as
it was left. Exit code 1 if any answer differs.
"""

from __future__ import annotations

import argparse
from typing import Any

import timm
import torch
import torch.nn.functional as F
from bench.card import clear, synchronize, timed
from bench.results import add_keep, checked, command
from torch import Tensor

from counterfoil.engine.fast import Acceleration
from counterfoil.parts.models.modules import ModuleModel
from counterfoil.parts.models.preprocessing import IMAGENET_MEAN, IMAGENET_STD, Preprocessing

MODELS = (
    "resnet50,convnext_tiny,efficientnet_b0,mobilenetv3_large_100,densenet121,vit_base_patch16_224,vit_base_patch16_384,"
    "swin_tiny_patch4_window7_224,mixer_b16_224"
)


def model_of(name: str, device: str) -> ModuleModel:
    torch.manual_seed(0)
    network = timm.create_model(name, pretrained=False)
    for weight in network.parameters():
        if weight.dim() > 1 and not weight.any():  # a head of zeros would have a gradient of zeros
            torch.nn.init.normal_(weight, std=0.02)
    height, width = network.default_cfg["input_size"][1:]
    seen = Preprocessing(size=(height, width), interpolation="bicubic", mean=IMAGENET_MEAN, std=IMAGENET_STD)
    return ModuleModel(network, [str(number) for number in range(1000)], preprocessing=seen).to(device)


def asked_once(model: ModuleModel, pictures: Tensor, labels: Tensor, how: Acceleration) -> tuple[Tensor, Tensor]:
    leaf = pictures.clone().requires_grad_()
    with how.computing(pictures.device), how.deterministic_attention():
        logits = model.logits(leaf).float()
        (gradient,) = torch.autograd.grad(F.cross_entropy(logits, labels, reduction="sum"), leaf)
    return logits.detach(), gradient


def repeated(name: str, precision: Any, asked: argparse.Namespace) -> dict[str, Any]:
    """How many different answers and gradients there are, and what one takes."""
    clear(asked.device)
    model, chance = model_of(name, asked.device), torch.Generator().manual_seed(1)
    pictures = torch.rand(asked.images, 3, 256, 256, generator=chance).to(asked.device)
    labels = torch.arange(asked.images, device=asked.device) % 1000
    seen: list[tuple[Tensor, Tensor]] = []
    how = Acceleration(precision)
    for number in range(asked.times):
        other = torch.rand(number + 1, 3, 256, 256, generator=chance).to(asked.device)
        asked_once(model, other, labels[:1].expand(number + 1), how)
        seen.append(asked_once(model, pictures, labels, how))
    synchronize(asked.device)
    seconds = timed(lambda: [asked_once(model, pictures, labels, how) for _ in range(asked.times)], asked.device) / asked.times
    answers, gradients = zip(*seen, strict=True)
    worst = max(float((gradient - gradients[0]).norm() / gradients[0].norm()) for gradient in gradients)
    return {
        "model": name,
        "precision": precision,
        "times": asked.times,
        "different answers": different(answers),
        "different gradients": different(gradients),
        "gradients off by": worst,
        "ms a picture": round(seconds * 1e3 / asked.images, 4),
    }


def different(tensors: tuple[Tensor, ...]) -> int:
    unlike: list[Tensor] = []
    for tensor in tensors:
        if not any(torch.equal(tensor, each) for each in unlike):
            unlike.append(tensor)
    return len(unlike)


def problem(row: dict[str, Any]) -> str:
    same = row["different answers"] == row["different gradients"] == 1
    return "" if same else f"{row['model']} in {row['precision']} is not the same every time"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--models", default=MODELS)
    parser.add_argument("--precisions", default="float32,bf16")
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--times", type=int, default=6)
    add_keep(parser)
    asked = parser.parse_args()
    about = f"Gradients of timm's models, random weights, {asked.images} pictures at a time, asked again and again."
    asking = ((name, precision) for name in asked.models.split(",") for precision in asked.precisions.split(","))
    found = ((row, problem(row)) for row in (repeated(name, precision, asked) for name, precision in asking))
    checked(found, asked.keep, command=command("bench.repeatable"), about=about)


if __name__ == "__main__":
    main()
