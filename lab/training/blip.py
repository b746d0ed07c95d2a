"""The captioner: a transformers BlipForConditionalGeneration (Li et al., 2022) that says every attribute of a scene."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from lab.training.data import PoolSize, mirror_rows, scene_pool, to_floats
from lab.training.formats import SIDE, save_half
from lab.training.loop import Run, Schedule, fit
from lab.training.wording import END, LENGTH, PAD, START, Wording, caption_tokenizer, words
from torch import Tensor, nn
from transformers import BlipConfig, BlipForConditionalGeneration, BlipImageProcessor, BlipProcessor

from counterfoil_lab.checker import DEVIATION, MEAN, normalise


@dataclass(frozen=True)
class Blip:
    """BLIP's size."""

    width: int = 160
    depth: int = 6
    text_width: int = 128
    text_depth: int = 2
    patch: int = 8
    schedule: Schedule = Schedule(steps=9_000, batch=512, learning_rate=8e-4, weight_decay=0.05, warmup=500)
    pool: PoolSize = PoolSize(start=65_536, capacity=1_048_576, fresh=0.4)


def train(run: Run, recipe: Blip) -> None:
    """Train BLIP and write it with its processor."""
    pool = scene_pool(run, size=recipe.pool)
    wording = Wording(run.device)
    model = BlipForConditionalGeneration.from_pretrained(run.out).float() if run.resumes else _fresh(recipe)
    model = model.to(run.device).train()
    batch, pad = recipe.schedule.batch, words().index(PAD)

    def surprise(images: Tensor, tokens: Tensor) -> Tensor:
        with run.autocast():
            seen = model.vision_model(pixel_values=normalise(to_floats(images))).last_hidden_state
            scores = model.text_decoder(
                input_ids=tokens[:, :-1],
                attention_mask=(tokens[:, :-1] != pad).long(),
                encoder_hidden_states=seen,
                encoder_attention_mask=torch.ones(seen.shape[:2], dtype=torch.long, device=seen.device),
            ).logits
        return F.cross_entropy(scores.float().transpose(1, 2), tokens[:, 1:], ignore_index=pad)

    surprised = run.compile(surprise)

    def loss(progress: float) -> dict[str, Tensor]:
        columns = pool.batch(batch)
        return {"loss": surprised(mirror_rows(columns["images"]), wording.captions(columns["factors"].long()))}

    def save(averaged: nn.Module) -> None:
        save_half(averaged, run.out)
        BlipProcessor(_image_processor(), caption_tokenizer()).save_pretrained(run.out)

    fit(model, loss, run=run, recipe=recipe, save=save)


def _fresh(recipe: Blip) -> BlipForConditionalGeneration:
    tokens = words()
    start, end, pad = (tokens.index(token) for token in (START, END, PAD))
    text = {
        "vocab_size": len(tokens),
        "hidden_size": recipe.text_width,
        "encoder_hidden_size": recipe.width,
        "intermediate_size": 4 * recipe.text_width,
        "projection_dim": recipe.text_width,
        "num_hidden_layers": recipe.text_depth,
        "num_attention_heads": max(1, recipe.text_width // 32),
        "max_position_embeddings": LENGTH,
        "bos_token_id": start,
        "eos_token_id": end,
        "sep_token_id": end,
        "pad_token_id": pad,
    }
    vision = {
        "hidden_size": recipe.width,
        "intermediate_size": 3 * recipe.width,
        "projection_dim": recipe.text_width,
        "num_hidden_layers": recipe.depth,
        "num_attention_heads": max(1, recipe.width // 16),
        "image_size": SIDE,
        "patch_size": recipe.patch,
        # The library's default, 1e-10, is meant for weights that are loaded right after.
        "initializer_range": 0.02,
    }
    return BlipForConditionalGeneration(BlipConfig(text_config=text, vision_config=vision))


def _image_processor() -> BlipImageProcessor:
    return BlipImageProcessor(size={"height": SIDE, "width": SIDE}, image_mean=[MEAN] * 3, image_std=[DEVIATION] * 3)
