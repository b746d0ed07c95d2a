"""A model behind HTTP on this machine, whose answers a test can spoil."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import torch

from counterfoil.parts import images
from tests.fakes import CLASSES, TinyModel

Spoil = Callable[[int, Any], Any]
"""Gets the number of the request and the right answer; gives bytes, (status, bytes, headers), another answer, or a function
that writes to the connection itself."""


@dataclass
class Endpoint:
    """The requests a server got, and its answers."""

    url: str = ""
    spoil: Spoil = lambda number, answer: answer
    description: dict[str, Any] = field(default_factory=lambda: {"classes": list(CLASSES), "size": 16})
    posts: list[int] = field(default_factory=list)  # images in each request
    tokens: list[str | None] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)

    def answer(self, body: bytes) -> Any:
        pictures = [images.read(base64.b64decode(text)) for text in json.loads(body)["images"]]
        with torch.no_grad():
            scores = TinyModel().logits(torch.stack(pictures))
        self.posts.append(len(pictures))
        return self.spoil(len(self.posts), {"logits": scores.tolist()})


class _Quiet(ThreadingHTTPServer):
    """Says nothing of clients that have hung up: some tests do."""

    daemon_threads = True

    def handle_error(self, *arguments: Any) -> None:
        pass


@contextmanager
def serve(*, certificate: tuple[Path, Path] | None = None) -> Iterator[Endpoint]:
    """An endpoint on the loopback address, for as long as the block lasts; encrypted if given a certificate and its key."""
    endpoint = Endpoint()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(endpoint.description)

        def do_POST(self) -> None:
            endpoint.tokens.append(self.headers.get("Authorization"))
            endpoint.paths.append(self.path)
            self._send(endpoint.answer(self.rfile.read(int(self.headers["Content-Length"]))))

        def _send(self, value: Any) -> None:
            if callable(value):
                self.close_connection = True
                value(self.wfile)
                return
            status, body, headers = value if isinstance(value, tuple) else (200, value, {})
            body = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            for name, text in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, text)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: Any) -> None:
            pass

    with _Quiet(("127.0.0.1", 0), Handler) as server:
        if certificate is not None:
            secured = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            secured.load_cert_chain(*certificate)
            server.socket = secured.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        endpoint.url = f"{'https' if certificate else 'http'}://127.0.0.1:{server.server_port}/predict"
        try:
            yield endpoint
        finally:
            server.shutdown()
            thread.join()


def picture(seed: int) -> str:
    image = torch.rand(3, 8, 8, generator=torch.Generator().manual_seed(seed))
    return base64.b64encode(images.png(image)).decode()


def answering(endpoint: Endpoint, spoil: Any = lambda number, answer: answer, *, flags: bool = False) -> None:
    """Make a test's endpoint paint."""

    def answer(body: bytes) -> Any:
        asked = json.loads(body)
        endpoint.posts.append(len(asked.get("prompts", [1])))
        if "prompts" in asked:
            made: dict[str, Any] = {"images": [picture(seed) for seed in asked["seeds"]]}
            if flags:
                made["nsfw"] = ["blue" in text for text in asked["prompts"]]
        else:
            made = {"data": [{"b64_json": picture(asked["seed"])}]}
        return spoil(len(endpoint.posts), made)

    endpoint.answer = answer  # type: ignore[method-assign]


def reply(text: str | None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop", **more}]}
