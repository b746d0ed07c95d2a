"""Small VQGANs in the layout of the authors' own training runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor

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
    "resamp_with_conv": True,
}
PARAMS: dict[str, dict[str, Any]] = {
    "VQModel": {"n_embed": 64, "embed_dim": 16, "ddconfig": SHAPE},
    "GumbelVQ": {"n_embed": 64, "embed_dim": 32, "ddconfig": SHAPE, "kl_weight": 1e-8},
}


def params_of(kind: str, **changes: Any) -> dict[str, Any]:
    """The parameters of a small network, with changes to any of them."""
    params = {**PARAMS[kind], **{name: value for name, value in changes.items() if name not in SHAPE}}
    return {**params, "ddconfig": {**SHAPE, **{name: value for name, value in changes.items() if name in SHAPE}}}


def weights_of(kind: str, **changes: Any) -> dict[str, Tensor]:
    """The named weights of a small network, by the names and shapes of the authors' checkpoints."""
    return named_weights({name: torch.empty(shape) for name, shape in _shapes(kind, params_of(kind, **changes))})


def _shapes(kind: str, params: dict[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    shape, code = params["ddconfig"], params["embed_dim"]
    widths = [shape["ch"] * multiple for multiple in shape["ch_mult"]]
    attends = [shape["resolution"] >> level in shape["attn_resolutions"] for level in range(len(widths))]
    last = len(widths) - 1
    yield from _conv("encoder.conv_in", shape["ch"], 3)
    width = shape["ch"]
    for level, wider in enumerate(widths):
        for number in range(shape["num_res_blocks"]):
            yield from _block(f"encoder.down.{level}.block.{number}", width, wider)
            width = wider
            if attends[level]:
                yield from _attention(f"encoder.down.{level}.attn.{number}", width)
        if level < last:
            yield from _conv(f"encoder.down.{level}.downsample.conv", width, width)
    yield from _middle("encoder", width)
    yield from _norm("encoder.norm_out", width)
    yield from _conv("encoder.conv_out", shape["z_channels"], width)
    yield from _conv("decoder.conv_in", width, shape["z_channels"])
    yield from _middle("decoder", width)
    for level in range(last, -1, -1):
        for number in range(shape["num_res_blocks"] + 1):
            yield from _block(f"decoder.up.{level}.block.{number}", width, widths[level])
            width = widths[level]
            if attends[level]:
                yield from _attention(f"decoder.up.{level}.attn.{number}", width)
        if level > 0:
            yield from _conv(f"decoder.up.{level}.upsample.conv", width, width)
    yield from _norm("decoder.norm_out", width)
    yield from _conv("decoder.conv_out", 3, width)
    yield from _conv("quant_conv", code, shape["z_channels"], 1)
    yield from _conv("post_quant_conv", shape["z_channels"], code, 1)
    if kind == "GumbelVQ":
        yield from _conv("quantize.proj", params["n_embed"], code, 1)
    yield f"quantize.{'embed' if kind == 'GumbelVQ' else 'embedding'}.weight", (params["n_embed"], code)


def _conv(name: str, outputs: int, inputs: int, side: int = 3) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{name}.weight", (outputs, inputs, side, side)
    yield f"{name}.bias", (outputs,)


def _norm(name: str, width: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{name}.weight", (width,)
    yield f"{name}.bias", (width,)


def _block(name: str, inputs: int, outputs: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield from _norm(f"{name}.norm1", inputs)
    yield from _conv(f"{name}.conv1", outputs, inputs)
    yield from _norm(f"{name}.norm2", outputs)
    yield from _conv(f"{name}.conv2", outputs, outputs)
    if inputs != outputs:
        yield from _conv(f"{name}.nin_shortcut", outputs, inputs, 1)


def _attention(name: str, width: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield from _norm(f"{name}.norm", width)
    for layer in ("q", "k", "v", "proj_out"):
        yield from _conv(f"{name}.{layer}", width, width, 1)


def _middle(name: str, width: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield from _block(f"{name}.mid.block_1", width, width)
    yield from _attention(f"{name}.mid.attn_1", width)
    yield from _block(f"{name}.mid.block_2", width, width)


def save_run(folder: Path, kind: str = "VQModel", **changes: Any) -> Path:
    """A folder with last.ckpt and model.yaml; `changes` to the configuration alone."""
    folder.mkdir(parents=True, exist_ok=True)
    params = params_of(kind, **changes)
    config = {"model": {"base_learning_rate": 4.5e-6, "target": f"taming.models.vqgan.{kind}", "params": params}}
    (folder / "model.yaml").write_text(yaml.safe_dump(config))
    # What training keeps in addition to the autoencoder: the discriminator, and how far it got.
    state = {**weights_of(kind), "loss.discriminator.main.0.weight": torch.zeros(2), "colorize": torch.zeros(1)}
    torch.save({"epoch": 3, "global_step": 70, "optimizer_states": [], "state_dict": state}, folder / "last.ckpt")
    return folder


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One folder a kind. Tests must not change them."""
    root = tmp_path_factory.mktemp("vqgan")
    return {kind: save_run(root / kind, kind) for kind in PARAMS}
