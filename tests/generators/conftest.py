"""Images and tiny networks in diffusers layout, for the tests of the generators."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from counterfoil.testing import pictures


@pytest.fixture(scope="session")
def photos() -> Callable[..., Tensor]:
    """Colourful images with fine texture, so that every family of transforms has something to change."""

    def make(count: int = 8, size: int = 32, *, seed: int = 0) -> Tensor:
        grain = torch.rand(count, 3, size, size, generator=torch.Generator().manual_seed(seed + 1))
        return (0.15 + 0.55 * pictures(count, size, seed=seed) + 0.15 * grain).clamp(0, 1)

    return make


BLOCKS: dict[str, Any] = {
    "block_out_channels": (16, 16, 16),
    "down_block_types": ("DownEncoderBlock2D",) * 3,
    "up_block_types": ("UpDecoderBlock2D",) * 3,
    "norm_num_groups": 8,
    "latent_channels": 4,
    "sample_size": 32,
}
SMALL: dict[str, dict[str, Any]] = {
    "VQModel": {**BLOCKS, "num_vq_embeddings": 24},
    "AutoencoderKL": BLOCKS,
    "AutoencoderTiny": {
        "encoder_block_out_channels": (16, 16, 16),
        "decoder_block_out_channels": (16, 16, 16),
        "num_encoder_blocks": (1, 1, 1),
        "num_decoder_blocks": (1, 1, 1),
    },
}


def save_network(folder: Path, name: str, **config: Any) -> Path:
    """A small network of a diffusers class with fixed random weights, saved as safetensors."""
    import diffusers

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = getattr(diffusers, name)(**{**SMALL[name], **config})
        if name == "VQModel":  # as drawn, all codes lie close to zero and decode to one image
            network.quantize.embedding.weight.data.normal_()
    network.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def networks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One folder a class. Tests must not change them."""
    root = tmp_path_factory.mktemp("networks")
    return {name: save_network(root / name, name) for name in ("VQModel", "AutoencoderKL", "AutoencoderTiny")}
