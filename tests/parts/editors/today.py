"""Editing pipelines of today with random weights, of the classes as diffusers ships them and small enough to run in a blink."""

from __future__ import annotations

from typing import Any

import torch
from diffusers import (
    AutoencoderKL,
    AutoencoderKLFlux2,
    AutoencoderKLQwenImage,
    FlowMatchEulerDiscreteScheduler,
    Flux2KleinPipeline,
    Flux2Transformer2DModel,
    FluxKontextPipeline,
    FluxPipeline,
    FluxTransformer2DModel,
    QwenImageEditPipeline,
    QwenImageTransformer2DModel,
    SD3Transformer2DModel,
    StableDiffusion3Pipeline,
)
from lab.training.wording import caption_tokenizer
from tokenizers.pre_tokenizers import ByteLevel
from transformers import (
    CLIPTextConfig,
    CLIPTextModel,
    CLIPTextModelWithProjection,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2Tokenizer,
    Qwen2VLImageProcessor,
    Qwen2VLProcessor,
    Qwen2VLVideoProcessor,
    Qwen3Config,
    Qwen3ForCausalLM,
    T5Config,
    T5EncoderModel,
    T5Tokenizer,
)

_MARKS = ["<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
_CHAT = "{% for each in messages %}<|im_start|>{{ each['role'] }}\n{{ each['content'] }}<|im_end|>\n{% endfor %}"
_TEXT = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2}
_BLOCKS = {"down_block_types": ("DownEncoderBlock2D",) * 2, "up_block_types": ("UpDecoderBlock2D",) * 2}
_VAE = {**_BLOCKS, "block_out_channels": (8, 8), "latent_channels": 4, "norm_num_groups": 4}


def _scheduler(**more: Any) -> FlowMatchEulerDiscreteScheduler:
    return FlowMatchEulerDiscreteScheduler(**more)


def _autoencoder() -> AutoencoderKL:
    return AutoencoderKL(**_VAE, scaling_factor=1.0, shift_factor=0.1)


def clip_text(kind: type = CLIPTextModel) -> dict[str, Any]:
    tokenizer = caption_tokenizer()
    marks = {name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    length = int(tokenizer.model_max_length)
    config = CLIPTextConfig(
        vocab_size=len(tokenizer), num_hidden_layers=2, max_position_embeddings=length, projection_dim=16, **_TEXT, **marks
    )
    return {"text_encoder": kind(config), "tokenizer": tokenizer}


def _t5(width: int = 16) -> tuple[T5EncoderModel, T5Tokenizer]:
    pieces = [
        ("<pad>", 0.0),
        ("</s>", 0.0),
        ("<unk>", 0.0),
        ("▁", -2.0),
        *((letter, -3.0) for letter in "abcdefghijklmnopqrstuvwxyz"),
    ]
    tokenizer = T5Tokenizer(vocab=pieces, extra_ids=0, model_max_length=96)
    config = T5Config(vocab_size=len(pieces), d_model=width, d_kv=8, d_ff=32, num_layers=1, num_heads=2, decoder_start_token_id=0)
    return T5EncoderModel(config).eval(), tokenizer  # as loaders leave it, without dropout


def _qwen() -> Qwen2Tokenizer:
    letters = {letter: number for number, letter in enumerate(sorted(ByteLevel.alphabet()))}
    return Qwen2Tokenizer(vocab=letters, merges=[], additional_special_tokens=_MARKS, chat_template=_CHAT, model_max_length=4096)


def flux(kind: type[Any]) -> Any:
    torch.manual_seed(0)
    encoder, tokenizer = _t5()
    transformer = FluxTransformer2DModel(
        in_channels=16,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=8,
        num_attention_heads=2,
        joint_attention_dim=16,
        pooled_projection_dim=16,
        axes_dims_rope=(2, 2, 4),
        guidance_embeds=True,
    )
    networks = {"vae": _autoencoder(), **clip_text(), "text_encoder_2": encoder, "tokenizer_2": tokenizer}
    return kind(scheduler=_scheduler(use_dynamic_shifting=True), transformer=transformer, **networks)


def kontext() -> Any:
    return flux(FluxKontextPipeline)


def flux_1() -> Any:
    return flux(FluxPipeline)


def klein() -> Any:
    torch.manual_seed(0)
    tokenizer = _qwen()
    encoder = Qwen3Config(
        vocab_size=len(tokenizer),
        num_hidden_layers=28,
        num_key_value_heads=2,
        head_dim=8,
        bos_token_id=0,
        eos_token_id=1,
        **_TEXT,
    )
    transformer = Flux2Transformer2DModel(
        in_channels=16,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=48,
        axes_dims_rope=(4, 4, 4, 4),
        timestep_guidance_channels=16,
        guidance_embeds=False,
    )
    return Flux2KleinPipeline(
        scheduler=_scheduler(use_dynamic_shifting=True),
        vae=AutoencoderKLFlux2(**_VAE, layers_per_block=1),
        text_encoder=Qwen3ForCausalLM(encoder),
        tokenizer=tokenizer,
        transformer=transformer,
        is_distilled=True,
    )


def qwen() -> Any:
    torch.manual_seed(0)
    tokenizer = _qwen()
    names = ("vision_start", "vision_end", "image", "video")
    marks = {f"{name}_token_id": tokenizer.convert_tokens_to_ids(mark) for name, mark in zip(names, _MARKS[2:], strict=True)}
    rope = {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 1e4}
    text = {"vocab_size": len(tokenizer), "num_hidden_layers": 1, "num_key_value_heads": 2, "rope_parameters": rope, **_TEXT}
    vision = {"depth": 1, "hidden_size": 16, "intermediate_size": 32, "num_heads": 2, "out_hidden_size": 16}
    config = Qwen2_5_VLConfig(
        text_config={**text, "bos_token_id": 0, "eos_token_id": 1},
        vision_config={**vision, "fullatt_block_indexes": [0]},
        **marks,
    )
    return QwenImageEditPipeline(
        scheduler=_scheduler(use_dynamic_shifting=True),
        vae=AutoencoderKLQwenImage(
            base_dim=4, z_dim=4, dim_mult=[1, 1, 1, 1], num_res_blocks=0, latents_mean=[0.0] * 4, latents_std=[1.0] * 4
        ),
        text_encoder=Qwen2_5_VLForConditionalGeneration(config),
        tokenizer=tokenizer,
        processor=Qwen2VLProcessor(
            image_processor=Qwen2VLImageProcessor(min_pixels=3136, max_pixels=3136),
            tokenizer=tokenizer,
            video_processor=Qwen2VLVideoProcessor(),
            chat_template=_CHAT,
        ),
        transformer=QwenImageTransformer2DModel(
            in_channels=16,
            out_channels=4,
            num_layers=1,
            attention_head_dim=16,
            num_attention_heads=2,
            joint_attention_dim=16,
            axes_dims_rope=(4, 6, 6),
        ),
    )


def sd3() -> Any:
    torch.manual_seed(0)
    first, second = clip_text(CLIPTextModelWithProjection), clip_text(CLIPTextModelWithProjection)
    encoder, tokenizer = _t5(32)
    transformer = SD3Transformer2DModel(
        sample_size=16,
        patch_size=1,
        in_channels=4,
        num_layers=1,
        attention_head_dim=8,
        num_attention_heads=4,
        joint_attention_dim=32,
        caption_projection_dim=32,
        pooled_projection_dim=32,
        out_channels=4,
    )
    return StableDiffusion3Pipeline(
        transformer=transformer,
        scheduler=_scheduler(shift=3.0),
        vae=_autoencoder(),
        **first,
        text_encoder_2=second["text_encoder"],
        tokenizer_2=second["tokenizer"],
        text_encoder_3=encoder,
        tokenizer_3=tokenizer,
    )
