"""Vision-language models that answer in words: models of transformers, and endpoints that speak OpenAI's chat."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from counterfoil.core.errors import BadPart
from counterfoil.parts import images as pictures
from counterfoil.parts.http import Endpoint, EndpointOptions
from counterfoil.parts.oracles.answers import Answerer, load
from counterfoil.parts.pretrained import Pretrained


def vlm_chat(
    name: str,
    *,
    length: int = 40,
    prompt: str | None = None,
    dtype: str = "float32",
    revision: str | None = None,
    sha256: str | None = None,
) -> VlmChat:
    """An image-text-to-text model of transformers, asked in words: vlm:FOLDER or vlm:llava-hf/llava-1.5-7b-hf.

    It answers greedily, with `length` tokens at most. `prompt`, with `{question}` in it, stands in for the model's chat
    template; `dtype` is float32, bfloat16 or float16.
    """
    source = Pretrained("vlm", name, revision=revision, example="llava-hf/llava-1.5-7b-hf")
    if sha256 is not None:
        source.check_hash(sha256)
    if length < 1:
        raise BadPart(f"vlm:{name}: length is the number of tokens of an answer, at least 1, got {length}")
    return VlmChat(load(source, prompt=prompt, dtype=dtype), length=length)


class VlmChat:
    """Writes an answer, one picture at a time, so that an answer never hangs on its neighbours."""

    def __init__(self, answerer: Answerer, *, length: int = 40) -> None:
        self._answerer = answerer
        self._length = length

    @torch.no_grad()
    def answer(self, images: Sequence[Tensor], questions: Sequence[str]) -> list[str]:
        """One answer a picture and question.  # each picture (3, H, W)"""
        return [self._one(image, question) for image, question in zip(images, questions, strict=True)]

    def to(self, device: torch.device | str) -> VlmChat:
        """The same model, moved to a device."""
        self._answerer.to(device)
        return self

    def provenance(self) -> dict[str, str]:
        """Library, source and weights."""
        return {**self._answerer.provenance(), "length": str(self._length)}

    def _one(self, image: Tensor, question: str) -> str:
        model, processor = self._answerer.model, self._answerer.processor
        inputs = self._answerer.inputs(Image.fromarray(pictures.to_uint8(image)), question)
        written = model.generate(**inputs, max_new_tokens=self._length, do_sample=False)
        new = written[0, inputs["input_ids"].shape[1] :]
        return str(processor.tokenizer.decode(new, skip_special_tokens=True)).strip()


def http_chat(
    address: str,
    *,
    model: str = "",
    length: int = 40,
    timeout: float = 60.0,
    retries: int = 5,
    backoff: float = 0.5,
    rate: float | None = None,
    token_env: str | None = None,
    extra: Mapping[str, Any] | None = None,
) -> HttpChat:
    """A vision-language model behind an endpoint that speaks OpenAI's chat: http://host:8000/v1/chat/completions.

    `model` names the model there; `extra` is sent along with every request. An endpoint that fails is asked `retries` more
    times, then the run pauses, and the same command goes on with it. `token_env` names an environment variable with a token.
    """
    endpoint = Endpoint(address, EndpointOptions(timeout, retries, backoff, rate, token_env))
    return HttpChat(endpoint, model=model, length=length, extra=extra)


class HttpChat:
    """Asks an endpoint, one picture a request."""

    def __init__(self, client: Endpoint, *, model: str = "", length: int = 40, extra: Mapping[str, Any] | None = None) -> None:
        self._client = client
        self._fixed = {**({"model": model} if model else {}), "max_tokens": length, "temperature": 0, **(extra or {})}

    def answer(self, images: Sequence[Tensor], questions: Sequence[str]) -> list[str]:
        """One answer a picture and question."""
        return [self._one(image, question) for image, question in zip(images, questions, strict=True)]

    def provenance(self) -> dict[str, str]:
        """Where the model is and what is sent along."""
        return {"source": self._client.url, **{key: str(value) for key, value in self._fixed.items()}}

    def _one(self, image: Tensor, question: str) -> str:
        coded = base64.b64encode(pictures.png(image.cpu())).decode()
        content = [
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{coded}"}},
            {"type": "text", "text": question},
        ]
        answer = self._client.post({"messages": [{"role": "user", "content": content}], **self._fixed})
        try:
            text = answer["choices"][0]["message"]["content"]
        except (KeyError, IndexError, TypeError):
            raise self._client.failed(
                f"answered with the keys {sorted(answer)[:9]}, where choices with a message are needed"
            ) from None
        return str(text or "")
