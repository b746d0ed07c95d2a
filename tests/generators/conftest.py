"""Images, and folders of small networks that tests must not change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from counterfoil.testing import pictures
from tests.generators.small import VQGANS, save_network, save_pipeline, save_run


@pytest.fixture(scope="session")
def photos() -> Callable[..., Tensor]:
    """Colourful images with fine texture, so that every family of transforms has something to change."""

    def make(count: int = 8, size: int = 32, *, seed: int = 0) -> Tensor:
        grain = torch.rand(count, 3, size, size, generator=torch.Generator().manual_seed(seed + 1))
        return (0.15 + 0.55 * pictures(count, size, seed=seed) + 0.15 * grain).clamp(0, 1)

    return make


@pytest.fixture(scope="session")
def networks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One folder a class. Tests must not change them."""
    root = tmp_path_factory.mktemp("networks")
    return {name: save_network(root / name, name) for name in ("VQModel", "AutoencoderKL", "AutoencoderTiny")}


@pytest.fixture(scope="session")
def pipelines(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Unconditional and class-conditional. Tests must not change them."""
    root = tmp_path_factory.mktemp("pipelines")
    return {
        "plain": save_pipeline(root / "plain"),
        "classes": save_pipeline(root / "classes", num_class_embeds=5, out_channels=6),
    }


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One folder a kind. Tests must not change them."""
    root = tmp_path_factory.mktemp("vqgan")
    return {kind: save_run(root / kind, kind) for kind in VQGANS}
