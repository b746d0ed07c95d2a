"""Check that a text is a caption, fits the editor's text encoder, and does not name the class."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from counterfoil.core.errors import BadPart
from counterfoil.parts import labels
from counterfoil.parts.language.english import noun_forms, tokenise

if TYPE_CHECKING:
    from torch import Tensor

    from counterfoil.parts.contracts import Embedder

Fault = tuple[str, str]
"""One of the reasons, and a detail for people."""

REASONS: Final[dict[str, str]] = {
    "caption-empty": "the caption has no words",
    "caption-too-long": "the caption has more tokens than the editor reads",
    "no-proposal": "the rewriter had nothing to propose",
    "refusal": "the language model declined to answer",
    "nonsense": "the answer is not a caption",
    "repetitive": "the answer repeats itself",
    "endpoint": "the endpoint did not answer",
    "no-op": "the proposal says the same as the caption",
    "duplicate": "the same edit was proposed before",
    "too-long": "the edited caption has more tokens than the editor reads",
    "too-different": "the proposal shares too little with the caption to be an edit of it",
    "wrong-factor": "another factor was changed than the one asked for",
    "several-factors": "more than one factor was changed",
    "class-word": "the words that were taken out name the class itself",
    "class-similar": "the encoder finds the words that were taken out too similar to the class name",
}
"""Reasons why a caption or a proposal is not used, in the order of the checks, with a sentence for people."""

_LONGEST_LOOP: Final = 6  # words in a phrase whose repetition is looked for
_REPEATS: Final = 3  # times in a row that make a loop
_REFUSAL: Final = re.compile(
    r"^\W*(?:(?:i['’]?m|i am|we are) (?:sorry|unable|not able|afraid)|sorry\b|apolog"
    r"|i (?:can ?not|can['’]?t|won['’]?t|do not|don['’]?t|must decline)"
    r"|unfortunately\b|no\W*i can|as an? (?:ai|artificial|language|large language)\b|it is not (?:possible|appropriate))"
    r"|\b(?:as an ai|ai language model|as a language model|cannot (?:assist|help|fulfil|comply|create)|can['’]t (?:assist|help)"
    r"|unable to (?:assist|help|fulfil|comply|provide|generate))",
    re.IGNORECASE,
)
_STRANGE: Final = re.compile(r"[{}<>|\\=_#@^~`]|https?:|\?\?|&\w+;")
_MIN_LETTERS: Final = 0.75  # share of a caption's characters that are letters or spaces
_MIN_VOWELS: Final = 0.15  # share of its letters that are vowels
_MAX_WORD: Final = 30  # letters


def caption_fault(text: str) -> Fault | None:
    """The reason why a text cannot be a caption: a refusal, a loop or nonsense; None if it may be one."""
    if _REFUSAL.search(text):
        line = " ".join(text.split())
        return "refusal", line if len(line) <= 80 else f"{line[:79]}…"
    words = [token.text for token in tokenise(text) if not token.is_mark]
    loop = _find_loop(words)
    if loop:
        return "repetitive", f"says {loop!r} over and over"
    why = _nonsense(text, words)
    return ("nonsense", why) if why else None


def _nonsense(text: str, words: list[str]) -> str:
    if len(words) < 2:
        return "fewer than two words"
    strange = _STRANGE.search(text)
    if strange:
        return f"has {strange[0]!r} in it"
    letters = [letter for letter in text.lower() if letter.isalpha()]
    if (len(letters) + text.count(" ")) / len(text) < _MIN_LETTERS:
        return "too few letters"
    plain = [letter for letter in letters if letter.isascii()]
    if plain and sum(letter in "aeiouy" for letter in plain) / len(plain) < _MIN_VOWELS:
        return "too few vowels"
    longest = max(map(len, words))
    return f"has a word of {longest} letters" if longest > _MAX_WORD else ""


def _find_loop(words: list[str]) -> str:
    """The phrase that is repeated in a row, if there is one."""
    for length in range(1, min(_LONGEST_LOOP, len(words) // _REPEATS) + 1):
        for start in range(len(words) - length * _REPEATS + 1):
            phrase = words[start : start + length]
            if all(words[start + length * turn : start + length * (turn + 1)] == phrase for turn in range(1, _REPEATS)):
                return " ".join(phrase)
    return ""


CLIP_TOKENS: Final = 77
MAX_WORDS: Final = 120  # where no tokenizer is known
MAX_LETTERS: Final = 2_000  # nothing longer is even tokenised


@dataclass(frozen=True)
class TokenLimit:
    """Length of a caption in tokens, start and end included; in words where no tokenizer is known."""

    count: Callable[[str], int] = lambda text: len(tokenise(text))
    limit: int = MAX_WORDS

    @classmethod
    def of(cls, tokenizer: Any, limit: int | None = None) -> TokenLimit:
        """The limit of a tokenizer of transformers: `limit`, or its own."""
        own = int(getattr(tokenizer, "model_max_length", CLIP_TOKENS) or CLIP_TOKENS)
        # Tokenizers without a limit of their own state an absurd one.
        return cls(lambda text: len(tokenizer(text, verbose=False).input_ids), limit or (own if own < 10**6 else CLIP_TOKENS))

    def fault(self, text: str) -> str:
        """The reason why the text is too long, or nothing."""
        if len(text) > MAX_LETTERS:
            return f"{len(text)} letters, {MAX_LETTERS} are read at most"
        tokens = self.count(text)
        return f"{tokens} tokens, {self.limit} are read at most" if tokens > self.limit else ""


def names_class(words: str, class_name: str) -> bool:
    """Find a name of the class in singular or plural: "two dogs" names the class "dog, domestic dog"."""
    text = f" {_join_tokens(words)} "
    return any(f" {form} " in text for form in _class_forms(class_name))


@lru_cache(maxsize=4096)
def _class_forms(class_name: str) -> frozenset[str]:
    names = [_join_tokens(name.replace("_", " ")) for name in labels.split(class_name)]
    return frozenset(form for name in names if name for form in noun_forms(name))


def _join_tokens(text: str) -> str:
    return " ".join(token.text for token in tokenise(text))


class ClassSimilarity:
    """The cosine between the embeddings of words and of a class name; from the threshold on, words mean the class."""

    PAPER_THRESHOLD: Final = 0.5

    def __init__(self, encoder: Embedder, threshold: float = PAPER_THRESHOLD) -> None:
        if not -1 <= threshold <= 1:
            raise BadPart(f"class_similarity is a cosine from -1 to 1, got {threshold}")
        self.encoder = encoder
        self.threshold = threshold
        self._embedding = lru_cache(maxsize=4096)(self._embed)

    def between(self, words: str, class_name: str) -> float:
        """The cosine of words and class."""
        name = labels.split(class_name)[0].replace("_", " ")
        return float(self._embedding(words) @ self._embedding(name))

    def _embed(self, text: str) -> Tensor:
        import torch

        with torch.no_grad():  # one text per call, so that the number never depends on its neighbours
            return torch.nn.functional.normalize(self.encoder.embed_texts([text]).float(), dim=-1)[0].cpu()
