from __future__ import annotations

import pytest
import torch

from counterfoil.parts.editors import attention as words
from counterfoil.parts.editors.attention import Exchange, align

LENGTH = 16


def encode(text: str) -> list[int]:
    """Two tokens for words of more than five letters, as a byte-pair tokenizer would have it."""
    return [token for word in text.split() for token in ([len(word)] if len(word) <= 5 else [len(word), 0])]


def test_shared_words_correspond_and_exchanged_ones_are_named() -> None:
    found = align("a red boot on grass", "a checkered boot on grass", encode)
    assert found.exchanges == (Exchange(range(2, 3), range(2, 4)),)
    assert found.kept == ((0, 0), (1, 1), (3, 4), (4, 5), (5, 6), (6, 7))
    assert found.lengths == (7, 8)


def test_insertions_and_deletions_leave_one_side_empty() -> None:
    added = align("a boot", "a boot in fog", encode).exchanges
    assert added == (Exchange(range(3, 3), range(3, 5)),)
    assert align("a boot in fog", "a boot", encode).exchanges == (Exchange(range(3, 5), range(3, 3)),)


@pytest.mark.parametrize(
    "edited", ["a red boot", "a checkered boot", "a boot", "a red boot in fog", "one two three four five six"]
)
@pytest.mark.parametrize("word_map", [words.replacement, words.refinement])
def test_every_edited_token_gets_its_attention_from_somewhere(edited: str, word_map) -> None:  # type: ignore[no-untyped-def]
    source, own = word_map(align("a red boot", edited, encode), LENGTH)
    assert source.shape == (LENGTH, LENGTH) and own.shape == (LENGTH,)
    assert (source >= 0).all() and ((source.sum(0) + own) > 0).all()


def test_a_swap_hands_over_all_of_the_old_phrases_attention() -> None:
    source, own = words.replacement(align("a red boot", "a checkered boot", encode), LENGTH)
    torch.testing.assert_close(source[2], torch.tensor([0.0, 0, 0.5, 0.5] + [0] * 12))  # red → check, ered
    assert own.sum() == 0


def test_refinement_lets_new_words_look_for_themselves() -> None:
    source, own = words.refinement(align("a red boot", "a checkered boot", encode), LENGTH)
    assert own.tolist() == [0, 0, 1, 1] + [0] * 12
    assert source[:, 2:4].sum() == 0 and source[3, 4] == 1  # boot stays boot, one place on


def test_the_same_caption_maps_to_itself() -> None:
    for word_map in (words.replacement, words.refinement):
        source, own = word_map(align("a red boot", "a red boot", encode), LENGTH)
        assert torch.equal(source, torch.eye(LENGTH)) and own.sum() == 0


def test_changed_tokens_are_marked_on_both_sides() -> None:
    went, came = words.changed_tokens(align("a red boot", "a checkered boot", encode), LENGTH)
    assert went.nonzero().flatten().tolist() == [2] and came.nonzero().flatten().tolist() == [2, 3]
