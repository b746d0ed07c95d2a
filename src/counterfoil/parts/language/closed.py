"""The small words of English: articles, prepositions, common verbs; read from a list that comes with the package."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import yaml


@cache
def closed(section: str) -> frozenset[str]:
    """The words of one section of words/small.yaml."""
    return _sections()[section]


@cache
def _sections() -> dict[str, frozenset[str]]:
    text = files("counterfoil.parts.language").joinpath("words", "small.yaml").read_text(encoding="utf-8")
    return {section: frozenset(words) for section, words in yaml.safe_load(text).items()}
