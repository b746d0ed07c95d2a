"""Text from a causal language model, many prompts at a time, each answer from its own prompt and seed alone.

Prompts go through the model in tiles of a fixed number of rows, filled up on the left to a multiple of a fixed length, so
that neither the neighbours of a prompt nor their number change a bit of its answer on a CPU. Sampling adds to the logits
noise drawn from the row's own seed and takes the largest (the Gumbel-max trick), which has the distribution of sampling.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from counterfoil.core.errors import BadPart
from counterfoil.parts.pretrained import quiet

GRAIN = 32  # prompts are filled up to a multiple of this many tokens


@dataclass(frozen=True)
class Sampling:
    """How the next token is drawn. A temperature of 0 takes the likeliest."""

    temperature: float = 0.8
    top_p: float = 0.95
    most_tokens: int = 256
    tile: int = 8

    def __post_init__(self) -> None:
        if self.temperature < 0 or not 0 < self.top_p <= 1 or self.most_tokens < 1 or self.tile < 1:
            raise BadPart(
                "rewriter: temperature is not below 0, top_p in (0, 1], most_tokens and tile at least 1, "
                f"got {self.temperature}, {self.top_p}, {self.most_tokens} and {self.tile}"
            )


@dataclass(frozen=True)
class Written:
    """What a model went on to say; `cut_off` if it was stopped at the limit, `too_long` if the prompt did not fit."""

    text: str
    cut_off: bool = False
    too_long: bool = False


class Writer:
    """A causal language model with its tokenizer."""

    def __init__(self, model: Any, tokenizer: Any, sampling: Sampling) -> None:
        self.model = model.eval().requires_grad_(False)
        self.tokenizer = tokenizer
        self.sampling = sampling
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token = tokenizer.eos_token
        if tokenizer.pad_token_id is None:
            raise BadPart("llm: the tokenizer has neither a padding nor an end token; it is not one of a language model")
        self._room = int(getattr(model.config, "max_position_embeddings", 0) or 10**9)

    def write(self, prompts: Sequence[str], seeds: Sequence[int]) -> list[Written]:
        """One answer a prompt."""
        rows: list[Written] = [Written("", too_long=True)] * len(prompts)
        groups: dict[int, list[int]] = defaultdict(list)
        encoded = [self._encode(prompt) for prompt in prompts]
        for at, tokens in enumerate(encoded):
            if len(tokens) < self._room:
                groups[-(-len(tokens) // GRAIN) * GRAIN].append(at)
        for length, members in sorted(groups.items()):
            # Where the model's room is short, each prompt has room of its own.
            rows_at_once = self.sampling.tile if self._room - length >= self.sampling.most_tokens else 1
            for start in range(0, len(members), rows_at_once):
                some = members[start : start + rows_at_once]
                answers = self._tile([encoded[at] for at in some], [seeds[at] for at in some], length)
                for at, answer in zip(some, answers, strict=True):
                    rows[at] = answer
        return rows

    def to(self, device: torch.device | str) -> Writer:
        """The same model, moved to a device."""
        self.model.to(device)
        return self

    def _encode(self, prompt: str) -> list[int]:
        # A chat template has written the special tokens already.
        templated = bool(getattr(self.tokenizer, "chat_template", None))
        return list(self.tokenizer(prompt, add_special_tokens=not templated, verbose=False).input_ids)

    @torch.no_grad()
    def _tile(self, prompts: list[list[int]], seeds: list[int], length: int) -> list[Written]:
        filled = prompts + prompts[-1:] * (self.sampling.tile - len(prompts))
        device = self.model.device
        tokens = torch.full((len(filled), length), self.tokenizer.pad_token_id, device=device)
        mask = torch.zeros_like(tokens)
        for row, prompt in enumerate(filled):
            tokens[row, length - len(prompt) :] = torch.tensor(prompt, device=device)
            mask[row, length - len(prompt) :] = 1
        most = min(self.sampling.most_tokens, self._room - max(map(len, prompts)))
        with quiet():
            made = self.model.generate(
                input_ids=tokens,
                attention_mask=mask,
                max_new_tokens=most,
                do_sample=False,
                num_beams=1,
                temperature=None,
                top_p=None,
                top_k=None,
                logits_processor=[_Noise(self.sampling, seeds + seeds[-1:] * (self.sampling.tile - len(seeds)))],
                pad_token_id=self.tokenizer.pad_token_id,
            )[:, length:]
        return [self._read(row) for row in made[: len(prompts)]]

    def _read(self, row: Tensor) -> Written:
        ends = self.model.generation_config.eos_token_id
        ending = set(ends if isinstance(ends, list) else [ends]) | {self.tokenizer.eos_token_id}
        ended = any(token in ending for token in row.tolist())
        return Written(self.tokenizer.decode(row, skip_special_tokens=True).strip(), cut_off=not ended)


class _Noise:
    """Turns taking the largest logit into sampling, each row by its own seed."""

    def __init__(self, sampling: Sampling, seeds: Sequence[int]) -> None:
        self._sampling = sampling
        self._sources = [torch.Generator().manual_seed(seed_of(seed)) for seed in seeds]

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        if self._sampling.temperature == 0:
            return scores
        scaled = scores.float() / self._sampling.temperature
        if self._sampling.top_p < 1:
            ordered, order = scaled.sort(dim=-1, descending=True)
            share = ordered.softmax(dim=-1)
            ordered = ordered.masked_fill(share.cumsum(dim=-1) - share >= self._sampling.top_p, float("-inf"))
            scaled = torch.full_like(scaled, float("-inf")).scatter(-1, order, ordered)
        drawn = torch.stack([torch.rand(scores.shape[-1], generator=source) for source in self._sources])
        gumbel = -torch.log(-torch.log(drawn.clamp(1e-20, 1 - 1e-7)))
        return scaled + gumbel.to(scaled.device)


def seed_of(*parts: object) -> int:
    """A seed from anything that can be written down."""
    digest = hashlib.sha256("|".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "big") % 2**63
