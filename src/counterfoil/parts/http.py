"""Ask an HTTP endpoint for JSON: time limits, retries with growing pauses, a limit on the rate, and nothing trusted."""

from __future__ import annotations

import math
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx2

from counterfoil.core.errors import BadPart, RunFailed, one_line, printable
from counterfoil.core.tables import BadJson, parse_json

MAX_BYTES = 64 * 2**20  # of an answer
MAX_PAUSE = 60.0  # seconds between two tries
_TRY_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})


@dataclass(frozen=True)
class EndpointOptions:
    """Time limit, retries and rate of requests to an endpoint, and its headers.

    `token_env` names an environment variable with a bearer token. Headers are written into the run's records, so keep
    secrets out of them.
    """

    timeout: float = 30.0  # seconds for one answer, from the first byte sent to the last received
    retries: int = 5  # tries after the first
    backoff: float = 0.5  # seconds before the second try; doubled for each that follows
    rate: float | None = None  # requests per second at most
    token_env: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not all(math.isfinite(value) for value in (self.timeout, self.backoff, self.rate or 1)):
            raise BadPart(f"http: timeout, backoff and rate are finite numbers, got {self.timeout}, {self.backoff}, {self.rate}")
        if self.timeout <= 0 or self.retries < 0 or self.backoff < 0 or (self.rate is not None and self.rate <= 0):
            given = f"got timeout {self.timeout}, rate {self.rate}, retries {self.retries} and backoff {self.backoff}"
            raise BadPart(f"http: timeout and rate are above 0, retries and backoff not below, {given}")
        for name, value in self.headers.items():
            if not (name.isascii() and name.replace("-", "").isalnum() and value.isprintable()):
                raise BadPart(f"http: the header {name!r} has characters that no header can hold")

    def authorization(self) -> dict[str, str]:
        """The header with the bearer token, which no message repeats."""
        if self.token_env is None:
            return {}
        token = os.environ.get(self.token_env, "").strip()
        if not token:
            raise BadPart(f"http: token_env names the variable {self.token_env}, which is not set")
        if not (token.isascii() and token.isprintable()) or " " in token:
            raise BadPart(f"http: the variable {self.token_env} holds blanks, line breaks or other characters no token has")
        return {"Authorization": f"Bearer {token}"}


class EndpointFailed(RunFailed):
    """An endpoint that gave no usable answer within its tries; `problem` says what it did instead."""

    def __init__(self, url: str, problem: str) -> None:
        super().__init__(f"{url}: {problem}; finished work is kept, the same command resumes once the endpoint is back")
        self.problem = problem


class Endpoint:
    """One address that answers with JSON objects, or EndpointFailed after the last try."""

    def __init__(
        self,
        url: str,
        options: EndpointOptions,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadPart(f"{url}: not an address; write http://host:port/path or https://…")
        if parts.username or parts.password:
            raise BadPart(f"{parts.scheme}://{parts.hostname}: take the password out of the address, use token_env")
        self.url = url
        self.options = options
        identity = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "counterfoil"}
        authorization = options.authorization()
        self._token = authorization.get("Authorization", "").removeprefix("Bearer ")  # endpoints repeat it in what they answer
        self._headers = {**identity, **options.headers, **authorization}
        self._clock, self._sleep = clock, sleep
        self._earliest = 0.0  # when the next request may be sent
        self._turn = threading.Lock()
        self._connections = threading.local()  # one per thread

    def get(self) -> dict[str, Any]:
        """The answer to a GET."""
        return self._ask("GET", None)

    def post(self, body: Mapping[str, Any], *, retries: int | None = None) -> dict[str, Any]:
        """The answer to a POST of `body`."""
        return self._ask("POST", body, retries)

    def failure(self, problem: str) -> EndpointFailed:
        """The error that pauses a run because of this endpoint."""
        return EndpointFailed(self.url, problem.replace(self._token, "***") if self._token else problem)

    def _ask(self, method: str, body: Mapping[str, Any] | None, retries: int | None = None) -> dict[str, Any]:
        tries = 1 + (self.options.retries if retries is None else retries)
        problem = ""
        for attempt in range(1, tries + 1):
            pause = 0.0
            self._wait_for_turn()
            try:
                status, reason, headers, content = self._send(method, body)
                if status == 200:
                    return parse_object(content)
                text = one_line(content[:500].decode("utf-8", "replace"), 120) if content.strip() else ""
                problem = printable(f"status {status} {reason}" + (f" ({text})" if text else ""))
                if status not in _TRY_AGAIN:
                    raise self.failure(f"{problem}, after {_count(attempt)}")
                pause = _retry_after(headers.get("Retry-After", ""))
            except httpx2.TimeoutException:
                problem = f"no answer within {self.options.timeout:g} s"
            except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
                problem = printable(one_line(error))
            if attempt < tries:
                self._sleep(min(max(self.options.backoff * 2 ** (attempt - 1), pause), MAX_PAUSE))
        raise self.failure(f"{problem}, after {_count(tries)}")

    def _send(self, method: str, body: Mapping[str, Any] | None) -> tuple[int, str, httpx2.Headers, bytes]:
        """Status, reason, headers and content of one request."""
        content = bytearray()
        with (
            self._deadline() as trace,
            self._client().stream(
                method, self.url, json=body, headers=self._headers, timeout=self.options.timeout, extensions={"trace": trace}
            ) as response,
        ):
            longest = MAX_BYTES if response.status_code == 200 else 500
            for chunk in response.iter_raw():
                content += chunk
                if len(content) > longest:
                    if response.status_code == 200:
                        raise ValueError(f"an answer of more than {MAX_BYTES // 2**20} MB")
                    break
        return response.status_code, response.reason_phrase, response.headers, bytes(content)

    @contextmanager
    def _deadline(self) -> Iterator[Callable[[str, Mapping[str, Any]], None]]:
        """Cut this thread's connection at the end of the time limit.

        The client's own limit starts again with each piece, so an endpoint that sends a byte now and then would be waited
        for without end. The tracer that is given back notes the connection's stream.
        """
        expired = threading.Event()

        def note(event: str, info: Mapping[str, Any]) -> None:
            if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
                self._connections.stream = info["return_value"]
                streams[:] = [info["return_value"]]

        def cut() -> None:
            expired.set()
            for stream in streams:
                with suppress(OSError):  # it may have ended by itself
                    socket.socket.shutdown(stream.get_extra_info("socket"), socket.SHUT_RDWR)

        streams = [stream] if (stream := getattr(self._connections, "stream", None)) is not None else []
        timer = threading.Timer(self.options.timeout, cut)
        timer.daemon = True
        timer.start()
        try:
            yield note
        except (httpx2.HTTPError, OSError):
            if expired.is_set():
                raise httpx2.ReadTimeout("the time limit is over") from None
            raise
        finally:
            timer.cancel()
        if expired.is_set():
            raise httpx2.ReadTimeout("the time limit is over")

    def _client(self) -> httpx2.Client:
        client: httpx2.Client | None = getattr(self._connections, "client", None)
        if client is None:
            client = self._connections.client = httpx2.Client(limits=httpx2.Limits(max_connections=1))
        return client

    def _wait_for_turn(self) -> None:
        if self.options.rate is None:
            return
        with self._turn:
            now = self._clock()
            if now < self._earliest:
                self._sleep(self._earliest - now)
            self._earliest = max(now, self._earliest) + 1 / self.options.rate


def parse_object(content: bytes) -> dict[str, Any]:
    """The JSON object in an answer; ValueError says what else it is. Numbers are finite, nesting is bounded."""
    try:
        value = parse_json(content, what="an answer", limit=MAX_BYTES)
    except BadJson as error:
        raise ValueError(f"{error}, it begins with {content[:60]!r}") from None
    if not isinstance(value, dict):
        raise ValueError(f"an answer that is a JSON {type(value).__name__}, not an object")
    return value


def _retry_after(value: str) -> float:
    value = value.strip()
    return float(value) if value.isascii() and value.isdigit() and len(value) < 7 else 0.0


def _count(tries: int) -> str:
    return f"{tries} {'try' if tries == 1 else 'tries'}"
