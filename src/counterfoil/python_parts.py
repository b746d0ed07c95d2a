"""Parts of every role but models and generators, made by a function of the user's own, which is called with the options.

What the function gives has to have what the contract of its role asks for. Models and generators have factories of their own, as
they may also be plain modules.
"""

# Contracts are handed over to hold what was made against, not to be called.
# mypy: disable-error-code="type-abstract"

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, TypeVar

from counterfoil.datasets.tensors import ArrayDataset
from counterfoil.encoders.prompts import Encoder
from counterfoil.errors import BadPart
from counterfoil.evaluation.questions import Chat
from counterfoil.parts import Captioner, Dataset, Editor, Oracle, Painter, Rewriter
from counterfoil.python_functions import call

Contract = TypeVar("Contract")


def oracle(place: str, **options: Any) -> Oracle:
    """An oracle that a function makes: python:package.module:factory or python:path/to/file.py:factory."""
    return _made(place, options, Oracle)


def dataset(place: str, **options: Any) -> Dataset:
    """A data set that a function makes: python:package.module:factory or python:path/to/file.py:factory.

    The function gives a Dataset, or arrays (images, labels), as `tensors` takes them, perhaps with class names as a third.
    """
    made = call(place, options)
    if isinstance(made, tuple) and len(made) in (2, 3):
        return ArrayDataset(made[0], made[1], classes=made[2] if len(made) == 3 else None, name=f"python:{place}")
    return _checked(place, made, Dataset)


def captioner(place: str, **options: Any) -> Captioner:
    """A captioner that a function makes: python:package.module:factory or python:path/to/file.py:factory."""
    return _made(place, options, Captioner)


def rewriter(place: str, **options: Any) -> Rewriter:
    """A rewriter that a function makes: python:package.module:factory or python:path/to/file.py:factory."""
    return _made(place, options, Rewriter)


def editor(place: str, **options: Any) -> Editor:
    """An editor that a function makes: python:package.module:factory or python:path/to/file.py:factory."""
    return _made(place, options, Editor)


def painter(place: str, **options: Any) -> Painter:
    """A painter that a function makes: python:package.module:factory or python:path/to/file.py:factory."""
    return _made(place, options, Painter)


def encoder(place: str, **options: Any) -> Encoder:
    """An encoder that a function makes: python:package.module:factory or python:path/to/file.py:factory."""
    return _made(place, options, Encoder)


def chat(place: str, **options: Any) -> Chat:
    """A chat that a function makes: python:package.module:factory or python:path/to/file.py:factory."""
    return _made(place, options, Chat)


def _made(place: str, options: Mapping[str, Any], contract: type[Contract]) -> Contract:
    return _checked(place, call(place, dict(options)), contract)


def _checked(place: str, made: Any, contract: type[Contract]) -> Contract:
    """What was made, or BadPart that says what it lacks to be what it should."""
    if isinstance(made, type):
        raise BadPart(f"python:{place}: gives the class {made.__name__} itself; give an object of it, as in {made.__name__}()")
    lacking = [name for name in _asked_for(contract) if not hasattr(made, name)]
    if lacking:
        what, where = contract.__name__, contract.__module__
        raise BadPart(f"python:{place}: gives a {type(made).__name__} without {', '.join(lacking)}; see {what} in {where}")
    assert isinstance(made, contract)
    return made


def _asked_for(contract: type[Any]) -> list[str]:
    """What a contract says that a part has: its attributes, properties and methods."""
    said = [name for name, value in vars(contract).items() if inspect.isfunction(value) or isinstance(value, property)]
    methods = [name for name in said if not name.startswith("_") or name in ("__len__", "__iter__")]
    return [*inspect.get_annotations(contract), *methods]
