"""Tokens, plurals and articles of English."""

from __future__ import annotations

import pytest

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


def test_forms_are_of_the_same_word() -> None:
    assert noun_forms("tub") == {"tub", "tubs"}
    assert noun_forms("bus") == {"bus", "buses"}


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
