"""Images with shades, edges and noise, for comparing preprocessing where no photos are at hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw
from torch import Tensor, nn

from tests.parts.oracles.conftest import clip_folder, openclip_folder, siglip_folder

__all__ = ["clip_folder", "openclip_folder", "siglip_folder"]  # fixtures that are also needed here


def scene(seed: int, width: int, height: int) -> Image.Image:
    random = np.random.default_rng(seed)
    coarse = Image.fromarray(random.integers(0, 256, (5, 5, 3), dtype=np.uint8)).resize((width, height), Image.Resampling.BICUBIC)
    draw = ImageDraw.Draw(coarse)
    for _ in range(6):
        left, top = random.integers(0, width - 10), random.integers(0, height - 10)
        box = (left, top, left + random.integers(5, width // 2), top + random.integers(5, height // 2))
        draw.rectangle(box, fill=tuple(int(value) for value in random.integers(0, 256, 3)))
    noisy = np.asarray(coarse) + random.normal(0, 5, (height, width, 3))
    return Image.fromarray(noisy.clip(0, 255).astype(np.uint8))


def to_batch(picture: Image.Image) -> Tensor:
    """An image as the parts exchange it.  # → (1, 3, H, W)"""
    return torch.from_numpy(np.array(picture)).permute(2, 0, 1)[None].float() / 255


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


@pytest.fixture(scope="session")
def square_scenes() -> list[Image.Image]:
    return [scene(seed, 256, 256) for seed in range(12)]


@pytest.fixture(scope="session")
def oblong_scenes() -> list[Image.Image]:
    return [scene(seed, 240 + 31 * seed, 301 - 13 * seed) for seed in range(4)]
