"""How surprising captions are to a language model: fluent ones have a low perplexity."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from counterfoil.parts import weights
from counterfoil.parts.language.llm import load

TILE = 8
GRAIN = 16


class Perplexity:
    """A causal language model from transformers that scores texts: a folder, a hub repository, or lab:rewriter."""

    def __init__(self, name: str, *, revision: str | None = None) -> None:
        self.model, self.tokenizer, self.name = load(weights.bundled(name.removeprefix("llm:")), revision=revision)
        self.model.eval().requires_grad_(False)
        self._room = int(getattr(self.model.config, "max_position_embeddings", 0) or 1024)

    def of(self, texts: Sequence[str]) -> list[float]:
        """The perplexity of each text, by itself; NaN for one that has nothing to predict.

        exp of the mean negative log-likelihood of a text's tokens, each given those before it and the model's start token if
        it has one. Of texts longer than the model reads, the beginning counts.
        """
        found = [math.nan] * len(texts)
        groups: dict[int, list[int]] = defaultdict(list)
        encoded = [self._encode(text) for text in texts]
        for at, tokens in enumerate(encoded):
            if len(tokens) > 1:
                groups[-(-len(tokens) // GRAIN) * GRAIN].append(at)
        for length, members in sorted(groups.items()):
            for start in range(0, len(members), TILE):  # a fixed shape, so that neighbours never change a number
                some = members[start : start + TILE]
                for at, value in zip(some, self._tile([encoded[at] for at in some], length), strict=False):
                    found[at] = value
        return found

    def to(self, device: torch.device | str) -> Perplexity:
        """The same model, moved to a device."""
        self.model.to(device)
        return self

    def provenance(self) -> dict[str, str]:
        """Source and weights."""
        return {"source": self.name, "weights": weights.fingerprint(self.model)}

    def _encode(self, text: str) -> list[int]:
        tokens: list[int] = list(self.tokenizer(text, add_special_tokens=False, verbose=False).input_ids)
        start: Any = self.tokenizer.bos_token_id
        return ([int(start), *tokens] if start is not None else tokens)[: self._room]

    @torch.no_grad()
    def _tile(self, rows: list[list[int]], length: int) -> list[float]:
        device = self.model.device
        tokens = torch.zeros((TILE, length), dtype=torch.long, device=device)
        mask = torch.zeros_like(tokens)
        mask[:, 0] = 1  # rows that fill up the tile need something to look at
        for at, row in enumerate(rows):
            tokens[at, : len(row)] = torch.tensor(row, device=device)
            mask[at, : len(row)] = 1
        logits: Tensor = self.model(input_ids=tokens, attention_mask=mask).logits.float()  # (TILE, length, V)
        losses = functional.cross_entropy(logits[:, :-1].transpose(1, 2), tokens[:, 1:], reduction="none")
        counted = mask[:, 1:].float()
        means = (losses * counted).sum(dim=1) / counted.sum(dim=1).clamp(min=1)
        return [math.exp(value) for value in means.double().tolist()]
