"""Small networks in the files of Efficient-VDVAE's authors."""

from __future__ import annotations

from pathlib import Path

import torch

from counterfoil.parts.generators.vdvae import HierarchicalAutoencoder, read_architecture
from tests.generators.named_weights import named_weights
from tests.generators.vdvae.make_reference import CASES, MODEL


def save_ini(folder: Path, model: dict[str, str] = MODEL, **data: str) -> Path:
    """The INI file of a small network, as the authors write theirs."""
    values = {"target_res": "16", "channels": "3", "num_bits": model.get("num_bits", "8."), **data}
    lines = ["[run]", "name = small", "[data]", *(f"{name} = {text}" for name, text in values.items())]
    lines += ["[model]", "# The design", *(f"{name} = {text}" for name, text in model.items() if name != "num_bits")]
    (folder / "hparams.cfg").write_text("\n".join(lines))
    return folder / "hparams.cfg"


def save_checkpoint(folder: Path, case: str = "compact") -> Path:
    """A checkpoint as the authors' training writes it: plain and averaged weights among other things, all names prefixed."""
    folder.mkdir(exist_ok=True)
    network = HierarchicalAutoencoder(read_architecture(save_ini(folder, CASES[case])))
    state = {f"module.{name}": value for name, value in named_weights(network.state_dict()).items()}
    plain = {name: torch.zeros_like(value) for name, value in state.items()}
    content = {"global_step": 7, "model_state_dict": plain, "ema_model_state_dict": state, "optimizer_state_dict": {"state": {}}}
    torch.save(content, folder / "checkpoints-small")
    return folder
