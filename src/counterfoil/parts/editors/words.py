"""Which words of two captions correspond, in tokens: what prompt-to-prompt needs to carry attention from one to the other.

Captions are compared word by word; a word's tokens go with it. Tokens that both captions share correspond one to one. A
phrase that was exchanged for another corresponds as a whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from difflib import SequenceMatcher

import torch
from torch import Tensor

Encode = Callable[[str], list[int]]
"""A word's or text's tokens, without those for start and end."""


@dataclass(frozen=True)
class Exchange:
    """A phrase of the caption and what stands in its place; one of the two may be empty. Positions are tokens."""

    before: range
    after: range


@dataclass(frozen=True)
class Alignment:
    """How the tokens of an edited caption come from those of the caption."""

    kept: tuple[tuple[int, int], ...]  # positions of the same token, before and after
    exchanges: tuple[Exchange, ...]
    lengths: tuple[int, int]  # tokens of each text, start and end included


def align(caption: str, edited: str, encode: Encode) -> Alignment:
    """The alignment of two captions; position 0 is the start token, the one after the last word the end token."""
    spans = _spans(caption, encode), _spans(edited, encode)
    kept, exchanges = [(0, 0)], []
    for what, i1, i2, j1, j2 in SequenceMatcher(a=caption.split(), b=edited.split(), autojunk=False).get_opcodes():
        before, after = _covered(spans[0], i1, i2), _covered(spans[1], j1, j2)
        if what == "equal":
            kept += zip(before, after, strict=True)
        else:
            exchanges.append(Exchange(before, after))
    ends = spans[0][-1].stop, spans[1][-1].stop
    return Alignment((*kept, ends), tuple(exchanges), (ends[0] + 1, ends[1] + 1))


def _spans(text: str, encode: Encode) -> list[range]:
    """The token positions of each word, after an empty span for the start token."""
    spans = [range(1, 1)]
    for word in text.split():
        spans.append(range(spans[-1].stop, spans[-1].stop + len(encode(word))))
    return spans


def _covered(spans: list[range], first: int, last: int) -> range:
    return range(spans[first].stop, spans[last].stop)  # the empty first span shifts words by one


def replacement(alignment: Alignment, length: int) -> tuple[Tensor, Tensor]:
    """Prompt-to-prompt's word swap: shares of the caption's attention each edited token gets, and of its own.

    The attention of a phrase that went is shared out among the tokens of the phrase that came, so that the new thing
    appears where the old one was. Words that were only added keep their own.  # (length, length), (length,)
    """
    source, own = _common(alignment, length)
    for exchange in alignment.exchanges:
        for column in exchange.after:
            if len(exchange.before):
                source[exchange.before.start : exchange.before.stop, column] = 1 / len(exchange.after)
            else:
                own[column] = 1
    return source, own


def refinement(alignment: Alignment, length: int) -> tuple[Tensor, Tensor]:
    """Prompt-to-prompt's refinement: shared tokens get the caption's attention, new ones keep their own.  # as above"""
    source, own = _common(alignment, length)
    for exchange in alignment.exchanges:
        own[exchange.after.start : exchange.after.stop] = 1
    return source, own


def changed(alignment: Alignment, length: int) -> tuple[Tensor, Tensor]:
    """1 at the tokens that went, and at those that came.  # (length,), (length,)"""
    went, came = torch.zeros(length), torch.zeros(length)
    for exchange in alignment.exchanges:
        went[exchange.before.start : exchange.before.stop] = 1
        came[exchange.after.start : exchange.after.stop] = 1
    return went, came


def _common(alignment: Alignment, length: int) -> tuple[Tensor, Tensor]:
    source, own = torch.zeros(length, length), torch.zeros(length)
    for before, after in alignment.kept:
        source[before, after] = 1
    for column in range(alignment.lengths[1], length):  # padding corresponds to padding, counted from the end token
        source[min(alignment.lengths[0] + column - alignment.lengths[1], length - 1), column] = 1
    return source, own
