"""Captions told from refusals, loops and nonsense, and class names found in them."""

from __future__ import annotations

import pytest

from counterfoil.parts.language.caption_checks import caption_fault, names_class


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a photo of a dog on a beach", None),
        ("a sorry-looking dog and no cat", None),
        ("a man who cannot swim", None),
        ("I'm sorry, but I cannot help with that.", "refusal"),
        ("As an AI language model, I can not do this", "refusal"),
        ("Unfortunately, this is not possible", "refusal"),
        ("a dog a dog a dog", "repetitive"),
        ("very very very big dog", "repetitive"),
        ("xkcd qwrt zzgh plmk", "nonsense"),
        ("12 34 56 78", "nonsense"),
        ("dog", "nonsense"),
        ("a dog | a cat", "nonsense"),
        ("a photo of a <unk> dog", "nonsense"),
        ("a " + "d" * 40 + "og", "nonsense"),
    ],
)
def test_texts_that_are_no_captions(text: str, reason: str | None) -> None:
    found = caption_fault(text)
    assert (found[0] if found else None) == reason


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("two great white sharks", "great white shark, white shark"),
        ("a t-shirt", "T-shirt"),
        ("a dog", "dogs"),
        ("two buses", "bus"),
        ("a pile of boxes", "box"),
        ("autumn leaves", "leaf"),
        ("three knives", "knife"),
        ("strawberries", "strawberry"),
        ("loaves of bread", "loaf of bread"),
        ("computer mice", "computer mouse"),
        ("Women", "woman"),
        ("a bus", "bus"),
        ("goldfishes", "goldfish"),
    ],
)
def test_a_class_is_known_by_any_of_its_names_in_any_number(words: str, name: str) -> None:
    assert names_class(words, name)


@pytest.mark.parametrize(("words", "name"), [("a catfish", "cat"), ("tubes", "tub"), ("glasses", "grass"), ("a bush", "bus")])
def test_other_words_do_not_name_a_class(words: str, name: str) -> None:
    assert not names_class(words, name)
