"""Rewriters and chats that ask a language model: on this machine, at an endpoint, and how answers are read."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from counterfoil.core.errors import BadPart
from counterfoil.parts import registry
from counterfoil.parts.contracts import Rewriter, RewriteRequest
from counterfoil.parts.language.edits import EditChecker, check_proposals
from counterfoil.parts.language.grammar import FACTORS
from counterfoil.parts.language.prompted_rewriter import (
    STYLES,
    LlmOptions,
    OpenAiOptions,
    PromptedRewriter,
    PromptStyle,
    llm_rewriter,
    openai_rewriter,
    read_numbered,
)
from counterfoil.parts.language.text_models import Completion, GumbelSampling, Perplexity, Sampling
from counterfoil_lab import captions as lab
from counterfoil_lab.world import load_shipped, sample
from tests.parts.endpoint import reply, serve
from tests.parts.language.small_models import llama

pytestmark = pytest.mark.xdist_group("llm")
CAPTION = "a photo of a red striped leather boot on a beach next to a ball in fog"


@pytest.fixture(scope="module")
def small() -> PromptedRewriter:
    found = registry.create("rewriter", "lab:rewriter", {"proposals": 3})
    assert isinstance(found, PromptedRewriter)
    return found


def test_the_labs_rewriter_changes_what_it_is_asked_to(small: PromptedRewriter) -> None:
    texts = lab.captions(sample(5, garments=load_shipped("tune"), seed=4))
    requests = [RewriteRequest(caption, factor) for caption in texts for factor in FACTORS]
    answers = check_proposals(small, EditChecker.build(small.words), requests, [""] * len(requests))
    wrong = [rejection for answer in answers for rejection in answer.rejections if rejection.reason != "duplicate"]
    assert len(wrong) <= 0.05 * 3 * len(requests)
    assert isinstance(small, Rewriter)


def test_a_wrong_class_is_never_let_through(small: PromptedRewriter) -> None:
    answer = check_proposals(small, EditChecker.build(small.words), [RewriteRequest(CAPTION, "subject")], ["boot"])[0]
    assert not answer.edits
    assert {rejection.reason for rejection in answer.rejections} <= {"class-word", "duplicate"}


@pytest.mark.parametrize("chat", [False, True])
def test_a_model_that_talks_nonsense_is_counted_not_crashed(tmp_path: Path, chat: bool) -> None:
    rewriter = llm_rewriter(str(llama(tmp_path, chat=chat)), LlmOptions(max_tokens=12, batch=2))
    requests = [RewriteRequest(CAPTION, factor) for factor in FACTORS[:3]]
    for answer in check_proposals(rewriter, EditChecker.build(), requests, [""] * 3):
        assert not answer.edits
        assert answer.rejections


def test_a_caption_that_does_not_fit_the_model_is_counted(tmp_path: Path) -> None:
    rewriter = llm_rewriter(str(llama(tmp_path, positions=64)), LlmOptions(max_tokens=12))
    assert rewriter.rewrite([RewriteRequest(CAPTION, "object")])[0].rejections[0].reason == "caption-too-long"


class Scripted:
    """A text model with given answers."""

    tokenizer = None

    def __init__(self, *answers: Completion) -> None:
        self.answers = answers
        self.asked: list[str] = []

    def write(self, prompts: Sequence[str], seeds: Sequence[int]) -> list[Completion]:
        self.asked = list(prompts)
        return list(self.answers)

    def provenance(self) -> dict[str, str]:
        return {}


def test_numbered_answers_become_proposals() -> None:
    model = Scripted(Completion("1. a photo of a cat on a sofa\n2. a photo of a fox on a sofa"), Completion("I can't do that."))
    rewriter = PromptedRewriter(model, STYLES["instruct"], proposals=5)
    first, second = rewriter.rewrite([RewriteRequest("a photo of a dog on a sofa", "subject"), RewriteRequest("a dog", "domain")])
    assert first.captions == ("a photo of a cat on a sofa", "a photo of a fox on a sofa")
    assert second.rejections[0].reason == "refusal"
    assert "Write 5 variations" in model.asked[0]
    assert "a photo of a dog on a sofa" in model.asked[0]
    assert model.asked[0].endswith("Caption: a photo of a dog on a sofa")  # an endpoint has a chat template of its own


def test_single_answers_become_proposals_each() -> None:
    model = Scripted(
        Completion("a cat on a sofa\nand more"), Completion("cat cat cat cat"), Completion("a fox on a", cut_off=True)
    )
    found = PromptedRewriter(model, STYLES["plain"], proposals=3).rewrite([RewriteRequest("a dog on a sofa", "subject")])[0]
    assert found.captions == ("a cat on a sofa",)
    assert [rejection.reason for rejection in found.rejections] == ["repetitive", "nonsense"]


def test_sampling_follows_the_models_probabilities() -> None:
    scores = torch.tensor([[2.0, 1.0, 0.0, -30.0]]).repeat(4000, 1)
    sample = GumbelSampling(Sampling(temperature=1.0, top_p=1.0), range(4000))
    counts = torch.bincount(sample(scores, scores).argmax(dim=1), minlength=4) / 4000
    assert torch.allclose(counts, scores[0].softmax(dim=0), atol=0.03)
    narrow = GumbelSampling(Sampling(temperature=1.0, top_p=0.6), range(400))
    assert set(narrow(scores[:400], scores[:400]).argmax(dim=1).tolist()) == {0}


TEXTS = ["a photo of a red boot on a beach", "boot a of", "a photo of a blue wool dress in a city next to a ball in fog", ""]


def test_it_is_the_exponential_of_the_mean_surprise(tmp_path: Path) -> None:
    scorer = Perplexity(str(llama(tmp_path)))
    found = scorer.of(TEXTS)
    for text, value in zip(TEXTS[:3], found, strict=False):
        tokens = scorer.tokenizer(text).input_ids  # start token and words
        surprise = []
        for at in range(1, len(tokens)):
            with torch.no_grad():
                logits = scorer.model(input_ids=torch.tensor([tokens[:at]])).logits[0, -1]
            surprise.append(-float(logits.log_softmax(dim=-1)[tokens[at]]))
        assert value == pytest.approx(math.exp(sum(surprise) / len(surprise)), rel=1e-4)
    assert math.isnan(found[3])


def test_a_number_does_not_depend_on_its_neighbours(tmp_path: Path) -> None:
    scorer = Perplexity(str(llama(tmp_path)))
    assert scorer.of(TEXTS[:3]) == [scorer.of([text])[0] for text in TEXTS[:3]]
    assert scorer.of([]) == []


REQUEST = RewriteRequest("a photo of a dog on a sofa", "subject")
KEY = "sk-very-secret"


class Told:
    """A server that gives its answers in turn, the last one from then on: a body, or a status."""

    def __init__(self, endpoint: Any) -> None:
        self.endpoint, self.answers, self.asked = endpoint, [reply("1. a photo of a cat on a sofa")], []
        endpoint.answer = self.answer

    def answer(self, body: bytes) -> Any:
        self.asked.append(json.loads(body))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return (answer, f"wrong: {self.endpoint.tokens[-1]}".encode(), {}) if isinstance(answer, int) else answer

    def rewriter(self, **options: Any) -> PromptedRewriter:
        quick = {"base_url": self.endpoint.url.replace("/predict", "/v1"), "backoff": 0.0, "retries": 2, "parallel": 1}
        return openai_rewriter("tiny", OpenAiOptions(**{**quick, **options}))


@pytest.fixture
def server() -> Iterator[Told]:
    with serve() as endpoint:
        yield Told(endpoint)


def test_captions_come_back(server: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    rewriter = server.rewriter()
    found = rewriter.rewrite([REQUEST])[0]
    assert found.captions == ("a photo of a cat on a sofa",)
    assert (server.endpoint.tokens, server.endpoint.paths) == ([f"Bearer {KEY}"], ["/v1/chat/completions"])
    assert server.asked[0]["model"] == "tiny"
    assert REQUEST.caption in server.asked[0]["messages"][0]["content"]
    assert isinstance(rewriter, Rewriter)


def test_the_same_request_is_asked_with_the_same_seed(server: Told) -> None:
    server.rewriter().rewrite([REQUEST, REQUEST, RewriteRequest(REQUEST.caption, "subject", 1)])
    one, same, other = (asked["seed"] for asked in server.asked)
    assert one == same != other


def test_a_stumbling_endpoint_is_tried_again(server: Told) -> None:
    server.answers = [503, 429, reply("1. a photo of a cat on a sofa")]
    assert server.rewriter().rewrite([REQUEST])[0].captions
    assert len(server.asked) == 3


def test_an_endpoint_that_is_down_is_counted_and_no_longer_waited_for(server: Told) -> None:
    server.answers = [500]
    found = check_proposals(server.rewriter(), EditChecker.build(), [REQUEST] * 6, ["sofa"] * 6)
    assert [answer.rejections[0].reason for answer in found] == ["endpoint"] * 6
    assert len(server.asked) == 3 * 3 + 3  # three requests with patience, three without


def test_an_endpoint_that_is_gone_is_counted(server: Told) -> None:
    gone = openai_rewriter("tiny", OpenAiOptions(base_url="http://127.0.0.1:9/v1", retries=1, backoff=0.0))
    assert gone.rewrite([REQUEST])[0].rejections[0].reason == "endpoint"


def test_a_wrong_key_is_not_tried_again_and_never_shown(server: Told, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_useless_answers_have_their_reason(server: Told, answer: Any, reason: str) -> None:
    server.answers = [answer]
    found = server.rewriter(retries=0).rewrite([REQUEST])[0]
    assert not found.captions
    assert [rejection.reason for rejection in found.rejections] == [reason]


def test_several_requests_at_a_time_keep_their_order(server: Told) -> None:
    requests = [RewriteRequest(f"a photo of a dog on sofa {number}", "subject", number) for number in range(8)]
    found = server.rewriter(parallel=4).rewrite(requests)
    assert len(found) == 8
    assert all(answer.captions for answer in found)


def test_openai_itself_needs_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(BadPart, match="set the environment variable OPENAI_API_KEY"):
        registry.create("rewriter", "openai:gpt-4o-mini")


CAT, FOX, HORSE = "a cat on a sofa", "a fox on a sofa", "a horse on a sofa"


@pytest.mark.parametrize(
    ("answer", "captions"),
    [
        (f'Sure! Here they are:\n\n1. "{CAT}."\n2) **{HORSE}**\n- {FOX}\n4. a pig on a sofa\nEnjoy!', (CAT, HORSE, FOX)),
        (f"<think>1. what now?</think>\n```text\n1. {CAT}\n```", (CAT,)),
        (f"- 1. {CAT}\n2. 2. {FOX}", (CAT, FOX)),
    ],
)
def test_numbered_lines_are_captions_without_what_surrounds_them(answer: str, captions: tuple[str, ...]) -> None:
    found = read_numbered(Completion(answer), "subject", proposals=3)
    assert found.captions == captions and not found.rejections


def test_half_a_caption_is_not_used() -> None:
    found = read_numbered(Completion("1. a cat on a sofa\n2. a horse on", cut_off=True), "subject", proposals=5)
    assert found.captions == ("a cat on a sofa",)
    assert "cut off" in found.rejections[0].detail


def test_a_template_needs_its_two_places() -> None:
    with pytest.raises(BadPart, match=r"its template has \{factor\} and"):
        PromptStyle("mine", template="change {factor}")
