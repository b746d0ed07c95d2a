"""Asks an HTTP endpoint for JSON, patiently: time-outs, retries with growing pauses, and a limit on the rate."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.message import Message
from typing import Any
from urllib.parse import urlsplit

from counterfoil.core.errors import BadPart, RunFailed, one_line

MAX_BYTES = 64 * 2**20  # of an answer
LONGEST_PAUSE = 60.0  # seconds between two tries
_TRY_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})


@dataclass(frozen=True)
class Patience:
    """How long an endpoint is waited for."""

    timeout: float = 30.0  # seconds for one answer
    retries: int = 5  # tries after the first
    backoff: float = 0.5  # seconds before the second try; doubled for each that follows
    rate: float | None = None  # requests a second at most

    def __post_init__(self) -> None:
        if self.timeout <= 0 or self.retries < 0 or self.backoff < 0 or (self.rate is not None and self.rate <= 0):
            raise BadPart(f"http: timeout and rate are above 0, retries and backoff not below, got {self}")


class JsonClient:
    """One endpoint. What comes back is a JSON object, or RunFailed once patience is at its end."""

    def __init__(
        self,
        url: str,
        *,
        patience: Patience,
        headers: Mapping[str, str],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadPart(f"{url}: not an address; write http://host:port/path or https://…")
        if parts.username or parts.password:
            raise BadPart(f"{parts.scheme}://{parts.hostname}: take the password out of the address, use token_env")
        self.url = url
        self._patience = patience
        self._headers = {"Accept": "application/json", "User-Agent": "counterfoil", **headers}
        self._clock, self._sleep = clock, sleep
        self._earliest = 0.0  # when the next request may be made
        self._opener = urllib.request.build_opener(_NoRedirects)

    def get(self) -> dict[str, Any]:
        """What the endpoint answers to a GET."""
        return self._ask(None)

    def post(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """What the endpoint answers to a POST of `value`."""
        return self._ask(json.dumps(value).encode())

    def _ask(self, body: bytes | None) -> dict[str, Any]:
        problem = ""
        for attempt in range(self._patience.retries + 1):
            pause = 0.0
            try:
                return self._parsed(self._once(body))
            except urllib.error.HTTPError as error:
                problem = f"status {error.code} {error.reason}{_excerpt(error)}"
                if error.code not in _TRY_AGAIN:
                    raise self._failed(problem, tries=attempt + 1) from None
                pause = _retry_after(error.headers)
            except TimeoutError:
                problem = f"no answer within {self._patience.timeout:g} s"
            except (OSError, ValueError, http.client.HTTPException) as error:  # no connection, a broken one, or no JSON
                problem = one_line(error)
            if attempt < self._patience.retries:
                self._sleep(min(max(self._patience.backoff * 2**attempt, pause), LONGEST_PAUSE))
        raise self._failed(problem, tries=self._patience.retries + 1)

    def _once(self, body: bytes | None) -> bytes:
        self._wait_for_turn()
        headers = {**self._headers, "Content-Type": "application/json"} if body is not None else self._headers
        request = urllib.request.Request(self.url, data=body, headers=headers)
        started = self._clock()
        chunks, size = [], 0
        try:
            with self._opener.open(request, timeout=self._patience.timeout) as response:
                while chunk := response.read(2**16):
                    chunks.append(chunk)
                    size += len(chunk)
                    if size > MAX_BYTES:
                        raise ValueError(f"an answer of more than {MAX_BYTES // 2**20} MB")
                    if self._clock() - started > self._patience.timeout:  # the socket's own limit starts anew with each piece
                        raise TimeoutError
        except urllib.error.HTTPError:
            raise
        except urllib.error.URLError as error:
            raise error.reason if isinstance(error.reason, OSError) else error from None
        return b"".join(chunks)

    def _wait_for_turn(self) -> None:
        if self._patience.rate is None:
            return
        now = self._clock()
        if now < self._earliest:
            self._sleep(self._earliest - now)
        self._earliest = max(now, self._earliest) + 1 / self._patience.rate

    def _parsed(self, content: bytes) -> dict[str, Any]:
        try:
            value = json.loads(content)
        except ValueError:
            raise ValueError(f"an answer that is no JSON, it begins with {content[:60]!r}") from None
        if not isinstance(value, dict):
            raise ValueError(f"an answer that is a JSON {type(value).__name__}, not an object")
        return value

    def _failed(self, problem: str, *, tries: int) -> RunFailed:
        return paused(self.url, f"{problem}, after {tries} {'try' if tries == 1 else 'tries'}")


def paused(url: str, problem: str) -> RunFailed:
    """The error that stops a run in a way that it can go on from."""
    return RunFailed(f"{url}: {problem}; what was done is kept, the same command goes on once the endpoint is in order")


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect is an answer like any other: followed, it would take tokens to another host and turn POST into GET."""

    def redirect_request(self, *arguments: Any, **options: Any) -> None:
        return None


def _excerpt(error: urllib.error.HTTPError) -> str:
    """The beginning of what the endpoint says about its failure, on one line."""
    try:
        text = " ".join(error.read(500).decode("utf-8", "replace").split())[:120]
    except OSError:
        return ""
    return f" ({text})" if text else ""


def _retry_after(headers: Message) -> float:
    value = headers.get("Retry-After", "")
    return float(value) if value.strip().isdigit() else 0.0
