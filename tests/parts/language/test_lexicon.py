"""Word lists, and the rewriter that proposes from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from counterfoil.core.errors import BadPart, BadSpec, UsageError
from counterfoil.parts import registry
from counterfoil.parts.contracts import RewriteRequest
from counterfoil.parts.language import lexicon
from counterfoil.parts.language.edits import EditChecker, check_proposals
from counterfoil.parts.language.grammar import FACTORS
from counterfoil.parts.language.lexicon import parse
from counterfoil.parts.language.lexicon_rewriter import LexiconOptions, LexiconRewriter, lexicon_rewriter
from counterfoil_lab import captions as lab
from counterfoil_lab import world
from counterfoil_lab.world import load_shipped, sample
from tests.parts.language.small_models import LANCE


def test_english_has_every_section_and_no_word_twice_in_a_group() -> None:
    english = lexicon.load("english")
    assert len(english.groups) > 500
    assert {"colour", "material", "size"} <= set(english.adjective)
    assert english.groups["sofa"] == tuple(word for word in english.groups["couch"] if word != "couch")
    assert english.singular("zebras") == "zebra"
    assert english.singular("theremins") is None


def test_the_labs_lists_are_its_vocabulary() -> None:
    wardrobe = lexicon.load("wardrobe")
    assert wardrobe.subject["garments"] == world.FACTORS["garment"]
    assert wardrobe.adjective["colour"] == world.FACTORS["colour"]
    assert len(wardrobe.background) == len(world.FACTORS["background"])


def test_lists_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "birds.yaml"
    file.write_text("subject: {birds: [Great  Tit, wren]}\nbackground: [in a hedge]\n")
    found = lexicon.load(str(file))
    assert found.groups["wren"] == ("great tit", "wren")
    assert "hedge" in found.surroundings


def test_lists_of_a_file_that_changed_are_told_from_what_it_had(tmp_path: Path) -> None:
    file = tmp_path / "birds.yaml"
    file.write_text("background: [in a hedge]\n")
    before = LexiconRewriter(lexicon.load(str(file))).provenance()
    file.write_text("background: [in a tree]\n")
    assert LexiconRewriter(lexicon.load(str(file))).provenance() != before
    assert "words_sha256" not in LexiconRewriter(lexicon.english()).provenance()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("birds: [wren]", "no section is called 'birds'"),
        ("subject: [wren]", "subject is a mapping of groups"),
        ("background: {a: b}", "background is a list of words"),
        ("domain: [on, photo]", "domain is a list of words"),
        ("same: [a]", "same is a mapping"),
        ("same: {shrew: mouse}\nsubject: {animals: [dog, cat]}", "same reads 'shrew' as 'mouse', which no group"),
        ("[wren]", "mapping of sections"),
        ("a: [", "not YAML"),
    ],
)
def test_a_broken_file_is_refused_in_one_line(text: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint) as caught:
        parse(text, name="mine")
    assert "\n" not in str(caught.value)


def test_every_proposed_entry_is_short_and_every_other_name_leads_to_a_group() -> None:
    english = lexicon.english()
    listed = [
        word for groups in (english.subject, english.object, english.adjective) for words in groups.values() for word in words
    ]
    assert [word for word in listed if len(word.split()) > 3] == []
    assert {"tennis player", "baseball player", "soccer player", "wetsuit", "potted plant"} <= set(listed)
    for word in ("player", "plant", "batter", "toy"):
        assert len(english.groups[word]) > 1, word


@pytest.mark.parametrize("content", [b"\x00\xff\xfe", b"a: " + b"[" * 500])
def test_a_file_that_is_no_word_list_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "words.yaml"
    file.write_bytes(content)
    with pytest.raises(UsageError, match=r"words\.yaml: (?:cannot be read \(not a text in UTF-8\)|not YAML)") as caught:
        EditChecker.build(str(file))
    assert "\n" not in str(caught.value)


NATURAL = """a photo of a dog sitting on a couch next to a window
a man riding a wave on top of a surfboard
a black and white photo of a small, fluffy cat sleeping in a white bathroom sink
two people standing on a snowy mountain slope with skis
a group of zebras grazing in a field with mountains in the background
there is a yellow fire hydrant on the side of the street
a woman and a child eating an orange at a wooden table
A bus is driving down a city street at night.
an old train traveling down the tracks near a forest
a close up of a pizza with cheese and vegetables""".splitlines()


def rewriter_of(words: str = "", **options: Any) -> LexiconRewriter:
    return lexicon_rewriter(words, LexiconOptions(**options))


def propose(caption: str, factor: str) -> tuple[str, ...]:
    rewriter = rewriter_of(proposals=400)
    return rewriter.rewrite([RewriteRequest(caption, factor)])[0].captions


@pytest.mark.parametrize("caption", NATURAL)
def test_natural_captions_get_edits_of_every_factor_that_hold(caption: str) -> None:
    rewriter = rewriter_of(proposals=8)
    requests = [RewriteRequest(caption, factor, 3) for factor in FACTORS]
    for request, answer in zip(
        requests, check_proposals(rewriter, EditChecker.build(), requests, [""] * len(FACTORS)), strict=True
    ):
        assert len(answer.edits) >= 4, (request, answer.rejections)
        assert not answer.rejections


def test_in_the_lab_every_proposal_is_a_sentence_of_its_grammar_with_one_value_changed() -> None:
    rewriter = rewriter_of("wardrobe", proposals=12)
    for caption in lab.captions(sample(10, garments=load_shipped("tune"), seed=8)):
        before = lab.parse(caption)
        assert before is not None
        for factor in FACTORS:
            for edited in rewriter.rewrite([RewriteRequest(caption, factor)])[0].captions:
                after = lab.parse(edited)
                assert after is not None, edited
                changed = [name for name in before if before[name] != after[name]]
                assert [LANCE.get(name, name) for name in changed] == [factor], (caption, edited)


def test_the_lab_can_leave_out_what_it_says_by_silence() -> None:
    caption = "a photo of a red striped leather boot on a beach next to a ball in fog"
    rewriter = rewriter_of("wardrobe", proposals=100)
    silent = {"object": "next to a ball ", "weather": " in fog", "adjective": "striped "}
    for factor, words in silent.items():
        assert caption.replace(words, "") in rewriter.rewrite([RewriteRequest(caption, factor)])[0].captions


def test_articles_and_numbers_fit() -> None:
    assert "an eagle on a branch" in propose("a bird on a branch", "subject")
    assert "three foxes in the snow" in propose("three wolves in the snow", "subject")
    assert "a photo of an orange bag" in propose("a photo of a red bag", "adjective")
    assert all(" a o" not in edited for edited in propose("an orange car in a city", "adjective"))


def test_a_sentence_becomes_a_phrase_after_what_the_picture_is() -> None:
    assert "a tattoo of a bus driving home" in propose("A bus is driving home", "domain")
    assert "a tattoo of a bus on a road" in propose("there is a bus on a road", "domain")


def test_compound_nouns_are_replaced_whole() -> None:
    assert all("howler" not in edited for edited in propose("the howler monkey in the jungle", "subject"))


def test_the_same_request_gets_the_same_answer_and_another_seed_another() -> None:
    rewriter = rewriter_of()
    one, same, other = (rewriter.rewrite([RewriteRequest(NATURAL[0], "object", seed)])[0] for seed in (1, 1, 2))
    assert one == same != other
    assert rewriter.rewrite([RewriteRequest(NATURAL[1], "weather"), RewriteRequest(NATURAL[0], "object", 1)])[1] == one


def test_kinds_of_adjectives_can_be_chosen() -> None:
    caption = "a photo of a red striped leather boot on a beach"
    rewriter = rewriter_of("wardrobe", proposals=50, kinds=["material"])
    assert all("red striped" in edited for edited in rewriter.rewrite([RewriteRequest(caption, "adjective")])[0].captions)
    with pytest.raises(BadPart, match="kinds are colour, texture, material"):
        rewriter_of("wardrobe", kinds=["mood"])


def test_nothing_to_say_is_said() -> None:
    answer = rewriter_of().rewrite([RewriteRequest("quokka", "subject")])[0]
    assert answer.rejections[0].reason == "no-proposal"


def test_the_proposals_do_not_depend_on_what_is_installed() -> None:
    assert "wordnet" not in rewriter_of().provenance()
    with pytest.raises(BadSpec, match="its options are proposals, kinds"):
        registry.create("rewriter", "lexicon:", {"wordnet": "/usr/share/wordnet"})


def test_words_of_sports_are_proposed_one_at_a_time() -> None:
    found = propose("a photo of a skier on a mountain", "subject")
    assert "a photo of a tennis player on a mountain" in found
    assert not [edit for edit in found if "baseball soccer" in edit]
    assert propose("a photo of a player on a field", "subject")
