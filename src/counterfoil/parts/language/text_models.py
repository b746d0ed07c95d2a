"""Text from a local language model or a chat endpoint; perplexity.

Local prompts go through the model in batches of a fixed number of rows, padded on the left to a multiple of a fixed length, so
that neither the neighbours of a prompt nor their number change a bit of its answer on a CPU. Sampling adds to the logits noise
drawn from the row's own seed and takes the largest (the Gumbel-max trick), which has the distribution of sampling.
"""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from counterfoil.core.errors import BadPart, RunFailed
from counterfoil.parts import weights
from counterfoil.parts.calls import in_batches
from counterfoil.parts.contracts import Movable
from counterfoil.parts.http import Endpoint, EndpointOptions
from counterfoil.parts.language.caption_checks import Fault
from counterfoil.parts.pretrained import Pretrained, account_of
from counterfoil.parts.weights import quiet

EXAMPLE = "meta-llama/Llama-3.2-1B-Instruct"
MAX_ANSWER = 20_000  # characters of an endpoint's answer; the rest is cut off
_PAD_TO = 32  # tokens: prompts are padded to a multiple of this


@dataclass(frozen=True)
class Completion:
    """The text that a model wrote for a prompt; `fault` where it wrote nothing."""

    text: str
    cut_off: bool = False  # at the limit of tokens
    fault: Fault | None = None


@dataclass(frozen=True)
class Sampling:
    """Options of drawing the next token. A temperature of 0 takes the most probable."""

    temperature: float = 0.8
    top_p: float = 0.95
    max_tokens: int = 256
    batch: int = 8

    def __post_init__(self) -> None:
        if self.temperature < 0 or not 0 < self.top_p <= 1 or self.max_tokens < 1 or self.batch < 1:
            raise BadPart(
                "rewriter: temperature is at least 0, top_p in (0, 1], max_tokens and batch at least 1, "
                f"got {self.temperature}, {self.top_p}, {self.max_tokens} and {self.batch}"
            )


def load_causal(name: str, *, dtype: torch.dtype = torch.float32, revision: str | None = None) -> tuple[Any, Any, str]:
    """The causal language model and tokenizer of a folder or hub repository, and its location."""
    import transformers

    source = Pretrained("llm", weights.bundle_folder(name.removeprefix("llm:")), revision=revision, example=EXAMPLE)
    model = source.model(transformers.AutoModelForCausalLM, dtype=dtype)
    tokenizer = source.processor(transformers.AutoTokenizer, "tokenizer.json")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    if tokenizer.pad_token_id is None:
        raise BadPart(f"llm:{name}: the tokenizer has neither a padding nor an end token; it is not one of a language model")
    return model, tokenizer, source.place


def encode(tokenizer: Any, prompt: str) -> list[int]:
    """The tokens of a prompt, special ones added unless a chat template has written them already."""
    templated = bool(getattr(tokenizer, "chat_template", None))
    return list(tokenizer(prompt, add_special_tokens=not templated, verbose=False).input_ids)


class FrozenModel(Movable):
    """A model of transformers, frozen, with its account."""

    def __init__(self, model: Any, name: str) -> None:
        self.model = model.eval().requires_grad_(False)
        self.name = name

    def provenance(self) -> dict[str, str]:
        return account_of(self.model, self.name)


class LocalTextModel(FrozenModel):
    """A causal language model of transformers with its tokenizer."""

    def __init__(self, model: Any, tokenizer: Any, sampling: Sampling, *, name: str = "") -> None:
        super().__init__(model, name)
        self.tokenizer = tokenizer
        self.sampling = sampling
        self._room = int(getattr(model.config, "max_position_embeddings", 0) or 10**9)

    def write(self, prompts: Sequence[str], seeds: Sequence[int]) -> list[Completion]:
        """One completion per prompt; a prompt longer than the model reads is a fault."""
        rows = [Completion("", fault=("caption-too-long", "more than the model reads"))] * len(prompts)
        by_length: dict[int, list[int]] = defaultdict(list)
        encoded = [encode(self.tokenizer, prompt) for prompt in prompts]
        for at, tokens in enumerate(encoded):
            if len(tokens) < self._room:
                by_length[-(-len(tokens) // _PAD_TO) * _PAD_TO].append(at)
        for length, members in sorted(by_length.items()):
            # Where the model's positions are short, a long neighbour would take room from a prompt.
            together = self._room - length >= self.sampling.max_tokens
            for group in [members] if together else [[at] for at in members]:
                asked = [(encoded[at], seeds[at], length) for at in group]
                for at, answer in zip(group, in_batches(asked, self.sampling.batch, self._complete), strict=True):
                    rows[at] = answer
        return rows

    def provenance(self) -> dict[str, str]:
        return {**super().provenance(), "sampling": repr(self.sampling)}

    @torch.no_grad()
    def _complete(self, rows: list[tuple[list[int], int, int]]) -> list[Completion]:
        prompts, seeds, lengths = zip(*rows, strict=True)
        length, device = lengths[0], self.model.device
        tokens = torch.full((len(rows), length), self.tokenizer.pad_token_id, device=device)
        mask = torch.zeros_like(tokens)
        for row, prompt in enumerate(prompts):
            tokens[row, length - len(prompt) :] = torch.tensor(prompt, device=device)
            mask[row, length - len(prompt) :] = 1
        with quiet():
            made = self.model.generate(
                input_ids=tokens,
                attention_mask=mask,
                max_new_tokens=min(self.sampling.max_tokens, self._room - max(map(len, prompts))),
                do_sample=False,
                num_beams=1,
                temperature=None,
                top_p=None,
                top_k=None,
                logits_processor=[GumbelSampling(self.sampling, seeds)],
                pad_token_id=self.tokenizer.pad_token_id,
            )
        return [self._read(row) for row in made[:, length:]]

    def _read(self, row: Tensor) -> Completion:
        ends = self.model.generation_config.eos_token_id
        ending = set(ends if isinstance(ends, list) else [ends]) | {self.tokenizer.eos_token_id}
        ended = any(token in ending for token in row.tolist())
        return Completion(self.tokenizer.decode(row, skip_special_tokens=True).strip(), cut_off=not ended)


class GumbelSampling:
    """Makes the largest logit a sample, each row drawn from its own seed."""

    def __init__(self, sampling: Sampling, seeds: Sequence[int]) -> None:
        from transformers import TemperatureLogitsWarper, TopPLogitsWarper

        self._warpers = [TemperatureLogitsWarper(float(sampling.temperature))] if sampling.temperature else []
        self._warpers += [TopPLogitsWarper(sampling.top_p)] if sampling.temperature and sampling.top_p < 1 else []
        self._sources = [torch.Generator().manual_seed(seed_of(seed)) for seed in seeds]

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        if not self._warpers:
            return scores
        scores = scores.float()
        for warp in self._warpers:
            scores = warp(input_ids, scores)
        drawn = torch.stack([torch.rand(scores.shape[-1], generator=source) for source in self._sources])
        gumbel = -torch.log(-torch.log(drawn.clamp(1e-20, 1 - 1e-7)))
        return scores + gumbel.to(scores.device)


def seed_of(*parts: object) -> int:
    """A stable seed from anything that can be written down."""
    digest = hashlib.sha256("|".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "big") % 2**63


class ChatEndpoint:
    """A model behind an endpoint that speaks OpenAI's chat protocol, one request per prompt."""

    tokenizer = None  # whose chat template prompts would be written with; an endpoint has its own
    PATIENT_FOR = 3  # prompts in a row that fail before each further one is tried once only

    def __init__(
        self,
        url: str,
        options: EndpointOptions,
        *,
        model: str = "",
        max_tokens: int,
        temperature: float = 0.0,
        parallel: int = 1,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        if max_tokens < 1 or parallel < 1:
            raise BadPart(f"{url}: max_tokens and parallel are at least 1, got {max_tokens} and {parallel}")
        self.endpoint = Endpoint(url, options)
        self._body = {
            **({"model": model} if model else {}),
            "max_tokens": max_tokens,
            "temperature": temperature,
            **(extra or {}),
        }
        self._parallel = 1 if options.rate is not None else parallel
        self._failed_in_a_row = 0

    def write(self, prompts: Sequence[str], seeds: Sequence[int]) -> list[Completion]:
        """One completion per prompt; an endpoint that does not answer is a fault, not an error."""
        if self._parallel == 1 or len(prompts) < 2:
            return [self._write(*row) for row in zip(prompts, seeds, strict=True)]
        with ThreadPoolExecutor(self._parallel) as pool:
            return list(pool.map(self._write, prompts, seeds))

    def provenance(self) -> dict[str, str]:
        """The address and what is sent along; never the token."""
        return {"source": self.endpoint.url, **{key: str(value) for key, value in self._body.items()}}

    def __repr__(self) -> str:
        return f"ChatEndpoint({self.endpoint.url!r})"

    def _write(self, prompt: str, seed: int) -> Completion:
        try:
            found = self.complete(prompt, seed=seed, retries=None if self._failed_in_a_row < self.PATIENT_FOR else 0)
        except RunFailed as error:
            self._failed_in_a_row += 1
            return Completion("", fault=("endpoint", str(error)))
        self._failed_in_a_row = 0
        return found

    def complete(self, content: str | list[dict[str, Any]], *, seed: int | None = None, retries: int | None = None) -> Completion:
        """The answer to one message; RunFailed if the endpoint gives none."""
        seeded = {} if seed is None else {"seed": seed % 2**31}
        body = {"messages": [{"role": "user", "content": content}], **self._body, **seeded}
        answer = self.endpoint.post(body, retries=retries)
        choices = answer.get("choices")
        first = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
        message = first.get("message")
        text = message.get("content") if isinstance(message, dict) else 0
        if not isinstance(message, dict) or not isinstance(text, str | None):
            raise self.endpoint.failure(f"answered with the keys {sorted(answer)[:9]}, where choices with a message are needed")
        if message.get("refusal") or first.get("finish_reason") == "content_filter":
            return Completion("", fault=("refusal", "the endpoint declined to answer"))
        text = text or ""
        return Completion(text[:MAX_ANSWER], cut_off=first.get("finish_reason") == "length" or len(text) > MAX_ANSWER)


TextModel = LocalTextModel | ChatEndpoint
"""Completes prompts; row i depends on prompt and seed i alone."""


class Perplexity(FrozenModel):
    """A causal language model of transformers that scores texts by how well it predicts them."""

    def __init__(self, name: str, *, revision: str | None = None) -> None:
        model, self.tokenizer, place = load_causal(name, revision=revision)
        super().__init__(model, place)
        self._room = int(getattr(self.model.config, "max_position_embeddings", 0) or 1024)

    @torch.no_grad()
    def of(self, texts: Sequence[str]) -> list[float]:
        """The perplexity of each text, by itself; NaN for one that has nothing to predict.

        exp of the mean negative log-likelihood of a text's tokens, each given those before it and the model's start token if
        it has one. Of texts longer than the model reads, the beginning counts.
        """
        found = []
        for text in texts:
            tokens = list(self.tokenizer(text, add_special_tokens=False, verbose=False).input_ids)
            start = self.tokenizer.bos_token_id
            row = ([int(start), *tokens] if start is not None else tokens)[: self._room]
            ids = torch.tensor([row], device=self.model.device)
            found.append(math.exp(float(self.model(input_ids=ids, labels=ids).loss)) if len(row) > 1 else math.nan)
        return found
