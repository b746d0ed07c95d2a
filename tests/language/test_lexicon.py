"""Word lists: what comes with the package and what a file may hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from counterfoil.core.errors import BadPart
from counterfoil.parts.language import lexicon
from counterfoil.parts.language.lexicon import parse
from counterfoil.parts.language.lexicon_rewriter import lexicon_rewriter
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
    before = lexicon_rewriter(str(file)).provenance()
    file.write_text("background: [in a tree]\n")
    assert lexicon_rewriter(str(file)).provenance() != before
    assert "words_sha256" not in lexicon_rewriter("english").provenance()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("birds: [wren]", "no section is called 'birds'"),
        ("subject: [wren]", "subject is a mapping of groups"),
        ("background: {a: b}", "background is a list of words"),
        ("domain: [on, photo]", "domain is a list of words"),
        ("same: [a]", "same is a mapping"),
        ("[wren]", "mapping of sections"),
        ("a: [", "not YAML"),
    ],
)
def test_a_broken_file_is_refused_in_one_line(text: str, complaint: str) -> None:
    with pytest.raises(BadPart, match=complaint) as caught:
        parse(text, name="mine")
    assert "\n" not in str(caught.value)


def test_unknown_lists_are_refused() -> None:
    with pytest.raises(BadPart, match="no such word lists"):
        lexicon.load("german")
