"""The lab's tokenizer: one token a word of the wardrobe's grammar, saved as any transformers tokenizer is.

All lab models that read or write text share it. A word outside the closed vocabulary becomes the unknown token, which the
models met in training, so that such a word is passed over rather than misread.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers, processors
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from counterfoil.lab.captions import COMPANIONS, MEDIUMS, PLACES, SKIES
from counterfoil.lab.prompts import ARROW, GENERIC, SPOKEN, THING
from counterfoil.lab.vocabulary import FACTORS

PAD: Final = "<|pad|>"
UNKNOWN: Final = "<|unknown|>"
START: Final = "<|startoftext|>"
END: Final = "<|endoftext|>"
SPECIAL: Final = (PAD, UNKNOWN, START, END)
LENGTH: Final = 32
"""Tokens of a text with its start and end; the longest caption of the grammar has 26."""


@cache
def words() -> tuple[str, ...]:
    """Every token, special ones first; a token's place is its number."""
    phrases = [*GENERIC, THING, *SPOKEN.values(), "a an the of pair with", f": {ARROW}", *FACTORS]
    for table in (MEDIUMS, PLACES, COMPANIONS, SKIES):
        phrases += table.values()
    for values in FACTORS.values():
        phrases += values
    return SPECIAL + tuple(sorted({word for phrase in phrases for word in phrase.split()}))


def caption_tokenizer() -> PreTrainedTokenizerFast:
    """For models that read or write captions: every text gets its start and its end."""
    return _tokenizer(f"{START} $A {END}", length=LENGTH)


def prompt_tokenizer() -> PreTrainedTokenizerFast:
    """For the rewriter: a text gets its start only, since the model is to go on with it."""
    return _tokenizer(f"{START} $A", length=2 * LENGTH)


def _tokenizer(template: str, *, length: int) -> PreTrainedTokenizerFast:
    numbers = {word: number for number, word in enumerate(words())}
    tokenizer = Tokenizer(WordLevel(numbers, unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    # Words with their hyphens ("t-shirt") and the rewriter's two signs; other punctuation is left out.
    kept = Regex(r"[\w-]+|:|=>")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(kept, behavior="removed", invert=True)
    ends = [(token, numbers[token]) for token in (START, END)]
    tokenizer.post_processor = processors.TemplateProcessing(single=template, special_tokens=ends)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=length,
        bos_token=START,
        eos_token=END,
        pad_token=PAD,
        unk_token=UNKNOWN,
        clean_up_tokenization_spaces=False,
    )
