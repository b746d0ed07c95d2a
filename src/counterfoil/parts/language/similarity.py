"""Whether words mean a class: by the words themselves, and by how near an encoder of texts finds the two."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from counterfoil.core.errors import BadPart
from counterfoil.parts import labels
from counterfoil.parts.language.inflection import singulars
from counterfoil.parts.language.tokens import tokenise

THRESHOLD = 0.5
"""The paper's: words at least this near to the class name are taken to mean the class."""
_REMEMBERED = 4096


class TextEncoder(Protocol):
    """Embeds texts; the encoders of CLIP and SigLIP do."""

    def embed_texts(self, texts: Sequence[str]) -> Tensor: ...


def names_class(words: str, class_name: str) -> bool:
    """Whether the words hold a name of the class, in singular or plural: "two dogs" names the class "dog, domestic dog"."""
    held = f" {' '.join(_singular(token.text) for token in tokenise(words))} "
    return any(f" {name} " in held for name in _spellings(class_name))


@lru_cache(maxsize=_REMEMBERED)
def _spellings(class_name: str) -> tuple[str, ...]:
    names = [name.replace("_", " ").lower() for name in labels.split(class_name)]
    return tuple(" ".join(_singular(token.text) for token in tokenise(name)) for name in names if name.strip())


def _singular(word: str) -> str:
    found = singulars(word)
    return found[-1] if found else word


@dataclass(frozen=True)
class TextSimilarity:
    """The cosine between the embeddings of words and of a class name."""

    encoder: TextEncoder
    threshold: float = THRESHOLD
    template: str = "{class}"

    def __post_init__(self) -> None:
        if not -1 <= self.threshold <= 1 or "{class}" not in self.template:
            raise BadPart(
                f"text similarity: the threshold is a cosine from -1 to 1 and the template has a {{class}} in it, "
                f"got {self.threshold} and {self.template!r}"
            )
        object.__setattr__(self, "_embedded", lru_cache(maxsize=_REMEMBERED)(self._embed))

    def between(self, words: str, class_name: str) -> float:
        """The cosine of words and class."""
        name = labels.split(class_name)[0].replace("_", " ")
        embed: Callable[[str], Tensor] = self._embedded  # type: ignore[attr-defined]
        return float(embed(self.template.replace("{class}", words)) @ embed(self.template.replace("{class}", name)))

    @torch.no_grad()
    def _embed(self, text: str) -> Tensor:
        # One text a call, so that the number never depends on its neighbours.
        return functional.normalize(self.encoder.embed_texts([text]).float(), dim=-1)[0].cpu()
