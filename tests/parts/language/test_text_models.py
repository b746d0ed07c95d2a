"""Local language models: completions, sampling, rows that do not depend on each other, and perplexity."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from counterfoil.core.errors import BadPart, BadWeights
from counterfoil.parts import registry
from counterfoil.parts.contracts import Rewriter, RewriteRequest
from counterfoil.parts.language.edits import EditChecker, check_proposals
from counterfoil.parts.language.grammar import FACTORS
from counterfoil.parts.language.prompted_rewriter import STYLES, LlmOptions, PromptedRewriter, llm_rewriter
from counterfoil.parts.language.text_models import Completion, GumbelSampling, Perplexity, Sampling
from counterfoil_lab import captions as lab
from counterfoil_lab.world import load_shipped, sample
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


def test_an_answer_depends_on_its_own_request_alone(small: PromptedRewriter) -> None:
    requests = [RewriteRequest(CAPTION, factor, seed) for seed in (1, 2) for factor in ("object", "adjective", "weather")]
    together = small.rewrite(requests)
    assert together == [small.rewrite([request])[0] for request in requests]
    assert together == small.rewrite(requests[::-1])[::-1]
    assert together[0] != together[3]  # another seed


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


def test_bad_options_are_refused(tmp_path: Path) -> None:
    place = str(llama(tmp_path))
    with pytest.raises(BadPart, match="styles are instruct"):
        llm_rewriter(place, LlmOptions(style="poetic"))
    with pytest.raises(BadPart, match="temperature"):
        LlmOptions(temperature=-1)
    with pytest.raises(BadPart, match="at least 1"):
        llm_rewriter(place, LlmOptions(proposals=0))
    with pytest.raises(BadWeights, match=r"has no adapter_config\.json"):
        llm_rewriter(place, LlmOptions(adapter=str(tmp_path)))


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
