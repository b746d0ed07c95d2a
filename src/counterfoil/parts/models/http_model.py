"""A classifier behind an HTTP endpoint. docs/reference/http-endpoints.md has the contract."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from counterfoil.core.errors import BadPart
from counterfoil.parts import images as pictures
from counterfoil.parts import labels
from counterfoil.parts.contracts import Trait
from counterfoil.parts.http import Endpoint, EndpointFailed, EndpointOptions

MAX_SIDE = 16_384  # of the images an endpoint may ask for


@dataclass(frozen=True)
class HttpModelOptions(EndpointOptions):
    """The endpoint's patience, and how it is asked."""

    classes: str | Sequence[str] | None = None
    batch: int = 16
    size: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch < 1 or (self.size is not None and not 1 <= self.size <= MAX_SIDE):
            sizes = f"size is from 1 to {MAX_SIDE}"
            raise BadPart(f"http: batch is the number of images per request, at least 1, {sizes}; got {self.batch}, {self.size}")


def http_model(address: str, options: HttpModelOptions) -> HttpModel:
    """A model behind an HTTP endpoint, as a black box: http://host:8000/predict: reference/http-endpoints has its contract.

    Images are sent as PNG, `batch` at a time, and scores come back. An endpoint that fails is asked `retries` more times,
    `backoff` seconds later and then twice as long each time; then the run pauses, and the same command resumes it. `rate`
    is the number of requests per second at most. `token_env` names an environment variable with a bearer token; `headers`
    are written into the run's records, so keep secrets out of them. `classes` are the endpoint's unless given.
    """
    return HttpModel(Endpoint(address, options), options)


class HttpModel:
    """Asks an endpoint for scores. Answers of another shape, or from another version of the model, stop the run."""

    differentiable = False

    def __init__(self, endpoint: Endpoint, options: HttpModelOptions) -> None:
        self._endpoint = endpoint
        self._options = options
        self._described = {} if options.classes is not None else self._describe()
        names, self.aliases = labels.named_classes(options.classes) or self._names()
        self.classes: Sequence[str] = names
        self.size = options.size or self._whole("size", MAX_SIDE)
        self._batch = min(options.batch, self._whole("max_batch", 2**31) or options.batch)
        self._version = _text(self._described.get("version"))

    def logits(self, images: Tensor) -> Tensor:
        """Scores before the softmax, or the logarithms of probabilities.  # (N, 3, H, W) → (N, K)"""
        coded = [base64.b64encode(pictures.png(image)).decode() for image in images.detach().cpu()]
        rows: list[list[float]] = []
        for start in range(0, len(coded), self._batch):
            batch = coded[start : start + self._batch]
            rows.extend(self._scores(self._endpoint.post({"images": batch}), len(batch)))
        return torch.tensor(rows, dtype=torch.float32, device=images.device).reshape(len(images), len(self.classes))

    def describe(self) -> list[Trait]:
        decided = "the options" if self._options.size else "the endpoint" if self.size else "the run"
        size = f"{self.size}×{self.size}" if self.size else "any size"
        return [Trait("input", f"{size}, 8-bit RGB in PNG, not normalised", decided)]

    def provenance(self) -> dict[str, str]:
        return {"source": self._endpoint.url, "version": self._version or "not stated"}

    def _describe(self) -> dict[str, Any]:
        try:
            return self._endpoint.get()
        except EndpointFailed as error:  # nothing has been done yet that could be resumed
            raise BadPart(f"{self._endpoint.url}: {error.problem}; start the endpoint, or correct its address") from None

    def _names(self) -> tuple[list[str], labels.Aliases | None]:
        listed = self._described.get("classes")
        if not isinstance(listed, list) or len(listed) < 2 or not all(isinstance(name, str) for name in listed):
            given = sorted(self._described)
            raise BadPart(f"{self._endpoint.url}: does not list its classes (GET gives {given}); give classes: a list or a file")
        return labels.recognise(listed)

    def _whole(self, key: str, most: int) -> int | None:
        value = self._described.get(key)
        if value is not None and (not isinstance(value, int) or not 1 <= value <= most):
            raise BadPart(
                f"{self._endpoint.url}: describes itself with {key} {value!r}; a whole number from 1 to {most} is needed"
            )
        return value

    def _scores(self, answer: Mapping[str, Any], count: int) -> list[list[float]]:
        self._check_version(answer)
        given = [key for key in ("logits", "probabilities") if key in answer]
        if len(given) != 1:
            raise self._broken(f"an answer with the keys {sorted(answer)[:9]}, where logits or probabilities is needed")
        rows = answer[given[0]]
        if not isinstance(rows, list) or len(rows) != count or not all(isinstance(row, list) for row in rows):
            found = f"{len(rows)} rows" if isinstance(rows, list) else f"a {type(rows).__name__}"
            raise self._broken(f"{given[0]} of {found} for {count} images")
        for row in rows:
            if len(row) != len(self.classes):
                raise self._broken(f"{len(row)} scores per image, where there are {len(self.classes)} classes")
            if not all(type(score) in (int, float) and abs(score) <= 1e30 for score in row):
                raise self._broken("scores that are not all finite numbers")
        if given[0] == "logits":
            return [[float(score) for score in row] for row in rows]
        if not all(0 <= score <= 1.001 for row in rows for score in row) or not all(map(any, rows)):
            raise self._broken("probabilities outside 0 to 1, or all of them 0")
        return [[math.log(max(score, 1e-12)) for score in row] for row in rows]

    def _check_version(self, answer: Mapping[str, Any]) -> None:
        version = _text(answer.get("version"))
        if self._version is None:
            self._version = version
        elif version is not None and version != self._version:
            raise self._broken(f"version {version!r} of the model, where it was {self._version!r}")
        if "classes" in answer and answer["classes"] != list(self.classes) and self.aliases is None:
            raise self._broken("other classes than at first")

    def _broken(self, found: str) -> EndpointFailed:
        return self._endpoint.failure(f"answered with {found}")


def _text(value: object) -> str | None:
    return None if value is None else str(value)[:200]
