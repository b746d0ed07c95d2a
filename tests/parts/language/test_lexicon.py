"""Word lists: what comes with the package and what a file may hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from counterfoil.core.errors import BadPart, UsageError
from counterfoil.parts.language import lexicon
from counterfoil.parts.language.edits import EditChecker
from counterfoil.parts.language.lexicon import parse
from counterfoil.parts.language.lexicon_rewriter import LexiconRewriter
from counterfoil_lab.world import FACTORS


def test_english_has_every_section_and_no_word_twice_in_a_group() -> None:
    english = lexicon.load("english")
    assert len(english.groups) > 500
    assert {"colour", "material", "size"} <= set(english.adjective)
    assert english.groups["sofa"] == tuple(word for word in english.groups["couch"] if word != "couch")
    assert english.singular("zebras") == "zebra"
    assert english.singular("theremins") is None


def test_the_labs_lists_are_its_vocabulary() -> None:
    wardrobe = lexicon.load("wardrobe")
    assert wardrobe.subject["garments"] == FACTORS["garment"]
    assert wardrobe.adjective["colour"] == FACTORS["colour"]
    assert len(wardrobe.background) == len(FACTORS["background"])


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


def test_unknown_lists_are_refused() -> None:
    with pytest.raises(BadPart, match="no such word lists"):
        lexicon.load("german")
