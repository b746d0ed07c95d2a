"""Telling captions from refusals, loops and nonsense, and reading numbered answers."""

from __future__ import annotations

import pytest

from counterfoil.parts.language.numbering import parse
from counterfoil.parts.language.soundness import unsound


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a photo of a dog on a beach", None),
        ("a sorry-looking dog and no cat", None),
        ("a man who cannot swim", None),
        ("I'm sorry, but I cannot help with that.", "refusal"),
        ("As an AI language model, I can not do this", "refusal"),
        ("Unfortunately, this is not possible", "refusal"),
        ("a dog a dog a dog", "looping"),
        ("very very very big dog", "looping"),
        ("xkcd qwrt zzgh plmk", "nonsense"),
        ("12 34 56 78", "nonsense"),
        ("dog", "nonsense"),
        ("a dog | a cat", "nonsense"),
        ("a photo of a <unk> dog", "nonsense"),
        ("a " + "d" * 40 + "og", "nonsense"),
    ],
)
def test_texts_that_are_no_captions(text: str, reason: str | None) -> None:
    found = unsound(text)
    assert (found[0] if found else None) == reason


def test_numbered_lines_are_captions() -> None:
    answer = (
        'Sure! Here they are:\n\n1. "A cat on a sofa."\n2) **a horse on a sofa**\n- a fox on a sofa\n4. a pig on a sofa\nEnjoy!'
    )
    found = parse(answer, "subject", variations=3)
    assert found.captions == ("A cat on a sofa", "a horse on a sofa", "a fox on a sofa")
    assert not found.rejections


def test_thoughts_and_fences_are_left_out() -> None:
    answer = "<think>1. what now?</think>\n```text\n1. a cat on a sofa\n```"
    assert parse(answer, "subject", variations=5).captions == ("a cat on a sofa",)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("", "nonsense"),
        ("I can't help with that.", "refusal"),
        ("the the the the", "looping"),
        ("A caption is a text about a picture and has several parts", "nonsense"),
    ],
)
def test_an_answer_without_a_list_is_one_rejection(answer: str, reason: str) -> None:
    found = parse(answer, "subject", variations=5)
    assert not found.captions
    assert [rejection.reason for rejection in found.rejections] == [reason]


def test_half_a_caption_is_not_used() -> None:
    found = parse("1. a cat on a sofa\n2. a horse on", "subject", variations=5, cut_off=True)
    assert found.captions == ("a cat on a sofa",)
    assert "cut off" in found.rejections[0].detail


def test_numbers_within_bullets_are_no_part_of_a_caption() -> None:
    assert parse("- 1. a cat on a sofa\n2. 2. a fox on a sofa", "subject", variations=5).captions == (
        "a cat on a sofa",
        "a fox on a sofa",
    )
