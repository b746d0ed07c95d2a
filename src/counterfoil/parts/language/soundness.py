"""Whether a text can be a caption at all: recognises refusals, loops and nonsense in what language models write."""

from __future__ import annotations

import re
from typing import Final

from counterfoil.parts.language.tokens import tokenise

LONGEST_LOOP: Final = 6  # words in a phrase whose repetition is looked for
REPEATS: Final = 3  # times in a row that make a loop
_REFUSAL: Final = re.compile(
    r"^\W*(?:(?:i['’]?m|i am|we are) (?:sorry|unable|not able|afraid)|sorry\b|apolog"
    r"|i (?:can ?not|can['’]?t|won['’]?t|do not|don['’]?t|must decline)"
    r"|unfortunately\b|no\W*i can|as an? (?:ai|artificial|language|large language)\b|it is not (?:possible|appropriate))"
    r"|\b(?:as an ai|ai language model|as a language model|cannot (?:assist|help|fulfil|comply|create)|can['’]t (?:assist|help)"
    r"|unable to (?:assist|help|fulfil|comply|provide|generate))",
    re.IGNORECASE,
)
_STRANGE: Final = re.compile(r"[{}<>|\\=_#@^~`]|https?:|\?\?|&\w+;")
_LEAST_LETTERS: Final = 0.75  # share of a caption's characters that are letters or spaces
_LEAST_VOWELS: Final = 0.15  # share of its letters that are vowels
_LONGEST_WORD: Final = 30


def unsound(text: str) -> tuple[str, str] | None:
    """The reason why a text is no caption and a detail for people; None if it may be one."""
    if _REFUSAL.search(text):
        return "refusal", _excerpt(text)
    words = [token.text for token in tokenise(text) if not token.is_mark]
    loop = _loop(words)
    if loop:
        return "looping", f"says {loop!r} over and over"
    why = _nonsense(text, words)
    return ("nonsense", why) if why else None


def _nonsense(text: str, words: list[str]) -> str:
    if len(words) < 2:
        return "fewer than two words"
    strange = _STRANGE.search(text)
    if strange:
        return f"has {strange[0]!r} in it"
    letters = [letter for letter in text.lower() if letter.isalpha()]
    if (len(letters) + text.count(" ")) / len(text) < _LEAST_LETTERS:
        return "too few letters"
    plain = [letter for letter in letters if letter.isascii()]
    if plain and sum(letter in "aeiouy" for letter in plain) / len(plain) < _LEAST_VOWELS:
        return "too few vowels"
    if max(len(word) for word in words) > _LONGEST_WORD:
        return f"has a word of {max(len(word) for word in words)} letters"
    return ""


def _loop(words: list[str]) -> str:
    """The phrase that is repeated in a row, if there is one."""
    for length in range(1, min(LONGEST_LOOP, len(words) // REPEATS) + 1):
        for start in range(len(words) - length * REPEATS + 1):
            phrase = words[start : start + length]
            if all(words[start + length * turn : start + length * (turn + 1)] == phrase for turn in range(1, REPEATS)):
                return " ".join(phrase)
    return ""


def _excerpt(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 80 else f"{line[:79]}…"
