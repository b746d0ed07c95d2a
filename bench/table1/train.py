"""Trains what Table 1's first two rows need and nobody publishes: LeNet, the judges and the VQ autoencoders.

    python -m bench.table1.train lenet mnist-judge mnist-vq --mnist FOLDER [--device cuda] [--scale 1]
    python -m bench.table1.train cifar-judge cifar-vq --cifar FOLDER

`--scale 0.1` trains a tenth as long. Weights go to bench/table1/weights; what was measured on the test images is printed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from bench.table1.models import WEIGHTS, Judge, LeNet
from diffusers import VQModel
from safetensors.torch import save_file
from torch import Tensor, nn

from counterfoil import registry
from counterfoil.lab.train.augment import augment
from counterfoil.lab.train.formats import save_half
from counterfoil.lab.train.vqgan import Codebook


@dataclass(frozen=True)
class Recipe:
    """How one model is trained."""

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
    "cifar-judge": Recipe("CIFAR10", 8000, 128, 2e-3, lambda: Judge(32), distorts=True),
    "cifar-vq": Recipe("CIFAR10", 4000, 32, 2e-3, lambda: _vq((24, 48), codes=1024, side=32)),
}


def train(name: str, recipe: Recipe, *, root: str, device: str, scale: float) -> None:
    """Train one of them, say how good it is on the test images, and write it."""
    torch.manual_seed(0)
    images, labels = pictures(recipe.data, root, "train")
    model = recipe.build().to(device).train()
    steps = max(10, round(recipe.steps * scale))
    optimiser = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, recipe.learning_rate, total_steps=steps, pct_start=0.1)
    loss = _reconstruction(model, steps) if isinstance(model, VQModel) else _classification(model, distorts=recipe.distorts)
    began = time.monotonic()
    for step in range(steps):
        some = torch.randint(len(labels), (recipe.batch,))
        cost = loss(images[some].to(device).float() / 255, labels[some].to(device), step)
        optimiser.zero_grad(set_to_none=True)
        cost.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        if step % 200 == 0:
            print(f"{name} {step} of {steps}: {float(cost.detach()):.4f}, {time.monotonic() - began:.0f} s", flush=True)
    model.eval()
    tested, truth = pictures(recipe.data, root, "test")
    print(f"{name}: {_measured(model, tested, truth, device)}", flush=True)
    _save(name, model)


def pictures(name: str, root: str, split: str) -> tuple[Tensor, Tensor]:
    """All pictures of a set and their labels, as the product reads them.  # (N, 3, H, W) uint8, (N,)"""
    data = registry.create("dataset", f"torchvision-data:{name}", {"root": root, "split": split})
    samples = list(data)
    rows = torch.stack([(data.load(sample, None) * 255).round().to(torch.uint8) for sample in samples])
    return rows, torch.tensor([sample.label for sample in samples])


Loss = Callable[[Tensor, Tensor, int], Tensor]


def _classification(model: nn.Module, *, distorts: bool) -> Loss:
    def loss(images: Tensor, labels: Tensor, step: int) -> Tensor:
        half = len(images) // 2 if distorts else 0
        seen = torch.cat([augment(images[:half]), images[half:]]) if half else images
        return F.cross_entropy(model(seen), labels, label_smoothing=0.05)

    return loss


def _reconstruction(model: VQModel, steps: int) -> Loss:
    """Continuous for a tenth of the time, so that the codes then start from latents that mean something."""
    codebook = Codebook(model.quantize.embedding.weight.requires_grad_(False))
    begins = max(1, steps // 10)

    def loss(images: Tensor, labels: Tensor, step: int) -> Tensor:
        latents = model.quant_conv(model.encoder(images * 2 - 1))
        commitment = latents.new_zeros(())
        if step == begins:
            codebook.start_from(latents.detach())
        if step >= begins:
            codes, nearest = codebook.quantise(latents)
            codebook.follow(latents.detach(), nearest, restarts=step < 0.7 * steps)
            commitment = F.mse_loss(latents, codes)
            latents = latents + (codes - latents).detach()
        made = model.decoder(model.post_quant_conv(latents)) / 2 + 0.5
        return F.l1_loss(made, images) + F.mse_loss(made, images) + 0.25 * commitment

    return loss


@torch.no_grad()
def _measured(model: nn.Module, images: Tensor, labels: Tensor, device: str) -> str:
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


def _save(name: str, model: nn.Module) -> None:
    WEIGHTS.mkdir(exist_ok=True)
    if isinstance(model, VQModel):
        save_half(model, WEIGHTS / name)
        return
    state = {key: value.detach().cpu() for key, value in model.state_dict().items()}
    half = {key: (value.half() if value.is_floating_point() else value).contiguous() for key, value in state.items()}
    save_file(half, WEIGHTS / f"{name}.safetensors")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", choices=RECIPES)
    parser.add_argument("--mnist", default="data", type=str, help="folder with MNIST's idx files")
    parser.add_argument("--cifar", default="data", type=str, help="folder with CIFAR-10's binary batches")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--scale", default=1.0, type=float)
    given = parser.parse_args()
    for name in given.names:
        recipe = RECIPES[name]
        root = str(Path(given.mnist if recipe.data == "MNIST" else given.cifar).expanduser())
        train(name, recipe, root=root, device=given.device, scale=given.scale)


if __name__ == "__main__":
    main()
