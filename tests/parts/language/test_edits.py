"""One edit changes one factor: the checker and its reasons, and the English it reads captions with."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from counterfoil.core.errors import BadSpec
from counterfoil.parts.contracts import Caption, Proposals, RewriteRequest, Sample
from counterfoil.parts.language import lexicon
from counterfoil.parts.language.caption_checks import REASONS, ClassSimilarity, TokenLimit
from counterfoil.parts.language.edits import EditChecker
from counterfoil.parts.language.english import (
    always_plural,
    join_phrases,
    noun_forms,
    plural,
    strip_articles,
    tidy,
    tokenise,
    with_article,
)
from counterfoil.parts.language.grammar import FACTORS, parse
from counterfoil.testing import check_captioner, check_rewriter
from counterfoil_lab import captions as lab
from counterfoil_lab.world import FACTORS as LAB_FACTORS
from counterfoil_lab.world import load_shipped, sample
from tests.parts.language.small_models import LANCE

BROWN_DOG = "a photo of a brown dog sitting on a couch next to a window"
CHECKER = EditChecker.build()


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
    found = CHECKER.check(BROWN_DOG, factor, [proposal])
    assert not found.rejections
    assert (found.edits[0].removed, found.edits[0].added) == (removed, added)
    assert found.edits[0].factor == factor


@pytest.mark.parametrize(
    ("factor", "proposal", "reason"),
    [
        ("subject", BROWN_DOG, "no-op"),
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
    found = CHECKER.check(BROWN_DOG, factor, [proposal])
    assert not found.edits
    assert [rejection.reason for rejection in found.rejections] == [reason]
    assert reason in REASONS


def test_duplicates_are_dropped_after_the_first() -> None:
    twice = "a photo of a brown cat sitting on a couch next to a window"
    found = CHECKER.check(BROWN_DOG, "subject", [twice, twice.upper(), twice + "."])
    assert len(found.edits) == 1
    assert [rejection.reason for rejection in found.rejections] == ["duplicate", "duplicate"]


def test_the_class_may_not_be_edited_away() -> None:
    cat = "a photo of a brown cat sitting on a couch next to a window"
    for name in ("dog", "Dog, domestic dog", "dogs"):
        assert CHECKER.check(BROWN_DOG, "subject", [cat], name).rejections[0].reason == "class-word"
    assert CHECKER.check(BROWN_DOG, "subject", [cat], "couch").edits


def test_part_of_a_class_name_may_not_go_either() -> None:
    found = CHECKER.check("a photo of a polar bear on ice", "subject", ["a photo of a brown bear on ice"], "polar bear")
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
    assert CHECKER.check(caption, "subject", [edited]).edits or CHECKER.check(caption, "object", [edited]).edits
    for factor in ("subject", "object"):
        assert not CHECKER.check(caption, factor, [edited], name).edits


def test_captions_that_cannot_be_rewritten() -> None:
    assert CHECKER.length_fault(" .,! ") == ("caption-empty", "")
    assert (CHECKER.length_fault("a dog " * 5000) or ("",))[0] == "caption-too-long"
    assert CHECKER.length_fault(BROWN_DOG) is None


def test_the_editors_tokenizer_sets_the_limit() -> None:
    checker = EditChecker(CHECKER.lexicon, limit=TokenLimit(lambda text: len(text.split()), 13))
    found = checker.check(BROWN_DOG, "weather", [f"{BROWN_DOG} in the rain"])
    assert found.rejections[0].reason == "too-long"
    assert "17 tokens, 13" in found.rejections[0].detail


def test_an_unknown_factor_is_an_error() -> None:
    with pytest.raises(BadSpec, match="factors are subject"):
        CHECKER.check(BROWN_DOG, "mood", [])


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


@pytest.mark.parametrize(
    "phrase",
    [
        *("an hourglass", "a unicycle", "a ukulele", "an 8-ball", "an apple", "an unidentified object", "a urinal"),
        *("an urban street", "a European", "an x-ray", "a one-eyed cat", "an onerous task", "a u-turn", "an éclair"),
        *("an 11", "an 18-wheeler", "a 110", "a used car", "an usher", "an SUV", "an LED", "a ledge", "an heirloom"),
        *("a honeycomb", "a university", "an uninvited guest", "a ewe", "an oar"),
    ],
)
def test_the_article_goes_by_sound(phrase: str) -> None:
    assert with_article(phrase.partition(" ")[2]) == phrase


@pytest.mark.parametrize(
    ("one", "many"),
    [
        ("bus", "buses"),
        ("box", "boxes"),
        ("leaf", "leaves"),
        ("penknife", "penknives"),
        ("strawberry", "strawberries"),
        ("monkey", "monkeys"),
        ("loaf of bread", "loaves of bread"),
        ("computer mouse", "computer mice"),
        ("mongoose", "mongooses"),
        ("ottoman", "ottomans"),
        ("policeman", "policemen"),
        ("volcano", "volcanoes"),
        ("piano", "pianos"),
        ("trousers", "trousers"),
        ("sheep", "sheep"),
    ],
)
def test_plurals(one: str, many: str) -> None:
    assert plural(one) == many
    assert {one, many} <= noun_forms(one)
    assert one in noun_forms(many)


def test_some_nouns_take_no_article() -> None:
    assert always_plural("trousers")
    assert not always_plural("sheep")


def test_tokens_keep_their_places() -> None:
    text = "A t-shirt, next to the dog’s bed."
    tokens = tokenise(text)
    assert [token.text for token in tokens] == ["a", "t-shirt", ",", "next", "to", "the", "dog's", "bed", "."]
    assert [text[token.start : token.end] for token in tokens][1] == "t-shirt"
    joined = join_phrases(tokens, frozenset({"next to"}), 2)
    assert [token.text for token in joined][3] == "next to"
    assert text[joined[3].start : joined[3].end] == "next to"


def test_texts_are_tidied() -> None:
    assert tidy(" a dog ,  asleep ") == "a dog, asleep"
    assert strip_articles(["the", "dog", "a"]) == "dog"


ENGLISH = lexicon.load("english")


def roles(caption: str) -> dict[str, list[str]]:
    parsed = parse(caption, ENGLISH)
    found: dict[str, list[str]] = {}
    for phrase in parsed.phrases:
        found.setdefault(phrase.role, []).append(parsed.words[phrase.head].text)
    return found


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        (
            "a photo of a dog sitting on a couch next to a window",
            {"domain": ["photo"], "subject": ["dog"], "object": ["couch", "window"]},
        ),
        (
            "a group of zebras grazing in a field with mountains in the background",
            {"collective": ["group"], "subject": ["zebras"], "background": ["field", "mountains", "background"]},
        ),
        (
            "a pencil sketch of a golden retriever catching a frisbee in a park on a sunny day",
            {
                "domain": ["pencil sketch"],
                "subject": ["golden retriever"],
                "object": ["frisbee"],
                "background": ["park"],
                "weather": ["day"],
            },
        ),
        ("there is a yellow fire hydrant on the side of the street", {"subject": ["fire hydrant"], "background": ["street"]}),
        ("a woman eating an orange at a wooden table", {"subject": ["woman"], "object": ["orange", "table"]}),
        ("a bride holding a rose, digital art", {"subject": ["bride"], "object": ["rose"], "domain": ["digital art"]}),
        (
            "a clock tower under a cloudy sky at sunset",
            {"subject": ["clock tower"], "weather": ["cloudy sky"], "background": ["sunset"]},
        ),
        ("A bus is driving down a city street.", {"subject": ["bus"], "background": ["city street"]}),
        ("", {}),
        ("?!", {}),
    ],
)
def test_phrases_have_their_roles(caption: str, expected: dict[str, list[str]]) -> None:
    assert roles(caption) == expected


def test_a_words_place_decides_what_its_change_is_about() -> None:
    words = {word.text: word for word in parse("a black dog on a snowy mountain next to a wooden bench", ENGLISH).words}
    assert words["black"].admits == {"adjective"}
    assert words["dog"].admits == {"subject"}
    assert words["snowy"].admits == {"weather", "adjective", "background"}
    assert words["mountain"].admits == {"background"}
    assert words["bench"].admits == {"object"}
    assert not words["next to"].has_meaning


def test_verbs_are_about_no_factor() -> None:
    sitting = parse("a dog sitting on a bench", ENGLISH).words[2]
    assert sitting.text == "sitting"
    assert sitting.has_meaning
    assert sitting.admits == frozenset()


def test_words_that_no_list_has_get_what_their_place_allows() -> None:
    words = {word.text: word for word in parse("a quokka in a yurt holding a theremin", ENGLISH).words}
    assert words["quokka"].admits == {"subject"}
    assert words["yurt"].admits == {"object", "background"}
    assert words["theremin"].admits == {"object"}
