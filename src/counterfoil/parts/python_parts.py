"""Parts of every role but models and generators, made by a function of the user's own, which is called with the options.

What the function gives has to have what the contract of its role asks for. Models and generators have factories of their own, as
they may also be plain modules.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from counterfoil.parts import contracts
from counterfoil.parts.datasets.tensors import ArrayDataset
from counterfoil.parts.python_functions import call


def oracle(place: str, **options: Any) -> Any:
    """An oracle that a function makes: python:package.module:factory or python:path/to/file.py:factory."""
    return _made("oracle", place, options)


def dataset(place: str, **options: Any) -> Any:
    """A data set that a function makes: python:package.module:factory or python:path/to/file.py:factory.

    The function gives a Dataset, or arrays (images, labels), as `tensors` takes them, perhaps with class names as a third.
    """
    made = call(place, options)
    if isinstance(made, tuple) and len(made) in (2, 3):
        return ArrayDataset(made[0], made[1], classes=made[2] if len(made) == 3 else None, name=f"python:{place}")
    return _checked("dataset", place, made)


def captioner(place: str, **options: Any) -> Any:
    """A captioner that a function makes: python:package.module:factory or python:path/to/file.py:factory."""
    return _made("captioner", place, options)


def rewriter(place: str, **options: Any) -> Any:
    """A rewriter that a function makes: python:package.module:factory or python:path/to/file.py:factory."""
    return _made("rewriter", place, options)


def editor(place: str, **options: Any) -> Any:
    """An editor that a function makes: python:package.module:factory or python:path/to/file.py:factory."""
    return _made("editor", place, options)


def painter(place: str, **options: Any) -> Any:
    """A painter that a function makes: python:package.module:factory or python:path/to/file.py:factory."""
    return _made("painter", place, options)


def encoder(place: str, **options: Any) -> Any:
    """An encoder that a function makes: python:package.module:factory or python:path/to/file.py:factory."""
    return _made("encoder", place, options)


def chat(place: str, **options: Any) -> Any:
    """A chat that a function makes: python:package.module:factory or python:path/to/file.py:factory."""
    return _made("chat", place, options)


def _made(role: str, place: str, options: Mapping[str, Any]) -> Any:
    return _checked(role, place, call(place, dict(options)))


def _checked(role: str, place: str, made: Any) -> Any:
    contracts.check(made, role, f"python:{place}: gives")
    return made
