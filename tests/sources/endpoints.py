"""Parts behind an endpoint: a server on the loopback address, with and without encryption."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.parts.endpoint import Endpoint, answering, reply, serve

Answer = Callable[[Endpoint], None]
CERTIFICATE = "counterfoil-tests"


def _model(endpoint: Endpoint) -> None:
    """It classifies as it is."""


def _painter(endpoint: Endpoint) -> None:
    answering(endpoint)


def _chat(endpoint: Endpoint) -> None:
    def answer(body: bytes) -> Any:
        picture = json.loads(body)["messages"][0]["content"][0]["image_url"]["url"]
        return {"choices": [{"message": {"role": "assistant", "content": f"a boot, {len(picture)}"}}]}

    endpoint.answer = answer  # type: ignore[method-assign]


def _rewriter(endpoint: Endpoint) -> None:
    endpoint.answer = lambda body: reply("1. a photo of a cat on a sofa")  # type: ignore[method-assign]


def _plain(answers: Answer) -> Any:
    def recipe(folder: Path, stack: ExitStack) -> Any:
        endpoint = stack.enter_context(serve())
        answers(endpoint)
        return endpoint.url, {"backoff": 0.0}

    return recipe


def _with_encryption(answers: Answer) -> Any:
    def recipe(folder: Path, stack: ExitStack) -> Any:
        endpoint = stack.enter_context(serve(certificate=certificate(folder)))
        answers(endpoint)
        _trust(folder / "certificate.pem", stack)
        return endpoint.url, {"backoff": 0.0}

    return recipe


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for the loopback address that signs itself, and its key."""
    signed, key = folder / "certificate.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    names = ["-subj", f"/CN={CERTIFICATE}", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*command, *names, "-out", signed, "-keyout", key], check=True, capture_output=True)
    return signed, key


def _trust(file: Path, stack: ExitStack) -> None:
    """Let this process believe the certificate for a while."""
    before = os.environ.get("SSL_CERT_FILE")
    os.environ["SSL_CERT_FILE"] = str(file)
    stack.callback(lambda: os.environ.pop("SSL_CERT_FILE") if before is None else os.environ.update(SSL_CERT_FILE=before))


def _openai(folder: Path, stack: ExitStack) -> Any:
    endpoint = stack.enter_context(serve())
    _rewriter(endpoint)
    return "openai:tiny", {"base_url": endpoint.url.removesuffix("/predict")}


RECIPES: dict[tuple[str, str], Any] = {
    ("model", "http"): _plain(_model),
    ("model", "https"): _with_encryption(_model),
    ("painter", "http"): _plain(_painter),
    ("painter", "https"): _with_encryption(_painter),
    ("chat", "http"): _plain(_chat),
    ("chat", "https"): _with_encryption(_chat),
    ("rewriter", "openai"): _openai,
}
