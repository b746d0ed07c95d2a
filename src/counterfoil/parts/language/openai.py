"""A rewriter behind any endpoint that speaks OpenAI's chat protocol: OpenAI itself, vLLM, llama.cpp, Ollama and others."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from counterfoil.core.errors import BadPart, RunFailed
from counterfoil.parts.contracts import Proposals, Rejection, RewriteRequest
from counterfoil.parts.http import Endpoint, EndpointOptions
from counterfoil.parts.language.factors import check_factor
from counterfoil.parts.language.generation import seed_of
from counterfoil.parts.language.lexicon_rewriter import VARIATIONS
from counterfoil.parts.language.numbering import parse
from counterfoil.parts.language.prompting import instruction

BASE_URL = "https://api.openai.com/v1"
KEY = "OPENAI_API_KEY"
PATIENT_FOR = 3  # requests in a row that fail before the endpoint is asked once only


def openai_rewriter(
    model: str,
    *,
    base_url: str = BASE_URL,
    key_env: str = KEY,
    variations: int = VARIATIONS,
    temperature: float = 0.8,
    most_tokens: int = 512,
    timeout: float = 60.0,
    retries: int = 5,
    backoff: float = 0.5,
    rate: float | None = None,
    parallel: int = 4,
) -> OpenAiRewriter:
    """A language model behind an OpenAI-compatible endpoint: openai:gpt-4o-mini, or openai:MODEL with base_url: http://…/v1.

    The key is read from the environment variable `key_env` and written nowhere; an endpoint of one's own may need none. A
    request that fails is tried `retries` more times, `backoff` seconds later and then twice as long each time; then the request
    is counted as not answered. `rate` is the number of requests a second at most, `parallel` those under way at a time.
    """
    if not model:
        raise BadPart("openai: name a model, as in openai:gpt-4o-mini")
    if variations < 1 or parallel < 1 or most_tokens < 1:
        raise BadPart(f"openai:{model}: variations, parallel and most_tokens are at least 1")
    key = os.environ.get(key_env, "")
    if not key and base_url == BASE_URL:
        raise BadPart(f"openai:{model}: no key; set the environment variable {key_env}, or give base_url")
    options = EndpointOptions(timeout, retries, backoff, rate, key_env if key else None)
    return OpenAiRewriter(
        model,
        base_url=base_url.rstrip("/"),
        options=options,
        variations=variations,
        temperature=temperature,
        most_tokens=most_tokens,
        parallel=1 if rate is not None else parallel,
    )


class OpenAiRewriter:
    """Asks an endpoint for captions with one factor changed. An endpoint that does not answer is a reason, not an error."""

    def __init__(
        self,
        model: str,
        *,
        base_url: str,
        options: EndpointOptions,
        variations: int = VARIATIONS,
        temperature: float = 0.8,
        most_tokens: int = 512,
        parallel: int = 1,
    ) -> None:
        self.model = model
        self.base_url = base_url
        self.variations = variations
        self.temperature = temperature
        self.most_tokens = most_tokens
        self.parallel = parallel
        self._endpoint = Endpoint(f"{base_url}/chat/completions", options)
        self._failed_in_a_row = 0

    def rewrite(self, requests: Sequence[RewriteRequest]) -> list[Proposals]:
        """The captions it proposes, one answer a request."""
        if self.parallel == 1 or len(requests) < 2:
            return [self._ask(request) for request in requests]
        with ThreadPoolExecutor(self.parallel) as pool:
            return list(pool.map(self._ask, requests))

    def provenance(self) -> dict[str, str]:
        """Where the model is and how it is asked; never the key."""
        asked = f"temperature {self.temperature:g}, {self.variations} variations"
        return {"source": self.base_url, "model": self.model, "asked": asked}

    def __repr__(self) -> str:
        return f"OpenAiRewriter({self.model!r}, base_url={self.base_url!r})"

    def _ask(self, request: RewriteRequest) -> Proposals:
        text = instruction(request.caption, check_factor(request.factor), self.variations)
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": text}],
            "temperature": self.temperature,
            "max_tokens": self.most_tokens,
            "seed": seed_of(request.seed, request.factor, request.caption) % 2**31,
        }
        retries = None if self._failed_in_a_row < PATIENT_FOR else 0
        try:
            answer, cut_off = _message(self._endpoint.post(body, retries=retries))
        except RunFailed as error:
            self._failed_in_a_row += 1
            return Proposals(rejections=(Rejection(request.factor, "", "endpoint", str(error)),))
        self._failed_in_a_row = 0
        if answer is None:
            return Proposals(rejections=(Rejection(request.factor, "", "refusal", "the endpoint declined to answer"),))
        return parse(answer, request.factor, variations=self.variations, cut_off=cut_off)


def _message(reply: dict[str, Any]) -> tuple[str | None, bool]:
    """The text of a reply, None for a refusal, and whether it was cut off. What is no reply at all reads as empty."""
    choices = reply.get("choices")
    first = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    message = first.get("message")
    content = message.get("content") if isinstance(message, dict) else ""
    refused = (isinstance(message, dict) and message.get("refusal")) or first.get("finish_reason") == "content_filter"
    if refused:
        return None, False
    return content if isinstance(content, str) else "", first.get("finish_reason") == "length"
