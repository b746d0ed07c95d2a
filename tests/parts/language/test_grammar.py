"""Reading captions: the role of each phrase, and the factors that a change of a word may be about."""

from __future__ import annotations

import pytest

from counterfoil.parts.language import lexicon
from counterfoil.parts.language.grammar import parse

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
