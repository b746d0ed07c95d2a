"""A denoiser that is exactly right about simple images, and small networks in diffusers layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import pytest
import torch
from torch import Tensor

from counterfoil.parts.generators.adm import AdmUNet, read_flags
from counterfoil.parts.generators.diffusion import Prediction, Process
from tests.generators.diffusion.make_reference import CASES
from tests.generators.named_weights import named_weights

MEAN, SPREAD = 0.2, 0.6


def linear_process(prediction: Prediction = "epsilon", limit: float | None = None) -> Process:
    return Process((1 - torch.linspace(1e-4, 0.02, 1000, dtype=torch.float64)).cumprod(0).float(), prediction, limit)


class GaussianDenoiser:
    """Knows that every pixel is normal with one mean and spread, so that its guess is a formula."""

    size = 16

    def __init__(self, process: Process | None = None, *, classes: int | None = None) -> None:
        self.process, self.classes = process or linear_process(), classes
        self.seen: list[Tensor] = []  # the classes it was told

    def predict(self, noisy: Tensor, times: Tensor, classes: Tensor) -> Tensor:
        self.seen.append(classes)
        kept = self.process.alphas_cumprod[times].reshape(-1, 1, 1, 1)
        share = kept.sqrt() * SPREAD**2 / (kept * SPREAD**2 + 1 - kept)
        clean = MEAN + share * (noisy - kept.sqrt() * MEAN)
        noise = (noisy - kept.sqrt() * clean) / (1 - kept).sqrt()
        both = {"epsilon": noise, "sample": clean, "v_prediction": kept.sqrt() * noise - (1 - kept).sqrt() * clean}
        return both[self.process.prediction]

    def to(self, device: torch.device | str) -> Self:
        return self

    def provenance(self) -> dict[str, str]:
        return {"network": "exact"}


UNET: dict[str, Any] = {
    "sample_size": 16,
    "block_out_channels": (16, 32),
    "layers_per_block": 1,
    "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
    "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
    "attention_head_dim": 8,
    "norm_num_groups": 8,
}


def save_pipeline(folder: Path, *, flat: bool = False, scheduler: dict[str, Any] | None = None, **config: Any) -> Path:
    """A small UNet2DModel with fixed random weights and its scheduler, as a pipeline keeps them."""
    from diffusers import DDPMScheduler, UNet2DModel

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = UNet2DModel(**{**UNET, **config})
        network.conv_out.weight.data.mul_(3)
    network.save_pretrained(folder if flat else folder / "unet")
    DDPMScheduler(**(scheduler or {})).save_pretrained(folder if flat else folder / "scheduler")
    return folder


@pytest.fixture(scope="session")
def pipelines(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Unconditional and class-conditional. Tests must not change them."""
    root = tmp_path_factory.mktemp("pipelines")
    return {
        "plain": save_pipeline(root / "plain"),
        "classes": save_pipeline(root / "classes", num_class_embeds=5, out_channels=6),
    }


def save_adm(folder: Path, case: str, name: str = "model.pt", **changes: Any) -> Path:
    """A checkpoint with named weights: plain tensors by name, as the releases are."""
    chosen = read_flags({**CASES[case], **changes}, file=folder)
    with torch.device("meta"):
        network = AdmUNet(chosen, classes=1000 if chosen.class_cond else None)
    torch.save(named_weights(network.state_dict()), folder / name)
    return folder / name
