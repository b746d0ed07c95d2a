"""A model behind an HTTP endpoint. docs/http-model.md has the contract."""

from __future__ import annotations

import base64
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from counterfoil.core.errors import BadPart, RunFailed
from counterfoil.parts import images as pictures
from counterfoil.parts import labels
from counterfoil.parts.models.http_client import JsonClient, Patience, paused
from counterfoil.parts.models.naming import named


def http_model(
    address: str,
    *,
    classes: str | Sequence[str] | None = None,
    batch: int = 16,
    timeout: float = 30.0,
    retries: int = 5,
    backoff: float = 0.5,
    rate: float | None = None,
    token_env: str | None = None,
    headers: Mapping[str, str] | None = None,
    size: int | None = None,
) -> HttpModel:
    """A model behind an HTTP endpoint, as a black box: http://host:8000/predict, by the contract in docs/http-model.md.

    Pictures go there as PNG, `batch` at a time, and scores come back. An endpoint that fails is asked `retries` more times,
    `backoff` seconds later and then twice as long each time; then the run pauses, and the same command goes on with it.
    `rate` is the number of requests a second at most. `token_env` names an environment variable with a bearer token;
    `headers` are written into the run's records, so keep secrets out of them. `classes` are the endpoint's unless given.
    """
    url = address if "://" in address else f"http:{address}"
    patience = Patience(timeout, retries, backoff, rate)
    client = JsonClient(url, patience=patience, headers={**(headers or {}), **authorisation(token_env)})
    try:
        return HttpModel(client, classes=classes, batch=batch, size=size)
    except RunFailed as error:
        raise BadPart(str(error)) from None


def https_model(address: str, **options: Any) -> HttpModel:
    """A model behind an HTTPS endpoint, as a black box: https://host/predict, with the options of `http`."""
    return http_model(f"https:{address}", **options)


class HttpModel:
    """Asks an endpoint for scores. Answers of another shape, or from another version of the model, stop the run."""

    differentiable = False

    def __init__(
        self,
        client: JsonClient,
        *,
        classes: str | Sequence[str] | None = None,
        batch: int = 16,
        size: int | None = None,
    ) -> None:
        if batch < 1:
            raise BadPart(f"{client.url}: batch is the number of pictures in a request, at least 1, got {batch}")
        self._client = client
        described = {} if classes is not None else client.get()
        names, self.aliases = named(classes) or _described(described, client.url)
        self.classes: Sequence[str] = names
        self.size = size or _whole(described, "size", client.url)
        self._batch = min(batch, _whole(described, "max_batch", client.url) or batch)
        self._version: str | None = _text(described.get("version"))

    def logits(self, images: Tensor) -> Tensor:
        """Scores before the softmax, or the logarithms of probabilities.  # (N, 3, H, W) → (N, K)"""
        coded = [base64.b64encode(pictures.png(image)).decode() for image in images.detach().cpu()]
        rows: list[list[float]] = []
        for start in range(0, len(coded), self._batch):
            some = coded[start : start + self._batch]
            rows.extend(self._scores(self._client.post({"images": some}), len(some)))
        return torch.tensor(rows, dtype=torch.float32, device=images.device).reshape(len(images), len(self.classes))

    def provenance(self) -> dict[str, str]:
        """Where the model is and, if it says so, which version."""
        return {"source": self._client.url, "version": self._version or "not stated"}

    def _scores(self, answer: Mapping[str, Any], count: int) -> list[list[float]]:
        self._check_version(answer)
        given = [key for key in ("logits", "probabilities") if key in answer]
        if len(given) != 1:
            raise self._garbage(f"an answer with the keys {sorted(answer)}, where logits or probabilities is needed")
        rows = answer[given[0]]
        if not isinstance(rows, list) or len(rows) != count or not all(isinstance(row, list) for row in rows):
            found = f"{len(rows)} rows" if isinstance(rows, list) else f"a {type(rows).__name__}"
            raise self._garbage(f"{given[0]} of {found} for {count} pictures")
        for row in rows:
            if len(row) != len(self.classes):
                raise self._garbage(f"{len(row)} scores a picture, where there are {len(self.classes)} classes")
            if not all(isinstance(score, int | float) and math.isfinite(score) for score in row):
                raise self._garbage("scores that are not all finite numbers")
        if given[0] == "logits":
            return [[float(score) for score in row] for row in rows]
        if any(score < 0 for row in rows for score in row):
            raise self._garbage("probabilities below 0")
        return [[math.log(max(score, 1e-12)) for score in row] for row in rows]

    def _check_version(self, answer: Mapping[str, Any]) -> None:
        version = _text(answer.get("version"))
        if self._version is None:
            self._version = version
        elif version is not None and version != self._version:
            raise self._garbage(f"version {version!r} of the model, where it was {self._version!r}")
        if "classes" in answer and answer["classes"] != list(self.classes) and self.aliases is None:
            raise self._garbage("other classes than at first")

    def _garbage(self, found: str) -> RunFailed:
        return paused(self._client.url, f"answered with {found}")


def _described(described: Mapping[str, Any], url: str) -> tuple[list[str], labels.Aliases | None]:
    listed = described.get("classes")
    if not isinstance(listed, list) or len(listed) < 2 or not all(isinstance(name, str) for name in listed):
        raise BadPart(f"{url}: does not list its classes (GET gives {sorted(described)}); give classes: a list or a file")
    found = named(listed)
    assert found is not None
    return found


def _whole(described: Mapping[str, Any], key: str, url: str) -> int | None:
    value = described.get(key)
    if value is not None and (not isinstance(value, int) or value < 1):
        raise BadPart(f"{url}: describes itself with {key} {value!r}, which is no positive whole number")
    return value


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def authorisation(variable: str | None) -> dict[str, str]:
    """The header with the bearer token that an environment variable holds."""
    if variable is None:
        return {}
    token = os.environ.get(variable)
    if not token:
        raise BadPart(f"http: token_env names the variable {variable}, which is not set")
    return {"Authorization": f"Bearer {token}"}
