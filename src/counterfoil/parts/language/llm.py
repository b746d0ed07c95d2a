"""A language model of transformers as a rewriter, with or without a LoRA adapter."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from counterfoil.core.errors import BadPart
from counterfoil.parts.contracts import Proposals, Rejection, RewriteRequest
from counterfoil.parts.language import adapters
from counterfoil.parts.language.factors import check_factor
from counterfoil.parts.language.generation import Sampling, Writer, Written, seed_of
from counterfoil.parts.language.lexicon_rewriter import VARIATIONS
from counterfoil.parts.language.numbering import clean, parse
from counterfoil.parts.language.prompting import Style
from counterfoil.parts.language.prompting import style as find_style
from counterfoil.parts.language.soundness import unsound
from counterfoil.parts.pretrained import Pretrained, account_of, dtype_named

EXAMPLE = "meta-llama/Llama-3.2-1B-Instruct"


def llm_rewriter(
    name: str,
    *,
    adapter: str | None = None,
    style: str | None = None,
    variations: int = VARIATIONS,
    temperature: float = 0.8,
    top_p: float = 0.95,
    most_tokens: int = 256,
    tile: int = 8,
    dtype: str = "float32",
    revision: str | None = None,
) -> LlmRewriter:
    """A causal language model from transformers that follows instructions: llm:FOLDER or llm:meta-llama/Llama-3.2-1B-Instruct.

    `adapter` is the folder of a LoRA adapter, such as `counterfoil train-rewriter` writes. `style` says how the model
    is asked: `instruct` for numbered lists, unless the adapter was trained otherwise. `variations` captions are asked for.
    `tile` is the number of prompts that go through the model at a time.
    """
    if variations < 1:
        raise BadPart(f"llm:{name}: variations is the number of edits for a factor, at least 1, got {variations}")
    sampling = Sampling(temperature, top_p, most_tokens, tile)
    model, tokenizer, place = load(name, dtype=dtype_named(dtype, what=f"llm:{name}"), revision=revision)
    asked = style
    if adapter is not None:
        model, trained = adapters.attach(model, Path(adapter).expanduser())
        asked = adapters.agreed(style, trained, adapter)
    return LlmRewriter(Writer(model, tokenizer, sampling), find_style(asked or "instruct"), variations=variations, name=place)


def load(name: str, *, dtype: torch.dtype = torch.float32, revision: str | None = None) -> tuple[Any, Any, str]:
    """The model and tokenizer in a folder or hub repository, and where they are."""
    import transformers

    source = Pretrained("llm", name, revision=revision, example=EXAMPLE)
    model = source.model(transformers.AutoModelForCausalLM, dtype=dtype)
    return model, source.processor(transformers.AutoTokenizer, "tokenizer.json"), source.place


class LlmRewriter:
    """Asks a language model for captions with one factor changed."""

    def __init__(self, writer: Writer, style: Style, *, variations: int = VARIATIONS, name: str = "") -> None:
        self.writer = writer
        self.style = style
        self.variations = variations
        self.name = name

    def rewrite(self, requests: Sequence[RewriteRequest]) -> list[Proposals]:
        """The captions it proposes, one answer a request."""
        prompts, seeds, owners = [], [], []
        for at, request in enumerate(requests):
            check_factor(request.factor)
            for turn, factor in enumerate(self.style.turns(request, self.variations)):
                prompts.append(self.style.prompt(request.caption, factor, self.variations, self.writer.tokenizer))
                seeds.append(seed_of(request.seed, request.factor, request.caption, turn))
                owners.append(at)
        answers: list[list[Written]] = [[] for _ in requests]
        for at, written in zip(owners, self.writer.write(prompts, seeds), strict=True):
            answers[at].append(written)
        return [self._proposals(request, found) for request, found in zip(requests, answers, strict=True)]

    def to(self, device: torch.device | str) -> LlmRewriter:
        """The same rewriter, moved to a device."""
        self.writer.to(device)
        return self

    def provenance(self) -> dict[str, str]:
        """Library, source, weights with those of the adapter, and how it is asked."""
        asked = {"style": self.style.name, "sampling": repr(self.writer.sampling)}
        return {**account_of(self.writer.model, self.name), **asked}

    def _proposals(self, request: RewriteRequest, found: list[Written]) -> Proposals:
        if any(written.too_long for written in found):
            return Proposals(rejections=(Rejection(request.factor, "", "caption-too-long", "more than the model reads"),))
        if self.style.numbered:
            return parse(found[0].text, request.factor, variations=self.variations, cut_off=found[0].cut_off)
        captions, rejections = [], []
        for written in found:
            text = clean(written.text.split("\n")[0])
            problem = unsound(text) if text else ("nonsense", "an empty answer")
            if problem is None and written.cut_off:
                problem = ("nonsense", "cut off, the model ran out of tokens")
            if problem is None:
                captions.append(text)
            else:
                rejections.append(Rejection(request.factor, text[:600], *problem))
        return Proposals(tuple(captions), tuple(rejections))
