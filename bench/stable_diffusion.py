"""Networks for benchmarks of diffusion, at full size and with random weights, which cost the same time as trained ones."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from lab.training.wording import caption_tokenizer

from counterfoil.parts.editors.diffusion import Diffusion

SCHEDULER = {
    "beta_start": 0.00085,
    "beta_end": 0.012,
    "beta_schedule": "scaled_linear",
    "set_alpha_to_one": False,
    "steps_offset": 1,
    "clip_sample": False,
}
CAPTION, EDITED = "a photo of a red wool dress on a beach", "a photo of a red wool dress in a forest"


@dataclass(frozen=True)
class Sizes:
    """What decides the cost of a Stable Diffusion; the defaults are those of 1.4."""

    widths: tuple[int, ...] = (320, 640, 1280, 1280)
    heads: int = 8
    text: int = 768
    text_layers: int = 12
    tokens: int | None = 77
    vae: tuple[int, ...] = (128, 256, 512, 512)
    layers: int = 2
    side: int = 64
    groups: int = 32


FULL = Sizes()
TINY = Sizes(widths=(16, 32), heads=4, text=16, text_layers=1, tokens=None, vae=(8, 8), layers=1, side=8, groups=4)


def networks(sizes: Sizes, *, device: str) -> dict[str, Any]:
    """UNet, autoencoder, text encoder and tokenizer, made on the device."""
    from diffusers import AutoencoderKL, UNet2DConditionModel
    from transformers import CLIPTextConfig, CLIPTextModel

    levels = len(sizes.widths)
    tokenizer = caption_tokenizer()
    tokenizer.model_max_length = sizes.tokens or tokenizer.model_max_length
    torch.manual_seed(0)
    with torch.device(device):
        unet = UNet2DConditionModel(
            sample_size=sizes.side,
            block_out_channels=sizes.widths,
            layers_per_block=sizes.layers,
            down_block_types=("CrossAttnDownBlock2D",) * (levels - 1) + ("DownBlock2D",),
            up_block_types=("UpBlock2D",) + ("CrossAttnUpBlock2D",) * (levels - 1),
            cross_attention_dim=sizes.text,
            attention_head_dim=sizes.heads,
            norm_num_groups=sizes.groups,
        )
        vae = AutoencoderKL(
            block_out_channels=sizes.vae,
            down_block_types=("DownEncoderBlock2D",) * len(sizes.vae),
            up_block_types=("UpDecoderBlock2D",) * len(sizes.vae),
            layers_per_block=sizes.layers,
            latent_channels=4,
            norm_num_groups=sizes.groups,
            sample_size=sizes.side * 2 ** (len(sizes.vae) - 1),
            scaling_factor=0.18215,
        )
        text = CLIPTextModel(
            CLIPTextConfig(
                vocab_size=max(49408 if sizes is FULL else 0, len(tokenizer)),
                hidden_size=sizes.text,
                intermediate_size=4 * sizes.text,
                num_hidden_layers=sizes.text_layers,
                num_attention_heads=max(2, sizes.text // 64),
                max_position_embeddings=int(tokenizer.model_max_length),
                bos_token_id=tokenizer.bos_token_id,
                eos_token_id=tokenizer.eos_token_id,
                pad_token_id=tokenizer.pad_token_id,
            )
        )
    made = {"unet": unet, "vae": vae, "text_encoder": text}
    return {**{name: part.eval().requires_grad_(False) for name, part in made.items()}, "tokenizer": tokenizer}


def diffusion(parts: dict[str, Any]) -> Diffusion:
    """The networks as editors use them."""
    return Diffusion(**parts, scheduler=SCHEDULER)


def pipeline(parts: dict[str, Any]) -> Any:
    """The networks as diffusers uses them."""
    from diffusers import DDIMScheduler, StableDiffusionPipeline

    made = StableDiffusionPipeline(
        **parts, scheduler=DDIMScheduler(**SCHEDULER), safety_checker=None, feature_extractor=None, requires_safety_checker=False
    )
    made.set_progress_bar_config(disable=True)
    return made


class Watch:
    """Times work on the device and notes the memory it took."""

    def __init__(self, device: str) -> None:
        self.cuda = torch.device(device).type == "cuda"

    def __call__(self, work: Callable[[], object]) -> tuple[float, float | None]:
        """Seconds, and peak memory in GiB where the device says it."""
        if self.cuda:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        began = time.perf_counter()
        work()
        if self.cuda:
            torch.cuda.synchronize()
        return time.perf_counter() - began, torch.cuda.max_memory_allocated() / 2**30 if self.cuda else None
