"""Language models as rewriters: what they are asked, how answers are read, and that rows do not depend on each other."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from counterfoil.core.errors import BadPart, BadWeights
from counterfoil.parts import registry
from counterfoil.parts.contracts import Rewriter, RewriteRequest
from counterfoil.parts.language.checker import Checker
from counterfoil.parts.language.edits import rewrite
from counterfoil.parts.language.factors import FACTORS
from counterfoil.parts.language.generation import Sampling, Writer, Written, _Noise
from counterfoil.parts.language.llm import LlmRewriter, llm_rewriter
from counterfoil.parts.language.prompting import STYLES
from counterfoil_lab import captions as lab
from counterfoil_lab.world import sample, shipped
from tests.language.small_models import llama

pytestmark = pytest.mark.xdist_group("llm")
CAPTION = "a photo of a red striped leather boot on a beach next to a ball in fog"


@pytest.fixture(scope="module")
def small() -> LlmRewriter:
    found = registry.create("rewriter", "lab:rewriter", {"variations": 3})
    assert isinstance(found, LlmRewriter)
    return found


def test_the_labs_rewriter_changes_what_it_is_asked_to(small: LlmRewriter) -> None:
    texts = lab.captions(sample(5, garments=shipped("tune"), seed=4))
    requests = [RewriteRequest(caption, factor) for caption in texts for factor in FACTORS]
    answers = rewrite(small, Checker.build("wardrobe"), requests, [""] * len(requests))
    wrong = [rejection for answer in answers for rejection in answer.rejections if rejection.reason != "duplicate"]
    assert len(wrong) <= 0.05 * 3 * len(requests)
    assert isinstance(small, Rewriter)


def test_an_answer_depends_on_its_own_wish_alone(small: LlmRewriter) -> None:
    requests = [RewriteRequest(CAPTION, factor, seed) for seed in (1, 2) for factor in ("object", "adjective", "weather")]
    together = small.rewrite(requests)
    assert together == [small.rewrite([request])[0] for request in requests]
    assert together == small.rewrite(requests[::-1])[::-1]
    assert together[0] != together[3]  # another seed


def test_a_wrong_class_is_never_let_through(small: LlmRewriter) -> None:
    answer = rewrite(small, Checker.build("wardrobe"), [RewriteRequest(CAPTION, "subject")], ["boot"])[0]
    assert not answer.edits
    assert {rejection.reason for rejection in answer.rejections} <= {"class-word", "duplicate"}


@pytest.mark.parametrize("chat", [False, True])
def test_a_model_that_talks_nonsense_is_counted_not_crashed(tmp_path: Path, chat: bool) -> None:
    rewriter = llm_rewriter(str(llama(tmp_path, chat=chat)), most_tokens=12, tile=2)
    requests = [RewriteRequest(CAPTION, factor) for factor in FACTORS[:3]]
    for answer in rewrite(rewriter, Checker.build(), requests, [""] * 3):
        assert not answer.edits
        assert answer.rejections


def test_a_caption_that_does_not_fit_the_model_is_counted(tmp_path: Path) -> None:
    rewriter = llm_rewriter(str(llama(tmp_path, positions=64)), most_tokens=12)
    assert rewriter.rewrite([RewriteRequest(CAPTION, "object")])[0].rejections[0].reason == "caption-too-long"


class Scripted(Writer):
    """Says what it is told to say."""

    def __init__(self, *answers: Written) -> None:
        self.answers = answers
        self.tokenizer = None
        self.asked: list[str] = []

    def write(self, prompts: object, seeds: object) -> list[Written]:
        self.asked = list(prompts)  # type: ignore[call-overload]
        return list(self.answers)


def test_numbered_answers_become_proposals() -> None:
    writer = Scripted(Written("1. a photo of a cat on a sofa\n2. a photo of a fox on a sofa"), Written("I can't do that."))
    rewriter = LlmRewriter(writer, STYLES["instruct"], variations=5)
    first, second = rewriter.rewrite([RewriteRequest("a photo of a dog on a sofa", "subject"), RewriteRequest("a dog", "domain")])
    assert first.captions == ("a photo of a cat on a sofa", "a photo of a fox on a sofa")
    assert second.rejections[0].reason == "refusal"
    assert "Write 5 variations" in writer.asked[0]
    assert "a photo of a dog on a sofa" in writer.asked[0]
    assert writer.asked[0].endswith("Variations:\n")


def test_single_answers_become_proposals_each() -> None:
    writer = Scripted(Written("a cat on a sofa\nand more"), Written("cat cat cat cat"), Written("a fox on a", cut_off=True))
    found = LlmRewriter(writer, STYLES["plain"], variations=3).rewrite([RewriteRequest("a dog on a sofa", "subject")])[0]
    assert found.captions == ("a cat on a sofa",)
    assert [rejection.reason for rejection in found.rejections] == ["looping", "nonsense"]


def test_noise_samples_by_the_models_chances() -> None:
    scores = torch.tensor([[2.0, 1.0, 0.0, -30.0]]).repeat(4000, 1)
    noise = _Noise(Sampling(temperature=1.0, top_p=1.0), range(4000))
    counts = torch.bincount(noise(scores, scores).argmax(dim=1), minlength=4) / 4000  # type: ignore[arg-type]
    assert torch.allclose(counts, scores[0].softmax(dim=0), atol=0.03)
    narrow = _Noise(Sampling(temperature=1.0, top_p=0.6), range(400))
    assert set(narrow(scores[:400], scores[:400]).argmax(dim=1).tolist()) == {0}  # type: ignore[arg-type]


def test_bad_options_are_refused(tmp_path: Path) -> None:
    place = str(llama(tmp_path))
    with pytest.raises(BadPart, match="styles are instruct"):
        llm_rewriter(place, style="poetic")
    with pytest.raises(BadPart, match="temperature"):
        llm_rewriter(place, temperature=-1)
    with pytest.raises(BadPart, match="at least 1"):
        llm_rewriter(place, variations=0)
    with pytest.raises(BadWeights, match=r"has no adapter_config\.json"):
        llm_rewriter(place, adapter=str(tmp_path))
