"""Small generators: networks with random or named weights in every layout that is read, and a denoiser that is exactly right."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import torch
import yaml
from torch import Tensor

from counterfoil.parts.contracts import State
from counterfoil.parts.generators.adm import AdmUNet, read_flags
from counterfoil.parts.generators.diffusion import Prediction, Process
from tests.generators.named_weights import named_weights

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


ADM_SMALL: dict[str, Any] = {"image_size": 32, "num_channels": 32, "num_res_blocks": 1, "attention_resolutions": "16,8"}
ADMS: dict[str, dict[str, Any]] = {
    "improved": {**ADM_SMALL, "num_heads": 4, "learn_sigma": True, "diffusion_steps": 4000, "noise_schedule": "cosine"},
    "improved-shift": {**ADM_SMALL, "num_heads": 1, "use_scale_shift_norm": False, "num_heads_upsample": 2},
    "guided": {
        **ADM_SMALL,
        "channel_mult": "1,2,3",
        "num_head_channels": 16,
        "resblock_updown": True,
        "use_new_attention_order": True,
        "learn_sigma": True,
        "class_cond": True,
    },
    "guided-legacy": {**ADM_SMALL, "channel_mult": "1,2", "resblock_updown": True, "num_head_channels": 8},
}


def start(generator: Any, images: Tensor, seeds: Tensor | None = None, *, label: int = 0) -> State:
    """Begin at the images, each with its row number as its seed unless others are given."""
    return generator.start(images, torch.full((len(images),), label), torch.arange(len(images)) if seeds is None else seeds)


def gradient_of(generator: Any, state: State, weighting: Tensor) -> Tensor:
    """The gradient of a weighted sum of the image's values for what moves."""
    leaf = state[generator.moving].clone().requires_grad_()
    return torch.autograd.grad((generator.render({**state, generator.moving: leaf}) * weighting).sum(), leaf)[0]


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


def save_adm(folder: Path, case: str, name: str = "model.pt", **changes: Any) -> Path:
    """A checkpoint with named weights: plain tensors by name, as the releases are."""
    chosen = read_flags({**ADMS[case], **changes}, file=folder)
    with torch.device("meta"):
        network = AdmUNet(chosen, classes=1000 if chosen.class_cond else None)
    torch.save(named_weights(network.state_dict()), folder / name)
    return folder / name


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
VQGANS: dict[str, dict[str, Any]] = {
    "VQModel": {"n_embed": 64, "embed_dim": 16, "ddconfig": SHAPE},
    "GumbelVQ": {"n_embed": 64, "embed_dim": 32, "ddconfig": SHAPE, "kl_weight": 1e-8},
}


def params_of(kind: str, **changes: Any) -> dict[str, Any]:
    """The parameters of a small network, with changes to any of them."""
    params = {**VQGANS[kind], **{name: value for name, value in changes.items() if name not in SHAPE}}
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


def save_run(folder: Path, kind: str = "VQModel", target: str = "", **changes: Any) -> Path:
    """A folder with last.ckpt and model.yaml; `target` and `changes` are of the configuration alone."""
    folder.mkdir(parents=True, exist_ok=True)
    params = params_of(kind, **changes)
    config = {"model": {"base_learning_rate": 4.5e-6, "target": f"taming.models.vqgan.{target or kind}", "params": params}}
    (folder / "model.yaml").write_text(yaml.safe_dump(config))
    # What training keeps in addition to the autoencoder: the discriminator, and how far it got.
    state = {**weights_of(kind), "loss.discriminator.main.0.weight": torch.zeros(2), "colorize": torch.zeros(1)}
    torch.save({"epoch": 3, "global_step": 70, "optimizer_states": [], "state_dict": state}, folder / "last.ckpt")
    return folder
