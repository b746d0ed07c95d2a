"""Turns pairs into what a language model is trained on: a prompt as the rewriter will write it, and the answer wanted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from counterfoil.core.errors import BadData
from counterfoil.parts.language import lexicon as lexicons
from counterfoil.parts.language.difference import compare
from counterfoil.parts.language.grammar import read
from counterfoil.parts.language.pairs import Pair, grouped
from counterfoil.parts.language.prompting import Style

HIDDEN = -100  # the label of tokens that are not to be predicted
MOST_EDITS = 10  # in one numbered answer


@dataclass(frozen=True)
class Example:
    """Tokens and, of the same length, the tokens to predict, with the prompt hidden."""

    tokens: tuple[int, ...]
    wanted: tuple[int, ...]


def examples(pairs: Sequence[Pair], style: Style, tokenizer: Any, most_tokens: int) -> list[Example]:
    """One example a pair, or one a caption and factor where answers are numbered lists."""
    texts: list[tuple[str, str]] = []
    if style.numbered:
        for group in grouped(pairs):
            for start in range(0, len(group), MOST_EDITS):
                some = [pair.edit for pair in group[start : start + MOST_EDITS]]
                prompt = style.prompt(group[0].caption, group[0].factor, len(some), tokenizer)
                texts.append((prompt, style.answer(some)))
    else:
        for pair in pairs:
            texts.append((style.prompt(pair.caption, _word(pair, style), 1, tokenizer), style.answer([pair.edit])))
    made = [_example(prompt, answer, tokenizer) for prompt, answer in texts]
    kept = [example for example in made if len(example.tokens) <= most_tokens]
    if not kept:
        raise BadData(f"none of {len(made)} examples fits into {most_tokens} tokens; give --most-tokens, or shorter captions")
    return kept


def _example(prompt: str, answer: str, tokenizer: Any) -> Example:
    templated = bool(getattr(tokenizer, "chat_template", None))
    before = list(tokenizer(prompt, add_special_tokens=not templated, verbose=False).input_ids)
    after = [*tokenizer(answer, add_special_tokens=False, verbose=False).input_ids, tokenizer.eos_token_id]
    return Example((*before, *after), (*[HIDDEN] * len(before), *after))


def _word(pair: Pair, style: Style) -> str:
    """The model's own word for what a pair changes; of several, the one that the two captions differ in."""
    words = style.words.get(pair.factor, (pair.factor,))
    if len(words) == 1:
        return words[0]
    kinds = lexicons.load("wardrobe").kinds
    difference = compare(*(read(text, lexicons.load("wardrobe")) for text in (pair.caption, pair.edit)))
    said = [kinds.get(word.text, "") for change in difference.changes for word in change.saying]
    return next((kind for kind in said if kind in words), words[0])
