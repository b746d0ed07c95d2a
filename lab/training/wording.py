"""The lab's tokenizer: one token a word of the wardrobe's grammar, saved as any transformers tokenizer is.

All lab models that read or write text share it. A word outside the closed vocabulary becomes the unknown token, which the
models met in training, so that such a word is passed over rather than misread.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final

import torch
from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers, processors
from tokenizers.models import WordLevel
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from counterfoil_lab.captions import ARROW, COMPANIONS, GENERIC, MEDIUMS, PLACES, PLURAL, SKIES, SPOKEN, THING
from counterfoil_lab.world import FACTORS, UNSAID

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
    """For the rewriter: a text gets its start only, since the model is to continue with it."""
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


CORE = ("garment", "colour", "material", "background", "domain")


@dataclass(frozen=True)
class Habits:
    """Rates at which captions leave something out."""

    full: float = 0.6
    """Share of captions that state every factor."""
    unknown: float = 0.03
    """Share of captions with a word that no one knows in them."""
    single: float = 0.4
    """Share, among the others, of captions that state one factor alone."""


class Wording:
    """Turns factors into token rows."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._numbers = {word: number for number, word in enumerate(words())}
        names = {name: list(values) for name, values in FACTORS.items()}
        unsaid = {name: ["" if value == UNSAID.get(name) else value for value in names[name]] for name in names}
        self._openings = self._table([f"{_article(MEDIUMS[value])} {MEDIUMS[value]} of" for value in names["domain"]])
        self._generic = self._table(list(GENERIC))
        self._articles = self._table(["a", "an", "a pair of", ""])
        self._phrases = {
            "colour": self._table([*names["colour"], ""]),
            "texture": self._table([*unsaid["texture"], "", SPOKEN["texture"]]),
            "material": self._table([*names["material"], ""]),
            "garment": self._table([*names["garment"], THING]),
            "background": self._table([*PLACES.values(), ""]),
            "object": self._table([*COMPANIONS.values(), "", SPOKEN["object"]]),
            "weather": self._table([*SKIES.values(), "", SPOKEN["weather"]]),
        }
        self._unknown = self._table(["", UNKNOWN])
        self._plural = torch.tensor([value in PLURAL for value in names["garment"]], device=device)
        self._vowel = torch.tensor([_article(value) == "an" for value in names["colour"]], device=device)
        self._column = {name: column for column, name in enumerate(FACTORS)}
        self._unsaid = {name: FACTORS[name].index(value) for name, value in UNSAID.items()}

    def draw_stated(self, count: int, habits: Habits) -> Tensor:
        """Return which factors each of `count` captions is to state, at random.  # (N, 8) bool"""
        width = len(FACTORS)
        chance = torch.rand(count, 2, device=self._device)
        some = torch.rand(count, width, device=self._device) < torch.rand(count, 1, device=self._device)
        alone = torch.nn.functional.one_hot(torch.randint(width, (count,), device=self._device), width).bool()
        stated = torch.where(chance[:, 1:] < habits.single, alone, some)
        stated = stated | (chance[:, :1] < habits.full)
        core = [self._column[name] for name in CORE]
        return stated | stated[:, core].all(dim=1, keepdim=True)

    def tokens(self, factors: Tensor, stated: Tensor, *, unknown: float = 0.0) -> Tensor:
        """The captions that state these factors and no others.  # (N, 8), (N, 8) → (N, LENGTH)"""
        count = len(factors)
        value = {name: factors[:, column].long() for name, column in self._column.items()}
        says = {name: stated[:, column] for name, column in self._column.items()}
        partial = ~stated.all(dim=1)
        rows = {}
        for name in self._phrases:
            silent = len(FACTORS[name])
            rows[name] = torch.where(says[name], value[name], silent)
            if name in self._unsaid:
                # A caption with gaps has to say "plain" aloud to mean it.
                spoken = says[name] & (value[name] == self._unsaid[name]) & partial
                rows[name] = torch.where(spoken, silent + 1, rows[name])
        plural = says["garment"] & self._plural[value["garment"]]
        # Prompts that people write into a template say "an image of a trousers" or "an image of boot": let some be so.
        careless = torch.rand(count, 2, device=self._device) < 0.2
        plural &= ~(careless[:, 0] & partial)
        article = torch.where(plural, 2, (says["colour"] & self._vowel[value["colour"]]).long())
        article = torch.where(careless[:, 1] & partial, 3, article)
        opening = torch.where(
            says["domain"][:, None],
            self._openings[value["domain"]],
            _widen(self._generic, self._openings.shape[1])[torch.randint(len(GENERIC), (count,), device=self._device)],
        )
        start = torch.full((count, 1), self._numbers[START], device=self._device)
        end = torch.full((count, 1), self._numbers[END], device=self._device)
        strange = self._unknown[(torch.rand(count, device=self._device) < unknown).long()]
        pieces = [start, opening, self._articles[article], self._phrases["colour"][rows["colour"]], strange]
        pieces += [self._phrases[name][rows[name]] for name in list(self._phrases)[1:]]
        return self._pack(torch.cat([*pieces, end], dim=1))

    def captions(self, factors: Tensor) -> Tensor:
        """The full captions of these factors.  # (N, 8) → (N, LENGTH)"""
        return self.tokens(factors, torch.ones_like(factors, dtype=torch.bool))

    def empty(self, count: int) -> Tensor:
        """The tokens of the empty text.  # (N, LENGTH)"""
        row = [self._numbers[START], self._numbers[END]] + [self._numbers[PAD]] * (LENGTH - 2)
        return torch.tensor(row, device=self._device).expand(count, -1)

    def _pack(self, loose: Tensor) -> Tensor:
        """Rows with the gaps (-1) moved to the end and turned into padding."""
        order = (loose < 0).to(torch.uint8).argsort(dim=1, stable=True)
        packed = _widen(loose.gather(1, order)[:, :LENGTH], LENGTH)
        return torch.where(packed < 0, self._numbers[PAD], packed)

    def _table(self, phrases: list[str]) -> Tensor:
        rows = [[self._numbers[word] for word in phrase.split()] for phrase in phrases]
        longest = max(len(row) for row in rows)
        return torch.tensor([row + [-1] * (longest - len(row)) for row in rows], device=self._device)


def matches(factors: Tensor, described: Tensor, stated: Tensor) -> Tensor:
    """Tell whether each image (rows) is one that each caption (columns) holds true of.  # (N, 8), (M, 8), (M, 8) → (N, M)"""
    agree = factors[:, None, :] == described[None, :, :]
    return (agree | ~stated[None]).all(dim=2)


def one_changed(factors: Tensor) -> tuple[Tensor, Tensor]:
    """The same factors with one of each row, chosen at random, set to another value, and which one.  # (N, 8) → (N, 8), (N, 1)"""
    sizes = torch.tensor([len(values) for values in FACTORS.values()], device=factors.device)
    column = torch.randint(len(sizes), (len(factors), 1), device=factors.device)
    size = sizes[column]
    shift = 1 + (torch.rand(column.shape, device=factors.device) * (size - 1)).long()
    return factors.scatter(1, column, (factors.gather(1, column) + shift) % size), column


def _article(noun: str) -> str:
    return "an" if noun[0] in "aeiou" else "a"


def _widen(table: Tensor, width: int) -> Tensor:
    return torch.nn.functional.pad(table, (0, width - table.shape[1]), value=-1)
