"""The rewriter: a small transformers Llama that is told a factor and a caption and says the caption with that factor changed.

It learns from pairs of captions of the grammar, "colour : a photo of a red wool dress on a beach => a photo of a blue wool …",
with every other value equally likely, so that sampling from it gives varied edits.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from lab.training.formats import save_half
from lab.training.loop import Run, Schedule, fit
from lab.training.wording import END, LENGTH, PAD, START, Wording, one_changed, prompt_tokenizer, words
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

from counterfoil_lab.captions import ARROW
from counterfoil_lab.world import FACTORS


@dataclass(frozen=True)
class Rewriter:
    """The rewriter's size."""

    width: int = 128
    depth: int = 4
    schedule: Schedule = Schedule(steps=3_300, batch=512, learning_rate=1.5e-3, weight_decay=0.02, warmup=300)


def train(run: Run, recipe: Rewriter) -> None:
    """Train the rewriter; it needs no images."""
    pairs = Pairs(run.device)
    model = LlamaForCausalLM.from_pretrained(run.out).float() if run.resumes else _fresh(recipe)
    model = model.to(run.device).train()
    batch = recipe.schedule.batch

    def surprise(tokens: Tensor, wanted: Tensor) -> Tensor:
        with run.autocast():
            scores = model(input_ids=tokens[:, :-1], use_cache=False).logits
        return F.cross_entropy(scores.float().transpose(1, 2), wanted[:, 1:], ignore_index=-100)

    surprised = run.compile(surprise)

    def loss(progress: float) -> dict[str, Tensor]:
        return {"loss": surprised(*pairs.draw(batch))}

    def save(averaged: nn.Module) -> None:
        save_half(averaged, run.out)
        prompt_tokenizer().save_pretrained(run.out)

    fit(model, loss, run=run, recipe=recipe, save=save)


class Pairs:
    """Random edits as token rows."""

    def __init__(self, device: str) -> None:
        tokens = words()
        self._device = device
        self._wording = Wording(device)
        self._pad, self._start, self._end = (tokens.index(token) for token in (PAD, START, END))
        self._colon, self._arrow = tokens.index(":"), tokens.index(ARROW)
        self._names = torch.tensor([tokens.index(name) for name in FACTORS], device=device)
        self._sizes = torch.tensor([len(values) for values in FACTORS.values()], device=device)

    def draw(self, count: int) -> tuple[Tensor, Tensor]:
        """Prompt and answer in one row, and the same row with everything but the answer hidden.  # (N, 64) each"""
        factors = (torch.rand(count, len(self._sizes), device=self._device) * self._sizes).long()
        edited, column = one_changed(factors)
        before, after = self._body(factors), self._body(edited)
        sign = torch.ones(count, 1, dtype=torch.long, device=self._device)
        prompt = [sign * self._start, self._names[column], sign * self._colon, before, sign * self._arrow]
        loose = torch.cat([*prompt, after, sign * self._end], dim=1)
        answer = torch.cat([torch.zeros_like(torch.cat(prompt, 1)), torch.ones_like(after), sign], dim=1).bool()
        order = (loose < 0).to(torch.uint8).argsort(dim=1, stable=True)[:, : 2 * LENGTH]
        rows, answer = loose.gather(1, order), answer.gather(1, order)
        wanted = torch.where(answer & (rows >= 0), rows, -100)
        return torch.where(rows < 0, self._pad, rows), wanted

    def _body(self, factors: Tensor) -> Tensor:
        """Captions without their start and end, gaps as -1."""
        tokens = self._wording.captions(factors)
        hidden = (tokens == self._pad) | (tokens == self._start) | (tokens == self._end)
        return torch.where(hidden, -1, tokens)


def _fresh(recipe: Rewriter) -> LlamaForCausalLM:
    tokens = words()
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokens),
            hidden_size=recipe.width,
            intermediate_size=3 * recipe.width,
            num_hidden_layers=recipe.depth,
            num_attention_heads=max(1, recipe.width // 32),
            max_position_embeddings=2 * LENGTH,
            bos_token_id=tokens.index(START),
            eos_token_id=tokens.index(END),
            pad_token_id=tokens.index(PAD),
            tie_word_embeddings=True,
        )
    )
