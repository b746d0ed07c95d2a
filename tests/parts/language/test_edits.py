"""One edit changes one factor: what the checker keeps, and the reason it gives for each proposal it does not."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from counterfoil.core.errors import BadSpec
from counterfoil.parts.contracts import Caption, Proposals, RewriteRequest, Sample
from counterfoil.parts.language.caption_checks import REASONS, ClassSimilarity, TokenLimit
from counterfoil.parts.language.edits import EditChecker
from counterfoil.parts.language.grammar import FACTORS
from counterfoil.testing import check_captioner, check_rewriter
from counterfoil_lab import captions as lab
from counterfoil_lab.world import FACTORS as LAB_FACTORS
from counterfoil_lab.world import load_shipped, sample
from tests.parts.language.small_models import LANCE

CAPTION = "a photo of a brown dog sitting on a couch next to a window"
ENGLISH = EditChecker.build()


@pytest.mark.parametrize(
    ("factor", "proposal", "removed", "added"),
    [
        ("subject", "a photo of a brown cat sitting on a couch next to a window", "dog", "cat"),
        ("object", "A photo of a brown dog sitting on an armchair next to a window.", "couch", "armchair"),
        ("object", "a photo of a brown dog sitting on a couch", "next to a window", ""),
        ("background", "a photo of a brown dog sitting on a couch next to a window in a castle", "", "in a castle"),
        ("adjective", "a photo of an orange dog sitting on a couch next to a window", "brown", "orange"),
        ("adjective", "a photo of a brown dog sitting on a velvet couch next to a window", "", "velvet"),
        ("domain", "an oil painting of a brown dog sitting on a couch next to a window", "photo", "oil painting"),
        ("weather", "a photo of a brown dog sitting on a couch next to a window in the rain", "", "in the rain"),
        ("weather", "a photo of a brown dog sitting on a couch next to a window on a foggy day", "", "on a foggy day"),
    ],
)
def test_an_edit_of_the_asked_factor_is_kept(factor: str, proposal: str, removed: str, added: str) -> None:
    found = ENGLISH.check(CAPTION, factor, [proposal])
    assert not found.rejections
    assert (found.edits[0].removed, found.edits[0].added) == (removed, added)
    assert found.edits[0].factor == factor


@pytest.mark.parametrize(
    ("factor", "proposal", "reason"),
    [
        ("subject", CAPTION, "no-op"),
        ("subject", "A photo of an brown dog, sitting on a couch next to a window!", "no-op"),
        ("object", "a photo of a brown dog sitting under a couch next to a window", "no-op"),
        ("subject", "a photo of a white cat sitting on a couch next to a window", "several-factors"),
        ("subject", "a photo of a brown cat sitting on a couch next to a door", "several-factors"),
        ("object", "a photo of a brown dog sitting on a bench next to a door", "several-factors"),
        ("background", "a photo of a brown cat sitting on a couch next to a window", "wrong-factor"),
        ("background", "a photo of a brown dog jumping on a couch next to a window", "wrong-factor"),
        ("domain", "two sleepy children are playing chess with their uncle on the old boat", "too-different"),
        ("subject", "I'm sorry, but I can't help with that request.", "refusal"),
        ("subject", "a cat a cat a cat a cat", "repetitive"),
        ("subject", "1.) <unk> {caption}", "nonsense"),
        ("subject", "", "nonsense"),
        ("subject", "a photo of " + "a very large " * 60 + "dog", "repetitive"),
        ("subject", "a photo of " + " ".join(f"{a}{b}og" for a in "bcdfghjklmnp" for b in "aeiouybcdfgh"), "too-long"),
    ],
)
def test_every_rejection_has_its_reason(factor: str, proposal: str, reason: str) -> None:
    found = ENGLISH.check(CAPTION, factor, [proposal])
    assert not found.edits
    assert [rejection.reason for rejection in found.rejections] == [reason]
    assert reason in REASONS


def test_duplicates_are_dropped_after_the_first() -> None:
    twice = "a photo of a brown cat sitting on a couch next to a window"
    found = ENGLISH.check(CAPTION, "subject", [twice, twice.upper(), twice + "."])
    assert len(found.edits) == 1
    assert [rejection.reason for rejection in found.rejections] == ["duplicate", "duplicate"]


def test_the_class_may_not_be_edited_away() -> None:
    cat = "a photo of a brown cat sitting on a couch next to a window"
    for name in ("dog", "Dog, domestic dog", "dogs"):
        assert ENGLISH.check(CAPTION, "subject", [cat], name).rejections[0].reason == "class-word"
    assert ENGLISH.check(CAPTION, "subject", [cat], "couch").edits


def test_part_of_a_class_name_may_not_go_either() -> None:
    found = ENGLISH.check("a photo of a polar bear on ice", "subject", ["a photo of a brown bear on ice"], "polar bear")
    assert found.rejections[0].reason == "class-word"


class Synonyms:
    """An encoder for which hound and dog are near, and everything else is far."""

    axes = ("dog", "cat", "couch", "red")

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        rows = torch.zeros(len(texts), len(self.axes) + 1)
        for row, text in zip(rows, texts, strict=True):
            row[self.axes.index("dog" if text == "hound" else text) if text in (*self.axes, "hound") else -1] = 2.0
        return rows


def test_words_near_the_class_may_not_be_taken_out_but_insertions_may() -> None:
    checker = EditChecker.build(encoder=Synonyms(), threshold=0.5)
    near = checker.check("a hound on a couch", "subject", ["a cat on a couch"], "dog")
    assert near.rejections[0].reason == "class-similar"  # told apart in the funnel from words that name the class
    assert "1.00, class_similarity 0.5" in near.rejections[0].detail
    assert checker.check("a hound on a couch", "subject", ["a cat on a couch"], "boat").edits
    assert checker.check("a hound on a couch", "adjective", ["a red hound on a couch"], "red").edits


def test_similarity_is_the_cosine() -> None:
    assert ClassSimilarity(Synonyms()).between("hound", "dog, canine") == pytest.approx(1.0)
    assert ClassSimilarity(Synonyms()).between("cat", "dog") == pytest.approx(0.0)


@pytest.mark.parametrize(("caption", "name"), [("two buses on a street", "bus"), ("a bowl of strawberries", "strawberry")])
def test_a_class_in_the_plural_may_not_be_edited_away(caption: str, name: str) -> None:
    edited = caption.replace("buses", "trucks").replace("strawberries", "apples")
    assert ENGLISH.check(caption, "subject", [edited]).edits or ENGLISH.check(caption, "object", [edited]).edits
    for factor in ("subject", "object"):
        assert not ENGLISH.check(caption, factor, [edited], name).edits


def test_captions_that_cannot_be_rewritten() -> None:
    assert ENGLISH.length_fault(" .,! ") == ("caption-empty", "")
    assert (ENGLISH.length_fault("a dog " * 5000) or ("",))[0] == "caption-too-long"
    assert ENGLISH.length_fault(CAPTION) is None


def test_the_editors_tokenizer_sets_the_limit() -> None:
    checker = EditChecker(ENGLISH.lexicon, limit=TokenLimit(lambda text: len(text.split()), 13))
    found = checker.check(CAPTION, "weather", [f"{CAPTION} in the rain"])
    assert found.rejections[0].reason == "too-long"
    assert "17 tokens, 13" in found.rejections[0].detail


def test_an_unknown_factor_is_an_error() -> None:
    with pytest.raises(BadSpec, match="factors are subject"):
        ENGLISH.check(CAPTION, "mood", [])


def test_in_the_lab_every_single_change_is_told_from_every_other() -> None:
    checker = EditChecker.build("wardrobe")
    drawn = torch.Generator().manual_seed(1)
    for caption in lab.captions(sample(12, garments=load_shipped("tune"), seed=5)):
        values = lab.parse(caption)
        assert values is not None
        for name, words in LAB_FACTORS.items():
            others = [word for word in words if word != values[name]]
            edited = lab.replace(caption, name, others[int(torch.randint(len(others), (), generator=drawn))])
            kept = [factor for factor in FACTORS if checker.check(caption, factor, [edited]).edits]
            assert kept == [LANCE.get(name, name)], (caption, edited)


def test_in_the_lab_two_changes_are_always_found_out() -> None:
    checker = EditChecker.build("wardrobe")
    names = list(LAB_FACTORS)
    for at, caption in enumerate(lab.captions(sample(len(names), garments=load_shipped("tune"), seed=6))):
        values = lab.parse(caption)
        assert values is not None
        for other in names[at + 1 :]:
            edited = caption
            for name in (names[at], other):
                edited = lab.replace(edited, name, next(word for word in LAB_FACTORS[name] if word != values[name]))
            assert not any(checker.check(caption, factor, [edited]).edits for factor in FACTORS), (caption, edited)


class Forgetful:
    """Breaks both contracts: answers by what it was asked before."""

    asked = 0

    def caption(self, images: Tensor, samples: list[Sample]) -> list[Caption]:
        self.asked += 1
        return [Caption(f"caption {self.asked}") for _ in samples]

    def rewrite(self, requests: list[RewriteRequest]) -> list[Proposals]:
        self.asked += 1
        return [Proposals((f"a dog {self.asked}",)) for _ in requests]


def test_the_checks_can_fail() -> None:
    with pytest.raises(AssertionError, match="own image alone"):
        check_captioner(Forgetful())
    with pytest.raises(AssertionError, match="own request alone"):
        check_rewriter(Forgetful())
    silent = Forgetful()
    silent.rewrite = lambda requests: [Proposals() for _ in requests]  # type: ignore[method-assign]
    with pytest.raises(AssertionError, match="a rejection that says why not"):
        check_rewriter(silent)
