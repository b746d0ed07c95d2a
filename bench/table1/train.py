"""Trains what Table 1's first two rows need and no one publishes: LeNet, the judges and the VQ autoencoders.

    python -m bench.table1.train lenet mnist-judge mnist-vq --mnist FOLDER [--device cuda] [--scale 1]
    python -m bench.table1.train cifar-judge cifar-vq --cifar FOLDER [--resume] [--out FOLDER]

`--scale 0.1` trains a tenth as long; `--resume` starts from the weights that are there, with a tenth of the rate, and with
`--scale 0` only measures them. Weights go to bench/table1/weights;
what the test images show is printed.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from bench.table1.models import WEIGHTS, Judge, LeNet
from diffusers import VQModel
from lab.training.data import augment
from lab.training.formats import save_half
from lab.training.vqgan import Codebook
from safetensors.torch import save_file
from torch import Tensor, nn

from counterfoil.parts import registry
from counterfoil.parts import weights as weight_files


@dataclass(frozen=True)
class Recipe:
    """Training settings of one model."""

    data: str
    steps: int
    batch: int
    learning_rate: float
    build: Callable[[], nn.Module]
    distorts: bool = False


def _vq(widths: tuple[int, ...], *, codes: int, side: int) -> VQModel:
    return VQModel(
        down_block_types=("DownEncoderBlock2D",) * len(widths),
        up_block_types=("UpDecoderBlock2D",) * len(widths),
        block_out_channels=widths,
        layers_per_block=1,
        latent_channels=4,
        vq_embed_dim=4,
        num_vq_embeddings=codes,
        norm_num_groups=8,
        sample_size=side,
    )


RECIPES = {
    "lenet": Recipe("MNIST", 3000, 128, 2e-3, LeNet),
    "mnist-judge": Recipe("MNIST", 1500, 64, 2e-3, lambda: Judge(16), distorts=True),
    "mnist-vq": Recipe("MNIST", 1500, 32, 2e-3, lambda: _vq((16, 32, 32), codes=256, side=28)),
    "cifar-judge": Recipe("CIFAR10", 6000, 512, 4e-3, lambda: Judge(32), distorts=True),
    "cifar-vq": Recipe("CIFAR10", 5000, 256, 2e-3, lambda: _vq((24, 48), codes=1024, side=32)),
}


@dataclass(frozen=True)
class Place:
    """Source of one training's images, its device and duration, and the destination of the weights."""

    root: Path
    device: str = "cpu"
    scale: float = 1.0
    resume: bool = False
    seconds: float = math.inf
    out: Path = WEIGHTS


def train(name: str, recipe: Recipe, place: Place) -> None:
    """Train one of them, say how good it is on the test images, and write it."""
    torch.manual_seed(0)
    device = place.device
    images, labels = (each.to(device) for each in pictures(recipe.data, place, "train" if place.scale else "test"))
    model = recipe.build()
    if place.resume:
        _load(name, model, place.out)
    model = model.to(device).train()
    steps = max(20, round(recipe.steps * place.scale)) if place.scale else 0
    rate = recipe.learning_rate / (10 if place.resume else 1)
    optimiser = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01)
    if isinstance(model, VQModel):
        loss = _reconstruction(model, starts=not place.resume)
    else:
        loss = _classification(model, distorts=recipe.distorts)
    began = time.monotonic()
    for step in range(steps):
        done = max(step / steps, (time.monotonic() - began) / place.seconds)  # whichever runs out first
        if done >= 1:
            break
        for group in optimiser.param_groups:
            group["lr"] = rate * _warmth(done)
        some = torch.randint(len(labels), (recipe.batch,), device=device)
        cost = loss(images[some].float() / 255, labels[some], done)
        optimiser.zero_grad(set_to_none=True)
        cost.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        if step % 200 == 0:
            print(f"{name} {step} of {steps}: {float(cost.detach()):.4f}, {time.monotonic() - began:.0f} s", flush=True)
        if step % 1000 == 999:
            _save(name, model, place.out)  # anyone who stops it loses little
    model.eval()
    tested, truth = pictures(recipe.data, place, "test")
    print(f"{name}: {_measure(model, tested, truth, device)}", flush=True)
    if steps:
        _save(name, model, place.out)


def _warmth(done: float) -> float:
    """The share of the full rate after a share of the training: up within a tenth, then down along a cosine."""
    return max(0.04, done / 0.1) if done < 0.1 else 0.5 * (1 + math.cos(math.pi * (done - 0.1) / 0.9))


def pictures(name: str, place: Place, split: str) -> tuple[Tensor, Tensor]:
    """All images of a set and their labels, as the product reads them.  # (N, 3, H, W) uint8, (N,)"""
    data = registry.create("dataset", f"torchvision-data:{name}", {"root": str(place.root), "split": split})
    samples = list(data)
    loaded = torch.stack([(data.load(sample, None) * 255).round().to(torch.uint8) for sample in samples])
    return loaded, torch.tensor([sample.label for sample in samples])


Loss = Callable[[Tensor, Tensor, float], Tensor]
"""Of images and labels, after a share of the training."""


def _classification(model: nn.Module, *, distorts: bool) -> Loss:
    def loss(images: Tensor, labels: Tensor, done: float) -> Tensor:
        half = len(images) // 2 if distorts else 0
        seen = torch.cat([augment(images[:half]), images[half:]]) if half else images
        return F.cross_entropy(model(seen), labels, label_smoothing=0.05)

    return loss


def _reconstruction(model: VQModel, *, starts: bool) -> Loss:
    """Continuous for a tenth of the time, so that the codes then start from latents that mean something.

    A model that continues has its codes and keeps them: they no longer follow the encoder, which stays close to them.
    """
    codebook = Codebook(model.quantize.embedding.weight.requires_grad_(False))
    waiting = starts

    def loss(images: Tensor, labels: Tensor, done: float) -> Tensor:
        latents = model.quant_conv(model.encoder(images * 2 - 1))
        commitment = latents.new_zeros(())
        nonlocal waiting
        if waiting and done >= 0.1:
            codebook.start_from(latents.detach())
            waiting = False
        if not waiting:
            codes, nearest = codebook.quantise(latents)
            if starts:
                codebook.follow(latents.detach(), nearest, restarts=done < 0.7)
            commitment = F.mse_loss(latents, codes)
            latents = latents + (codes - latents).detach()
        made = model.decoder(model.post_quant_conv(latents)) / 2 + 0.5
        return F.l1_loss(made, images) + F.mse_loss(made, images) + 0.25 * commitment

    return loss


@torch.no_grad()
def _measure(model: nn.Module, images: Tensor, labels: Tensor, device: str) -> str:
    right = error = 0.0
    for start in range(0, len(labels), 250):
        batch = images[start : start + 250].to(device).float() / 255
        if isinstance(model, VQModel):
            made = (model(batch * 2 - 1).sample / 2 + 0.5).clamp(0, 1)
            error += float(-10 * torch.log10((made - batch).square().flatten(1).mean(1)).sum())
        else:
            right += float((model(batch).argmax(1).cpu() == labels[start : start + 250]).sum())
    if isinstance(model, VQModel):
        return f"PSNR {error / len(labels):.1f} dB on {len(labels)} test images"
    return f"{100 * right / len(labels):.2f} % of {len(labels)} test images right"


def _load(name: str, model: nn.Module, folder: Path) -> None:
    file = folder / name / "diffusion_pytorch_model.safetensors" if isinstance(model, VQModel) else folder / f"{name}.safetensors"
    weight_files.load_into(model, weight_files.load_state(str(file)), what=str(file))


def _save(name: str, model: nn.Module, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(model, VQModel):
        save_half(model, folder / name)
        return
    state = {key: value.detach().cpu() for key, value in model.state_dict().items()}
    half = {key: (value.half() if value.is_floating_point() else value).contiguous() for key, value in state.items()}
    save_file(half, folder / f"{name}.safetensors")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", choices=RECIPES)
    parser.add_argument("--mnist", default="data", type=str, help="folder with MNIST's idx files")
    parser.add_argument("--cifar", default="data", type=str, help="folder with CIFAR-10's binary batches")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--scale", default=1.0, type=float)
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop a training after so long, however few its steps")
    parser.add_argument("--resume", action="store_true", help="start from the weights that are there")
    parser.add_argument("--out", type=Path, default=WEIGHTS)
    given = parser.parse_args()
    for name in given.names:
        recipe = RECIPES[name]
        root = Path(given.mnist if recipe.data == "MNIST" else given.cifar).expanduser()
        place = Place(root, given.device, given.scale, given.resume, given.seconds, given.out)
        train(name, recipe, place)


if __name__ == "__main__":
    main()
