"""How long a caption may be: what an editor's text encoder reads, 77 tokens for Stable Diffusion."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from counterfoil.parts.language.tokens import tokenise

CLIP_TOKENS = 77
MOST_WORDS = 120  # for when no tokenizer is at hand
MOST_LETTERS = 2_000  # nothing longer is even tokenised


@dataclass(frozen=True)
class TokenLimit:
    """Counts tokens as a tokenizer does, its start and end included."""

    count: Callable[[str], int]
    most: int = CLIP_TOKENS

    @classmethod
    def of(cls, tokenizer: Any, most: int | None = None) -> TokenLimit:
        """The limit of a transformers tokenizer: `most`, or its own."""
        own = int(getattr(tokenizer, "model_max_length", CLIP_TOKENS) or CLIP_TOKENS)
        # Tokenizers without a limit of their own state an absurd one.
        return cls(lambda text: len(tokenizer(text, verbose=False).input_ids), most or (own if own < 10**6 else CLIP_TOKENS))

    def excess(self, text: str) -> str:
        """Why the text is too long, for people; empty if it is not."""
        if len(text) > MOST_LETTERS:
            return f"{len(text)} letters, {MOST_LETTERS} are read at most"
        tokens = self.count(text)
        return f"{tokens} tokens, {self.most} are read at most" if tokens > self.most else ""


def by_words() -> TokenLimit:
    """A limit by words, for when the editor's tokenizer is not known."""
    return TokenLimit(lambda text: len(tokenise(text)), MOST_WORDS)
