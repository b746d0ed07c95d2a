"""Small VQGANs in the layout of the authors' own training runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor

from counterfoil.parts.generators.vqgan.configuration import architecture
from counterfoil.parts.generators.vqgan.network import Vqgan
from tests.generators.named_weights import named_weights

SHAPE: dict[str, Any] = {
    "double_z": False,
    "z_channels": 32,
    "resolution": 16,
    "in_channels": 3,
    "out_ch": 3,
    "ch": 32,
    "ch_mult": [1, 2],
    "num_res_blocks": 1,
    "attn_resolutions": [8],
    "dropout": 0.0,
}
PARAMS: dict[str, dict[str, Any]] = {
    "VQModel": {"n_embed": 64, "embed_dim": 16, "ddconfig": SHAPE},
    "GumbelVQ": {"n_embed": 64, "embed_dim": 32, "ddconfig": SHAPE, "kl_weight": 1e-8},
}


def weights_of(kind: str, **changes: Any) -> dict[str, Tensor]:
    """The named weights of a small network."""
    params = {**PARAMS[kind], **{name: value for name, value in changes.items() if name not in SHAPE}}
    params["ddconfig"] = {**SHAPE, **{name: value for name, value in changes.items() if name in SHAPE}}
    with torch.device("meta"):
        network = Vqgan(architecture(f"taming.models.vqgan.{kind}", params, where="test"))
    return named_weights(network.state_dict())


def save_run(folder: Path, kind: str = "VQModel", **changes: Any) -> Path:
    """A folder with last.ckpt and model.yaml; `changes` to the configuration alone."""
    folder.mkdir(parents=True, exist_ok=True)
    params = {**PARAMS[kind], **{name: value for name, value in changes.items() if name not in SHAPE}}
    params["ddconfig"] = {**SHAPE, **{name: value for name, value in changes.items() if name in SHAPE}}
    config = {"model": {"base_learning_rate": 4.5e-6, "target": f"taming.models.vqgan.{kind}", "params": params}}
    (folder / "model.yaml").write_text(yaml.safe_dump(config))
    # What training keeps beside the autoencoder: the discriminator, and how far it got.
    state = {**weights_of(kind), "loss.discriminator.main.0.weight": torch.zeros(2), "colorize": torch.zeros(1)}
    torch.save({"epoch": 3, "global_step": 70, "optimizer_states": [], "state_dict": state}, folder / "last.ckpt")
    return folder


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One folder a kind. Tests must not change them."""
    root = tmp_path_factory.mktemp("vqgan")
    return {kind: save_run(root / kind, kind) for kind in PARAMS}
