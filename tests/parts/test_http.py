"""Endpoints: patience, tokens, and a table of hostile answers for every part that asks one."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from counterfoil.core.errors import BadPart, BadSpec, RunFailed
from counterfoil.parts import registry
from counterfoil.parts.contracts import RewriteRequest
from counterfoil.parts.http import Endpoint, EndpointOptions
from tests.parts import endpoint as servers
from tests.parts.endpoint import serve

QUICK: dict[str, Any] = {"backoff": 0.0, "timeout": 5.0}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[servers.Endpoint]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serve() as found:
        found.answer = lambda body: found.posts.append(1) or found.spoil(len(found.posts), {"fine": True})  # type: ignore[method-assign, func-returns-value]
        yield found


class Time:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(round(seconds, 6))
        self.now += seconds


def make_endpoint(server: servers.Endpoint, time: Time | None = None, **options: Any) -> Endpoint:
    time = time or Time()
    return Endpoint(server.url, EndpointOptions(**options), clock=time.clock, sleep=time.sleep)


def test_a_token_is_sent_and_no_message_repeats_it(server: servers.Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", "hush\n")  # secrets often end in a line break
    endpoint = make_endpoint(server, token_env="SOME_TOKEN", retries=0)
    assert endpoint.post({}) == {"fine": True}
    assert server.tokens == ["Bearer hush"]
    server.spoil = lambda number, answer: (401, b"Bearer hush is not known here", {})
    with pytest.raises(RunFailed, match=r"status 401 Unauthorized \(Bearer \*\*\* is not known here\)"):
        endpoint.post({})


@pytest.mark.parametrize(("token", "message"), [("sk\nsecret", "holds blanks, line breaks"), ("", "is not set"), ("sé", "holds")])
def test_a_token_that_no_header_can_hold_is_refused_unseen(
    server: servers.Endpoint, monkeypatch: pytest.MonkeyPatch, token: str, message: str
) -> None:
    monkeypatch.setenv("SOME_TOKEN", token)
    with pytest.raises(BadPart, match=f"SOME_TOKEN,? (?:which )?{message}") as caught:
        make_endpoint(server, token_env="SOME_TOKEN")
    assert "secret" not in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_failing_endpoint_is_asked_again_after_growing_pauses(server: servers.Endpoint, status: int) -> None:
    server.spoil = lambda number, answer: answer if number > 3 else (status, b"busy", {})
    time = Time()
    assert make_endpoint(server, time, backoff=0.5, retries=3).post({}) == {"fine": True}
    assert time.slept == [0.5, 1.0, 2.0]


@pytest.mark.parametrize("status", [400, 401, 404])
def test_a_refusal_is_not_asked_again(server: servers.Endpoint, status: int) -> None:
    server.spoil = lambda number, answer: (status, b"", {})
    with pytest.raises(RunFailed, match=f"status {status} .*, after 1 try;"):
        make_endpoint(server, retries=3).post({})
    assert len(server.posts) == 1


@pytest.mark.parametrize(("stated", "slept"), [("7", 7.0), ("²", 0.5), ("9" * 400, 0.5), ("soon", 0.5), ("600", 60.0)])
def test_a_stated_pause_is_kept_to(server: servers.Endpoint, stated: str, slept: float) -> None:
    header = {"Retry-After": stated.encode().decode("latin-1")}
    server.spoil = lambda number, answer: answer if number > 1 else (503, b"", header)
    time = Time()
    make_endpoint(server, time, backoff=0.5).post({})
    assert time.slept == [slept]


def test_requests_keep_to_the_rate(server: servers.Endpoint) -> None:
    time = Time()
    endpoint = make_endpoint(server, time, rate=4.0)
    for _ in range(4):
        endpoint.post({})
    assert time.slept == [0.25, 0.25, 0.25]


def test_a_connection_is_used_again_and_threads_have_their_own(server: servers.Endpoint) -> None:
    endpoint = make_endpoint(server)
    endpoint.post({})
    client = endpoint._client()
    other = []
    thread = threading.Thread(target=lambda: other.append((endpoint.post({}), endpoint._client())))
    thread.start(), thread.join()
    assert endpoint._client() is client and other[0] != client


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"timeout": 0}, "timeout and rate are above 0"),
        ({"rate": -1}, "timeout and rate are above 0"),
        ({"timeout": "abc"}, "timeout: input should be a valid number"),
        ({"timeout": float("nan")}, "timeout, backoff and rate are finite numbers, got nan"),
        ({"headers": {"X-A": "b\r\nX-B: c"}}, "the header 'X-A' has characters that no header can hold"),
        ({"foo": 1}, "unexpected keyword argument 'foo'; its options are timeout, retries"),
    ],
)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_wrong_options_are_one_line(scheme: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises((BadPart, BadSpec), match=message) as caught:
        registry.create("model", f"{scheme}://host/", {"classes": ["a", "b"], **options})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("http:", "not an address"),
        ("http://user:secret@host/", "take the password out of the address"),
        ("file:///x", "not an address"),
    ],
)
def test_addresses_that_are_none_are_refused(address: str, message: str) -> None:
    with pytest.raises(BadPart, match=message) as caught:
        Endpoint(address, EndpointOptions())
    assert "secret" not in str(caught.value)


def _drip(*pieces: bytes, forever: bytes = b"") -> Callable[[Any], None]:
    """Writes the pieces, and then one more every little while, until the client hangs up."""

    def write(connection: Any) -> None:
        try:
            for piece in pieces:
                connection.write(piece)
            while forever:
                connection.write(forever)
                threading.Event().wait(0.02)
        except OSError:
            pass

    return write


OK = b"HTTP/1.1 200 OK\r\n"
HOSTILE: dict[str, tuple[Any, str]] = {
    "deep JSON": (b"[" * 200_000 + b"]" * 200_000, r"not JSON \(nested more than 100 deep\), it begins with b'\[\[\[\["),
    "no JSON": (b"<html>sorry</html>", "not JSON .*, it begins with b'<html>sorry</html>'"),
    "not an object": (b"[1, 2]", "a JSON list, not an object"),
    "NaN": (b'{"x": NaN}', r"not JSON \(the number NaN is not finite\)"),
    "a huge integer": (b'{"x": 1' + b"0" * 400 + b"}", "the number 10000000000000000000… is not finite"),
    "half a surrogate pair": (b'{"x": "\\ud800"}', "its text is not UTF-8"),
    "compressed": ((200, b"\x1f\x8b\x08\x00\x00", {"Content-Encoding": "gzip"}), "not JSON"),
    "too much": (_drip(OK + b"Content-Length: 80000000\r\n\r\n", b" " * 70_000_000), "an answer of more than 64 MB"),
    "broken chunks": (_drip(b"HTTP/1.1 500 Broken\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"), "after 1 try"),
    "cut off": (_drip(OK + b"Content-Length: 50\r\n\r\n{"), "after 1 try"),
    "no HTTP": (_drip(b"220 mail.example ESMTP\r\n\r\n"), "after 1 try"),
    "redirect": ((302, b"", {"Location": "http://127.0.0.1:1/"}), "status 302"),
    "control characters": ((500, b"\x1b]0;pwn\x07", {}), r"status 500 Internal Server Error \(\\x1b\]0;pwn\\x07\)"),
    "a body in drips": (_drip(OK + b"Content-Length: 50000\r\n\r\n", forever=b" "), "no answer within 0.5 s"),
    "headers in drips": (_drip(OK, forever=b"X: y\r\n"), "no answer within 0.5 s"),
    "an error in drips": (_drip(b"HTTP/1.1 404 No\r\nContent-Length: 400\r\n\r\n", forever=b" "), "no answer within 0.5 s"),
    "silence": (_drip(b"", forever=b""), "after 1 try"),
}


def _classify(address: str, options: dict[str, Any]) -> Any:
    return registry.create("model", address, {"classes": ["a", "b"], **options}).logits(torch.zeros(1, 3, 4, 4))


def _paint(address: str, options: dict[str, Any]) -> Any:
    return registry.create("painter", address, options).paint(["a photo of a mug"], torch.tensor([1]))


def _chat(address: str, options: dict[str, Any]) -> Any:
    return registry.create("chat", address, options).answer([torch.zeros(3, 4, 4)], ["what is it?"])


def _rewrite(address: str, options: dict[str, Any]) -> Any:
    rewriter = registry.create("rewriter", "openai:m", {"base_url": address.removesuffix("/predict"), **options})
    (answer,) = rewriter.rewrite([RewriteRequest("a photo of a dog", "background")])
    (rejection,) = answer.rejections
    raise RunFailed(rejection.detail)  # an endpoint that does not answer is a reason there, not an error


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("caller", [_classify, _paint, _chat, _rewrite], ids=["model", "painter", "chat", "rewriter"])
def test_hostile_answers_end_in_one_line(
    server: servers.Endpoint, monkeypatch: pytest.MonkeyPatch, caller: Callable[[str, dict[str, Any]], Any], kind: str
) -> None:
    if kind == "too much" and caller is not _classify:
        pytest.skip("70 MB once are enough")
    monkeypatch.setenv("OPENAI_API_KEY", "")
    answer, message = HOSTILE[kind]
    server.answer = lambda body: answer  # type: ignore[method-assign]
    with pytest.raises(RunFailed, match=message) as caught:
        caller(server.url, {"retries": 0, "backoff": 0.0, "timeout": 0.5 if "drips" in kind else 20.0})
    assert "\n" not in str(caught.value) and "\x1b" not in str(caught.value) and len(str(caught.value)) < 500


def test_an_answer_that_is_an_object_is_taken(server: servers.Endpoint) -> None:
    server.answer = lambda body: {"sent": json.loads(body)}  # type: ignore[method-assign]
    assert make_endpoint(server).post({"x": [1, 2]}) == {"sent": {"x": [1, 2]}}
