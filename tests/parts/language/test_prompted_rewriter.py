"""Rewriters that ask a text model: how answers are read, and an endpoint that answers, fails and talks nonsense."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from counterfoil.core.errors import BadPart
from counterfoil.parts import registry
from counterfoil.parts.contracts import Rewriter, RewriteRequest
from counterfoil.parts.language.edits import EditChecker, check_proposals
from counterfoil.parts.language.prompted_rewriter import (
    OpenAiOptions,
    PromptedRewriter,
    PromptStyle,
    openai_rewriter,
    read_numbered,
)
from counterfoil.parts.language.text_models import Completion
from tests.parts.endpoint import reply

REQUEST = RewriteRequest("a photo of a dog on a sofa", "subject")
KEY = "sk-very-secret"


class Server(ThreadingHTTPServer):
    """Gives its answers in turn, the last one from then on: a body, or a status."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: list[Any] = [reply("1. a photo of a cat on a sofa")]
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def rewriter(self, **options: Any) -> PromptedRewriter:
        return openai_rewriter(
            "tiny", OpenAiOptions(**{"base_url": self.url, "backoff": 0.0, "retries": 2, "parallel": 1, **options})
        )


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.append({"path": self.path, **json.loads(body)})
        self.server.keys.append(self.headers.get("Authorization"))
        answer = self.server.answers.pop(0) if len(self.server.answers) > 1 else self.server.answers[0]
        status, content = (
            (answer, f"wrong: {self.headers.get('Authorization')}".encode()) if isinstance(answer, int) else (200, answer)
        )
        content = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    threading.Thread(target=made.serve_forever, args=(0.02,), daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


def test_captions_come_back(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    rewriter = server.rewriter()
    found = rewriter.rewrite([REQUEST])[0]
    assert found.captions == ("a photo of a cat on a sofa",)
    assert server.keys == [f"Bearer {KEY}"]
    assert server.asked[0]["path"] == "/v1/chat/completions"
    assert server.asked[0]["model"] == "tiny"
    assert REQUEST.caption in server.asked[0]["messages"][0]["content"]
    assert isinstance(rewriter, Rewriter)


def test_the_same_request_is_asked_with_the_same_seed(server: Server) -> None:
    server.rewriter().rewrite([REQUEST, REQUEST, RewriteRequest(REQUEST.caption, "subject", 1)])
    one, same, other = (asked["seed"] for asked in server.asked)
    assert one == same != other


def test_a_stumbling_endpoint_is_tried_again(server: Server) -> None:
    server.answers = [503, 429, reply("1. a photo of a cat on a sofa")]
    assert server.rewriter().rewrite([REQUEST])[0].captions
    assert len(server.asked) == 3


def test_an_endpoint_that_is_down_is_counted_and_no_longer_waited_for(server: Server) -> None:
    server.answers = [500]
    found = check_proposals(server.rewriter(), EditChecker.build(), [REQUEST] * 6, ["sofa"] * 6)
    assert [answer.rejections[0].reason for answer in found] == ["endpoint"] * 6
    assert len(server.asked) == 3 * 3 + 3  # three requests with patience, three without


def test_an_endpoint_that_is_gone_is_counted(server: Server) -> None:
    gone = openai_rewriter("tiny", OpenAiOptions(base_url="http://127.0.0.1:9/v1", retries=1, backoff=0.0))
    assert gone.rewrite([REQUEST])[0].rejections[0].reason == "endpoint"


def test_a_wrong_key_is_not_tried_again_and_never_shown(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    server.answers = [401]
    rewriter = server.rewriter()
    rejection = rewriter.rewrite([REQUEST])[0].rejections[0]
    assert len(server.asked) == 1
    assert "401" in rejection.detail
    assert KEY not in rejection.detail + repr(rewriter.model) + str(rewriter.provenance())


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (reply("I'm sorry, I can't help with that."), "refusal"),
        (reply(None, message={"role": "assistant", "content": None, "refusal": "no"}), "refusal"),
        (reply("", finish_reason="content_filter"), "refusal"),
        (reply("the the the the the"), "repetitive"),
        (reply("Here is a poem about captions and what they mean to us"), "nonsense"),
        (reply(None), "nonsense"),
        ({"unexpected": True}, "endpoint"),
        ({"choices": []}, "endpoint"),
        (b"<html>", "endpoint"),
    ],
)
def test_useless_answers_have_their_reason(server: Server, answer: Any, reason: str) -> None:
    server.answers = [answer]
    found = server.rewriter(retries=0).rewrite([REQUEST])[0]
    assert not found.captions
    assert [rejection.reason for rejection in found.rejections] == [reason]


def test_several_requests_at_a_time_keep_their_order(server: Server) -> None:
    requests = [RewriteRequest(f"a photo of a dog on sofa {number}", "subject", number) for number in range(8)]
    found = server.rewriter(parallel=4).rewrite(requests)
    assert len(found) == 8
    assert all(answer.captions for answer in found)


def test_openai_itself_needs_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(BadPart, match="set the environment variable OPENAI_API_KEY"):
        registry.create("rewriter", "openai:gpt-4o-mini")
    with pytest.raises(BadPart, match="name a model"):
        openai_rewriter("", OpenAiOptions())
    with pytest.raises(BadPart, match="take the password out"):
        openai_rewriter("tiny", OpenAiOptions(base_url="http://me:secret@host/v1"))


def test_numbered_lines_are_captions() -> None:
    answer = (
        'Sure! Here they are:\n\n1. "A cat on a sofa."\n2) **a horse on a sofa**\n- a fox on a sofa\n4. a pig on a sofa\nEnjoy!'
    )
    found = read_numbered(Completion(answer), "subject", proposals=3)
    assert found.captions == ("A cat on a sofa", "a horse on a sofa", "a fox on a sofa")
    assert not found.rejections


def test_thoughts_and_fences_are_left_out() -> None:
    answer = "<think>1. what now?</think>\n```text\n1. a cat on a sofa\n```"
    assert read_numbered(Completion(answer), "subject", proposals=5).captions == ("a cat on a sofa",)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("", "nonsense"),
        ("I can't help with that.", "refusal"),
        ("the the the the", "repetitive"),
        ("A caption is a text about an image and has several parts", "nonsense"),
    ],
)
def test_an_answer_without_a_list_is_one_rejection(answer: str, reason: str) -> None:
    found = read_numbered(Completion(answer), "subject", proposals=5)
    assert not found.captions
    assert [rejection.reason for rejection in found.rejections] == [reason]


def test_half_a_caption_is_not_used() -> None:
    found = read_numbered(Completion("1. a cat on a sofa\n2. a horse on", cut_off=True), "subject", proposals=5)
    assert found.captions == ("a cat on a sofa",)
    assert "cut off" in found.rejections[0].detail


def test_numbers_within_bullets_are_no_part_of_a_caption() -> None:
    found = read_numbered(Completion("- 1. a cat on a sofa\n2. 2. a fox on a sofa"), "subject", proposals=5)
    assert found.captions == ("a cat on a sofa", "a fox on a sofa")


def test_a_template_needs_its_two_places() -> None:
    with pytest.raises(BadPart, match=r"its template has \{factor\} and"):
        PromptStyle("mine", template="change {factor}")
