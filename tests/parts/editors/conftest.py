"""A Stable Diffusion pipeline small enough to run in a blink, with random weights and the lab's tokenizer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import diffusers
import pytest
import torch
from diffusers import AutoencoderKL, DDIMScheduler, UNet2DConditionModel
from lab.training.wording import caption_tokenizer
from transformers import CLIPTextConfig, CLIPTextModel

from counterfoil.parts.editors.diffusion import Diffusion

CAPTION = "a photo of a red wool dress on a beach"
EDITED = "a photo of a blue wool dress on a beach"


def scheduler(prediction: str = "epsilon", **more: Any) -> DDIMScheduler:
    settings = {"set_alpha_to_one": False, "steps_offset": 1, "clip_sample": False, "prediction_type": prediction, **more}
    return DDIMScheduler(beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", **settings)


def networks(*, channels: int = 4) -> dict[str, Any]:
    torch.manual_seed(0)
    unet = UNet2DConditionModel(
        sample_size=8,
        in_channels=channels,
        out_channels=4,
        block_out_channels=(16, 32),
        layers_per_block=1,
        down_block_types=("CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=16,
        attention_head_dim=4,
        norm_num_groups=4,
    )
    vae = AutoencoderKL(
        block_out_channels=(8, 8),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        latent_channels=4,
        norm_num_groups=4,
        sample_size=16,
        scaling_factor=1.0,
    )
    tokenizer = caption_tokenizer()
    text = CLIPTextModel(
        CLIPTextConfig(
            vocab_size=len(tokenizer),
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            max_position_embeddings=int(tokenizer.model_max_length),
            eos_token_id=tokenizer.eos_token_id,
            bos_token_id=tokenizer.bos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )
    return {"unet": unet, "vae": vae, "text_encoder": text, "tokenizer": tokenizer}


@pytest.fixture
def make_diffusion() -> Callable[..., Diffusion]:
    def make(prediction: str = "epsilon") -> Diffusion:
        return Diffusion(**networks(), scheduler=dict(scheduler(prediction).config))

    return make


@pytest.fixture
def diffusion(make_diffusion: Callable[..., Diffusion]) -> Diffusion:
    return make_diffusion()


def save_stable_diffusion(folder: Path, kind: str = "", *, prediction: str = "epsilon", channels: int = 4) -> Path:
    """A pipeline of diffusers with random weights."""
    pipeline = getattr(diffusers, f"StableDiffusion{kind}Pipeline")
    pipeline(**networks(channels=channels), scheduler=scheduler(prediction), **NONE).save_pretrained(folder)
    return folder


NONE = {"safety_checker": None, "feature_extractor": None, "image_encoder": None, "requires_safety_checker": False}
