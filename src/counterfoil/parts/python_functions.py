"""Functions of the user's own that make parts: found by package.module:function or path/to/file.py:function, and called."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from counterfoil.core.errors import BadPart, BadSpec, CounterfoilError, one_line
from counterfoil.parts.weights import file_sha256


def call(place: str, options: dict[str, Any]) -> Any:
    """What the function at `package.module:function` or `file.py:function` gives when called with `options`."""
    factory = find(place)
    _check_options(factory, place, options)
    try:
        return factory(**options)
    except CounterfoilError:
        raise
    except Exception as error:
        raise BadPart(f"python:{place}: the function failed with {type(error).__name__}: {one_line(error)}") from error


def _check_options(factory: Callable[..., Any], place: str, options: dict[str, Any]) -> None:
    """Refuse options that the function does not take, where it says which it takes."""
    try:
        signature = inspect.signature(factory)
    except ValueError:  # made in C
        return
    try:
        signature.bind(**options)
    except TypeError as error:
        names = ", ".join(signature.parameters)
        raise BadSpec(f"python:{place}: {error}; {f'its options are {names}' if names else 'it takes no options'}") from None


def find(place: str) -> Callable[..., Any]:
    """The function at `package.module:function` or `file.py:function`."""
    where, colon, name = place.rpartition(":")
    if not colon or not where or not name:
        raise BadPart(f"python:{place}: write python:package.module:factory or python:path/to/file.py:factory")
    module = _import_file(Path(where).expanduser()) if where.endswith(".py") else _import(where)
    factory: Callable[..., Any] | None = getattr(module, name, None)
    if not callable(factory):
        functions = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise BadPart(f"python:{place}: {where} has no function {name!r}; it has {', '.join(functions[:8]) or 'none'}")
    return factory


def files(spec: Any) -> dict[str, str]:
    """The hash of the file behind every function that a specification names, by `file.py:function` or `package.module:function`.

    What that file imports is not in it.
    """
    return {
        place: file_sha256(file)
        for place in _places(spec)
        if (file := _file(place.rpartition(":")[0])) is not None and file.is_file()
    }


def _places(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for each in value:
            yield from _places(each)
    elif isinstance(value, str) and ":python:" in f":{value}":  # also behind others, as in classifier:python:...
        yield f":{value}".partition(":python:")[2]


def _file(where: str) -> Path | None:
    if where.endswith(".py"):
        return Path(where).expanduser()
    module = sys.modules.get(where)
    return Path(module.__file__) if module is not None and module.__file__ is not None else None


def _import(name: str) -> ModuleType:
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # as `python -m` does: a module beside the data is found by its name
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise BadPart(f"python:{name}: no module of that name; install it, or give the path of its file") from None
        raise BadPart(f"python:{name}: it needs the module {error.name!r}, which is not installed") from error
    except Exception as error:
        raise _unimportable(name, error) from error


def _import_file(file: Path) -> ModuleType:
    if not file.is_file():
        raise BadPart(f"python:{file}: no such file")
    name = f"counterfoil_user_{hashlib.sha256(str(file.resolve()).encode()).hexdigest()[:12]}"
    description = importlib.util.spec_from_file_location(name, file)
    if description is None or description.loader is None:
        raise BadPart(f"python:{file}: not a Python file")
    module = importlib.util.module_from_spec(description)
    sys.modules[name] = module  # dataclasses, among others, look their module up there
    try:
        description.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise _unimportable(str(file), error) from error
    return module


def _unimportable(what: str, error: Exception) -> BadPart:
    return BadPart(f"python:{what}: cannot be imported, {type(error).__name__}: {one_line(error)}")
