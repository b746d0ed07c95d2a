"""A painter behind an HTTP endpoint. docs/imagenet-d.md has the contract."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from counterfoil.core.errors import BadImage, BadPart
from counterfoil.parts import images as pictures
from counterfoil.parts.http import Endpoint, EndpointOptions
from counterfoil.parts.painters.painted import Painted

Api = Literal["counterfoil", "openai"]


def http_painter(
    address: str,
    *,
    api: Api = "counterfoil",
    model: str | None = None,
    size: int | None = None,
    batch: int = 4,
    timeout: float = 120.0,
    retries: int = 5,
    backoff: float = 0.5,
    rate: float | None = None,
    token_env: str | None = None,
    extra: Mapping[str, Any] | None = None,
) -> HttpPainter:
    """A painter behind an HTTP endpoint: http://host:8000/paint.

    With `api: counterfoil` prompts and seeds go there, `batch` at a time, and pictures come back; with `api: openai` one
    prompt a request in the form of its image generations (`model` names the model). `extra` is sent along with every request.
    An endpoint that fails is asked `retries` more times, then the run pauses, and the same command goes on with it; `rate` is
    the number of requests a second at most. `token_env` names an environment variable with a bearer token. `size` is the side
    of the pictures.
    """
    endpoint = Endpoint(address, EndpointOptions(timeout, retries, backoff, rate, token_env))
    return HttpPainter(endpoint, api=api, model=model, size=size, batch=batch, extra=extra)


class HttpPainter:
    """Asks an endpoint for pictures. An answer of another shape stops the run in a way that it can go on from."""

    def __init__(
        self,
        client: Endpoint,
        *,
        api: Api = "counterfoil",
        model: str | None = None,
        size: int | None = None,
        batch: int = 4,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        if api not in get_args(Api) or batch < 1:
            raise BadPart(f"{client.url}: api is one of {', '.join(get_args(Api))} and batch at least 1, got {api!r} and {batch}")
        self._client = client
        self._api = api
        self._batch = 1 if api == "openai" else batch
        self._fixed = {**({"model": model} if model else {}), **(extra or {})}
        self._size = size

    def paint(self, prompts: Sequence[str], seeds: Tensor) -> Tensor:
        """One picture a prompt.  # (N, 3, H, W)"""
        return self.paint_filtered(prompts, seeds).images

    def paint_filtered(self, prompts: Sequence[str], seeds: Tensor) -> Painted:
        """One picture a prompt, with what the endpoint says its filter found; a withheld picture is black."""
        found: list[Tensor | None] = []
        flags: list[bool | None] = []
        for start in range(0, len(prompts), self._batch):
            some, seed = list(prompts[start : start + self._batch]), seeds[start : start + self._batch].tolist()
            answer = self._client.post(self._request(some, seed))
            painted, said = self._read(answer, len(some))
            found += painted
            flags += said
        shapes = {tuple(picture.shape) for picture in found if picture is not None}
        if len(shapes) > 1:
            raise self._client.failed(f"answered with pictures of different sizes ({', '.join(map(str, sorted(shapes)))})")
        shape = shapes.pop() if shapes else (3, self._size or 64, self._size or 64)
        return Painted(torch.stack([torch.zeros(shape) if each is None else each for each in found]), tuple(flags))

    def provenance(self) -> dict[str, str]:
        """Where the painter is and what is sent along."""
        sent = ", ".join(f"{key} {value}" for key, value in sorted(self._fixed.items()))
        return {"source": self._client.url, "api": self._api, **({"sent along": sent} if sent else {})}

    def _request(self, prompts: list[str], seeds: list[int]) -> dict[str, Any]:
        if self._api == "counterfoil":
            return {"prompts": prompts, "seeds": seeds, **({"size": self._size} if self._size else {}), **self._fixed}
        side = {"size": f"{self._size}x{self._size}"} if self._size else {}
        return {"prompt": prompts[0], "n": 1, "response_format": "b64_json", "seed": seeds[0] % 2**31, **side, **self._fixed}

    def _read(self, answer: Mapping[str, Any], count: int) -> tuple[list[Tensor | None], list[bool | None]]:
        rows = answer.get("images" if self._api == "counterfoil" else "data")
        if not isinstance(rows, list) or len(rows) != count:
            held = f"{len(rows)} pictures" if isinstance(rows, list) else f"the keys {sorted(answer)}"
            raise self._client.failed(f"answered with {held} for {count} prompts")
        coded = (
            rows if self._api == "counterfoil" else [each.get("b64_json") if isinstance(each, Mapping) else None for each in rows]
        )
        said = answer.get("nsfw", [None] * count)
        if not isinstance(said, list) or len(said) != count:
            raise self._client.failed(f"answered with nsfw {said!r:.40} for {count} prompts")
        flags = [None if flag is None else bool(flag) for flag in said]
        return [None if flag else self._picture(text) for text, flag in zip(coded, flags, strict=True)], flags

    def _picture(self, text: Any) -> Tensor:
        try:
            return pictures.read(base64.b64decode(text, validate=True), name="the answer's picture")
        except (TypeError, ValueError, binascii.Error):
            raise self._client.failed("answered with a picture that is not base64") from None
        except BadImage as error:
            raise self._client.failed(str(error)) from None
