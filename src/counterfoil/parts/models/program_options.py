"""The options that all programs in files have in common: how they are fed, read and named."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar

from counterfoil.parts.models.inputs import InputOptions
from counterfoil.parts.models.program import Scores

Options = TypeVar("Options")
Made = TypeVar("Made")


@dataclass(frozen=True)
class ProgramOptions(InputOptions):
    """What a user says of a program: its input, the names of its outputs, what they are, and the file's hash."""

    classes: str | Sequence[str] | None = None
    scores: Scores = "auto"
    skip: int = 0
    sha256: str | None = None


def takes(kind: type[Options]) -> Callable[[Callable[[str, Options], Made]], Callable[..., Made]]:
    """Lets a factory be called with the fields of `kind` as keywords, and its signature say so."""

    def decorate(make: Callable[[str, Options], Made]) -> Callable[..., Made]:
        @wraps(make)
        def factory(path: str, **options: Any) -> Made:
            return make(path, kind(**options))

        fields = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in inspect.signature(kind).parameters.values()]
        path = inspect.Parameter("path", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation="str")
        factory.__signature__ = inspect.Signature([path, *fields])  # type: ignore[attr-defined]
        return factory

    return decorate
