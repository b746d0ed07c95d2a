"""The oracle and similarity model: a transformers CLIPModel (Radford et al., 2021).

Which captions hold true of which images of a batch is known here, so no pair is called wrong by accident: a short caption
such as "an image of a boot" is a match for every boot. Each match is set against the mismatches of its row and of its column.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from lab.training.data import PoolSize, artefact_pool, mirror_rows, to_floats
from lab.training.formats import SIDE, save_half
from lab.training.loop import Run, Schedule, fit
from lab.training.wording import END, LENGTH, PAD, START, Habits, Wording, caption_tokenizer, matches, one_changed, words
from torch import Tensor, nn
from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel, CLIPTextConfig, CLIPVisionConfig

from counterfoil_lab.checker import DEVIATION, MEAN, normalise


@dataclass(frozen=True)
class Clip:
    """CLIP's size and how its captions are worded."""

    width: int = 192
    depth: int = 6
    text_width: int = 128
    text_depth: int = 3
    projection: int = 128
    patch: int = 8
    habits: Habits = Habits(full=0.35, single=0.5)
    near_misses: float = 0.25
    """Captions, for each image, that are its own but for one factor."""
    schedule: Schedule = Schedule(steps=9_400, batch=768, learning_rate=1e-3, weight_decay=0.05, warmup=500)
    pool: PoolSize = PoolSize(start=65_536, capacity=1_048_576, fresh=0.25)


def train(run: Run, recipe: Clip) -> None:
    """Train CLIP and write it with its tokenizer and image processor."""
    decoders = run.earlier("vqgan", "diffusion")
    pool = artefact_pool(run, size=recipe.pool, decoders=decoders)
    wording = Wording(run.device)
    model = CLIPModel.from_pretrained(run.out).float() if run.resumes else CLIPModel(configuration(recipe))
    model = model.to(run.device).train()
    batch = recipe.schedule.batch

    def distance(images: Tensor, tokens: Tensor, true: Tensor) -> Tensor:
        with run.autocast():
            pictures = model.visual_projection(model.vision_model(pixel_values=normalise(to_floats(images))).pooler_output)
            texts = model.text_projection(model.text_model(input_ids=tokens).pooler_output)
        pictures, texts = F.normalize(pictures.float(), dim=1), F.normalize(texts.float(), dim=1)
        scores = pictures @ texts.T * model.logit_scale.exp().clamp(max=100)
        return (rank_loss(scores, true) + rank_loss(scores.T, true.T)) / 2

    compared = run.compile(distance)

    def loss(progress: float) -> dict[str, Tensor]:
        columns = pool.batch(batch)
        factors = columns["factors"].long()
        stated = wording.draw_stated(batch, recipe.habits)
        missed, _ = one_changed(factors[: round(recipe.near_misses * batch)])
        described = torch.cat([factors, missed])
        said = torch.cat([stated, torch.ones_like(missed, dtype=torch.bool)])
        tokens = wording.tokens(described, said, unknown=recipe.habits.unknown)
        loss = compared(mirror_rows(columns["images"]), tokens, matches(factors, described, said))
        return {"loss": loss, "scale": model.logit_scale.exp()}

    def save(averaged: nn.Module) -> None:
        save_half(averaged, run.out)
        caption_tokenizer().save_pretrained(run.out)
        image_processor().save_pretrained(run.out)

    fit(model, loss, run=run, recipe=recipe, save=save, built_on=decoders)


def rank_loss(scores: Tensor, true: Tensor) -> Tensor:
    """Penalise matches that are not above all mismatches of their row, averaged by row.  # (N, M), (N, M) bool → ()"""
    against = scores.masked_fill(true, -torch.inf).logsumexp(dim=1, keepdim=True).clamp(min=-100)  # (N, 1)
    losses = F.softplus(against - scores) * true
    matched = true.sum(dim=1)
    return ((losses.sum(dim=1) / matched.clamp(min=1)) * (matched > 0)).sum() / (matched > 0).sum()


def configuration(recipe: Clip) -> CLIPConfig:
    """The transformers configuration of a CLIP of this size."""
    return CLIPConfig(
        text_config=text_configuration(recipe.text_width, recipe.text_depth, recipe.projection).to_dict(),
        vision_config=CLIPVisionConfig(
            hidden_size=recipe.width,
            intermediate_size=3 * recipe.width,
            num_hidden_layers=recipe.depth,
            num_attention_heads=max(1, recipe.width // 32),
            image_size=SIDE,
            patch_size=recipe.patch,
            projection_dim=recipe.projection,
        ).to_dict(),
        projection_dim=recipe.projection,
    )


def text_configuration(width: int, depth: int, projection: int) -> CLIPTextConfig:
    """The configuration of a CLIP text encoder over the lab's tokenizer."""
    tokens = words()
    return CLIPTextConfig(
        vocab_size=len(tokens),
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=depth,
        num_attention_heads=max(1, width // 32),
        max_position_embeddings=LENGTH,
        projection_dim=projection,
        bos_token_id=tokens.index(START),
        eos_token_id=tokens.index(END),
        pad_token_id=tokens.index(PAD),
    )


def image_processor() -> CLIPImageProcessor:
    """Resizing and normalisation as the lab's transformers models want them."""
    return CLIPImageProcessor(
        size={"shortest_edge": SIDE},
        crop_size={"height": SIDE, "width": SIDE},
        image_mean=[MEAN] * 3,
        image_std=[DEVIATION] * 3,
    )
