"""A painter behind an HTTP endpoint. docs/reference/http-endpoints.md has the contract."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from counterfoil.core.errors import BadImage, BadPart
from counterfoil.parts import images
from counterfoil.parts.contracts import Painted, Trait
from counterfoil.parts.http import Endpoint, EndpointOptions

MAX_SIDE = 4096  # pixels of an answer's image


@dataclass(frozen=True)
class HttpPainterOptions(EndpointOptions):
    timeout: float = 120.0
    api: Literal["counterfoil", "openai"] = "counterfoil"
    model: str | None = None
    size: int | None = None
    batch: int = 4
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch < 1 or not 1 <= (self.size or 1) <= MAX_SIDE:
            raise BadPart(f"http: batch is at least 1 and size from 1 to {MAX_SIDE}, got {self.batch} and {self.size}")


def http_painter(address: str, options: HttpPainterOptions) -> HttpPainter:
    """A painter behind an HTTP endpoint: http://host:8000/paint.

    With `api: counterfoil` prompts and seeds are sent, `batch` at a time, and images come back; with `api: openai` one
    prompt per request in the form of its image generations (`model` names the model). `extra` is sent along with every
    request. An endpoint that fails is asked `retries` more times, then the run pauses, and the same command resumes it; `rate`
    is the highest number of requests per second. `token_env` names an environment variable with a bearer token. `size` is the
    side of the images.
    """
    return HttpPainter(address, options)


class HttpPainter:
    """Asks an endpoint for images. An answer of another shape pauses the run."""

    def __init__(self, address: str, options: HttpPainterOptions) -> None:
        self._endpoint = Endpoint(address, options)
        self._options = options
        self._fixed = {**({"model": options.model} if options.model else {}), **options.extra}
        self.size = options.size

    def paint(self, prompts: Sequence[str], seeds: Tensor) -> Tensor:
        return self.paint_filtered(prompts, seeds).images

    def paint_filtered(self, prompts: Sequence[str], seeds: Tensor) -> Painted:
        """One image per prompt, with the verdict of the endpoint's filter; a withheld image is black."""
        found: list[Tensor | None] = []
        flags: list[bool | None] = []
        batch = 1 if self._options.api == "openai" else self._options.batch
        for start in range(0, len(prompts), batch):
            some = list(prompts[start : start + batch])
            answer = self._endpoint.post(self._request(some, seeds[start : start + batch].tolist()))
            painted, flagged = self._read(answer, len(some))
            found += painted
            flags += flagged
        shapes = {tuple(image.shape) for image in found if image is not None}
        if len(shapes) > 1:
            raise self._endpoint.failure(f"answered with images of different sizes ({', '.join(map(str, sorted(shapes)))})")
        shape = shapes.pop() if shapes else (3, self.size or 64, self.size or 64)
        return Painted(torch.stack([torch.zeros(shape) if each is None else each for each in found]), tuple(flags))

    def describe(self) -> list[Trait]:
        if self.size is None:
            return [Trait("images", f"any size up to {MAX_SIDE}×{MAX_SIDE}", "the endpoint")]
        return [Trait("images", f"{self.size}×{self.size}", "the options")]

    def provenance(self) -> dict[str, str]:
        sent = ", ".join(f"{key} {value}" for key, value in sorted(self._fixed.items()))
        return {"source": self._endpoint.url, "api": self._options.api, **({"sent along": sent} if sent else {})}

    def _request(self, prompts: list[str], seeds: list[int]) -> dict[str, Any]:
        if self._options.api == "counterfoil":
            return {"prompts": prompts, "seeds": seeds, **({"size": self.size} if self.size else {}), **self._fixed}
        side = {"size": f"{self.size}x{self.size}"} if self.size else {}
        return {"prompt": prompts[0], "n": 1, "response_format": "b64_json", "seed": seeds[0] % 2**31, **side, **self._fixed}

    def _read(self, answer: Mapping[str, Any], count: int) -> tuple[list[Tensor | None], list[bool | None]]:
        own = self._options.api == "counterfoil"
        rows = answer.get("images" if own else "data")
        if not isinstance(rows, list) or len(rows) != count:
            given = f"{len(rows)} images" if isinstance(rows, list) else f"the keys {sorted(answer)[:9]}"
            raise self._endpoint.failure(f"answered with {given} for {count} prompts")
        texts = rows if own else [each.get("b64_json") if isinstance(each, Mapping) else None for each in rows]
        flagged = answer.get("nsfw", [None] * count)
        if not isinstance(flagged, list) or len(flagged) != count:
            raise self._endpoint.failure(f"answered with nsfw {flagged!r:.40} for {count} prompts")
        flags = [None if flag is None else bool(flag) for flag in flagged]
        return [None if flag else self._image(text) for text, flag in zip(texts, flags, strict=True)], flags

    def _image(self, text: Any) -> Tensor:
        try:
            return images.read(base64.b64decode(text, validate=True), name="the answer's image", max_side=self.size or MAX_SIDE)
        except (TypeError, ValueError, binascii.Error):
            raise self._endpoint.failure("answered with an image that is not base64") from None
        except BadImage as error:
            raise self._endpoint.failure(str(error)) from None
