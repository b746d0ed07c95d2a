"""Find parts by name, build their options, and adapt what users bring.

A name is `kind:rest`, as in `timm:resnet50`. The kind is an entry point, the rest is its own. Built-in parts register
through the same entry points as plug-ins. A plug-in package declares, for example,

    [project.entry-points."counterfoil.generators"]
    brightness = "my_package:Brightness"

and `counterfoil run --generator brightness:` finds it. The object is called as `factory(rest, **options)`, or as
`factory(rest, options)` if its second parameter is a dataclass, which is then built from the options.

`python:` is a kind of every role: a function of the user's own, `python:package.module:function` or
`python:path/to/file.py:function`, called with the options. Listing parts imports neither torch nor any part.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import inspect
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from functools import cache, partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

from counterfoil.core.errors import BadPart, BadSpec, CounterfoilError, UnknownName, did_you_mean, missing, one_line

ROLES = ("model", "generator", "oracle", "dataset", "captioner", "rewriter", "editor", "painter", "encoder", "chat")
FILES = {".py": "python:{}:FUNCTION", ".onnx": "onnx:{}", ".pt2": "pt2:{}", ".pt": "torchscript:{}", ".csv": "csv:{}"}
"""The name of a part in a file with this ending, where the role has such parts."""


@dataclass(frozen=True)
class ListedPart:
    """One line of `counterfoil list`."""

    kind: str
    package: str
    summary: str


def list_parts(role: str) -> list[ListedPart]:
    """The kinds registered for a role, with the first line of their documentation."""
    rows = [ListedPart("python", "counterfoil", f"Your own function makes the {role}: python:FILE.py:FUNCTION.")]
    for kind, entry in _kinds(role).items():
        rows.append(ListedPart(kind, entry.dist.name if entry.dist is not None else "?", _summary(role, entry)))
    return sorted(rows, key=lambda row: row.kind)


def create(role: str, name: str, options: Mapping[str, Any] | None = None) -> Any:
    """The part called `name`, built with `options`."""
    call, own = _prepare(role, name, options or {})
    try:
        made = call()
    except CounterfoilError:
        raise
    except (Exception, SystemExit) as error:
        problem = missing(error) or f"could not be loaded: {type(error).__name__}: {one_line(error, 300)}"
        raise BadPart(f"{role} {name!r} {problem}") from error
    return adapt(role, made, what=name) if own else made


def check_options(role: str, name: str, options: Mapping[str, Any] | None = None) -> None:
    """Refuse a name or options that `create` would refuse, without building the part."""
    _prepare(role, name, options or {})


def _prepare(role: str, name: str, options: Mapping[str, Any]) -> tuple[Callable[[], Any], bool]:
    """The call that makes a part, with arguments that fit, and whether it is of a user's own function."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise BadSpec(f"{role} {name!a}: the name is not in UTF-8; rename the file or folder") from None
    kind, colon, rest = name.partition(":")
    if colon and kind == "python" and role in ROLES:
        return prepare_call(rest, options), True
    # Look up first, load second, so that an error inside a plug-in is never read as an unknown name.
    factory = _import(role, _find(role, name))
    rest = name if kind in ("http", "https") else rest  # an address keeps its scheme
    spec = options_class(factory)
    given = _place_options(inspect.signature(spec or factory), options)
    try:
        arguments = (rest,) if spec is None else (rest, build_options(spec, given))
        keywords = given if spec is None else {}
        inspect.signature(factory).bind(*arguments, **keywords)
    except TypeError as error:
        raise BadSpec(f"{role} {name!r}: {error}; {_options_of(spec or factory, skip=spec is None)}") from None
    except ValueError as error:
        raise BadSpec(f"{role} {name!r}: {error}") from None
    return partial(factory, *arguments, **keywords), False


def adapt(role: str, made: Any, *, what: str, classes: Any = None) -> Any:
    """A part of its role from what a user's function returned or `counterfoil.evaluate` was given.

    A torch module with class names, or a pair (module, classes), is a model; an object with `encode` and `decode`, or with
    `latent_shape` and `decode`, is a generator; arrays (images, labels), perhaps with class names, are a data set.
    """
    from counterfoil.parts.contracts import check

    if role == "model":
        from counterfoil.parts.models.modules import adapt_model

        made = adapt_model(made, what=what, classes=classes)
    elif role == "generator":
        from counterfoil.parts.generators.inversion import adapt_generator

        made = adapt_generator(made, what=what)
    elif role == "dataset" and isinstance(made, tuple) and len(made) in (2, 3):
        from counterfoil.parts.datasets.arrays import from_arrays

        return from_arrays(made[0], made[1], classes=classes or (made[2] if len(made) == 3 else None), name=what)
    check(made, role, f"{what}: gives" if what.startswith("python:") else f"{what} is")
    return made


def prepare_call(place: str, options: Mapping[str, Any]) -> Callable[[], Any]:
    """The call of the function at `package.module:function` or `file.py:function` with `options`, which have to fit."""
    function = import_function(place)
    try:
        inspect.signature(function).bind(**options)
    except TypeError as error:
        raise BadSpec(f"python:{place}: {error}; {_options_of(function)}") from None
    except ValueError:  # made in C: it has no signature
        pass

    def call() -> Any:
        try:
            return function(**options)
        except CounterfoilError:
            raise
        except (Exception, SystemExit) as error:
            raise BadPart(f"python:{place}: the function failed with {type(error).__name__}: {one_line(error)}") from error

    return call


def import_function(place: str) -> Callable[..., Any]:
    """The function at `package.module:function` or `file.py:function`."""
    where, colon, name = place.rpartition(":")
    if not colon or not where or not name:
        raise BadPart(f"python:{place}: write python:package.module:factory or python:path/to/file.py:factory")
    module = _import_file(Path(where).expanduser()) if where.endswith(".py") else _import_module(where)
    factory: Callable[..., Any] | None = getattr(module, name, None)
    if not callable(factory):
        functions = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise BadPart(f"python:{place}: {where} has no function {name!r}; it has {', '.join(functions[:8]) or 'none'}")
    return factory


def function_hashes(spec: Any) -> dict[str, str]:
    """SHA-256 of the file behind every function a specification names, by `file.py:function` or `package.module:function`.

    Modules that the file imports are not included.
    """
    from counterfoil.parts.weights import file_sha256

    files = {place: _file(place.rpartition(":")[0]) for place in _places(spec)}
    return {place: file_sha256(file) for place, file in files.items() if file is not None and file.is_file()}


def factory(role: str, kind: str) -> Any:
    """The object behind a kind of part, imported."""
    return _import(role, _find(role, f"{kind}:"))


def options_class(factory: Any) -> type[Any] | None:
    """The dataclass a factory takes as its second parameter, if it does."""
    if not inspect.isfunction(factory) or len(inspect.signature(factory).parameters) != 2:
        return None
    second = list(inspect.signature(factory).parameters)[1]
    try:
        kind = get_type_hints(factory).get(second)
    except NameError:  # names of a plug-in that only a type checker imports
        return None
    return kind if isinstance(kind, type) and is_dataclass(kind) else None


def build_options(spec: type[Any], given: Mapping[str, Any]) -> Any:
    """An options dataclass with its values checked against its types."""
    from pydantic import TypeAdapter, ValidationError

    inspect.signature(spec).bind(**given)
    try:
        built = TypeAdapter(spec).validate_python(dict(given))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        option = str(first["loc"][0]) if first["loc"] else "options"
        message = first["msg"].removeprefix("Value error, ")
        hint = """; write a hash of digits in quotes, as in sha256='"12345678…"'""" if option == "sha256" else ""
        raise ValueError(f"{option}: {message[:1].lower()}{message[1:]}, got {given.get(option)!r}{hint}") from None
    for option, value in given.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{option}: input should be a finite number, got {value!r}")
    return built


@cache
def _kinds(role: str) -> Mapping[str, EntryPoint]:
    if role not in ROLES:
        raise UnknownName(f"no role named {role!r}; roles are {', '.join(ROLES)}")
    found: dict[str, EntryPoint] = {}
    for entry in entry_points(group=f"counterfoil.{role}s"):
        other = found.get(entry.name)
        if other is not None and other.value != entry.value:
            raise BadPart(
                f"two packages register the {role} {entry.name!r}: {other.value} and {entry.value}; uninstall one of them"
            )
        found[entry.name] = entry
    return found


def _find(role: str, name: str) -> EntryPoint:
    kinds = _kinds(role)
    kind, colon, _ = name.partition(":")
    if kind in kinds:
        return kinds[kind]
    hint = did_you_mean(kind, [*kinds, "python"])
    if not colon and (Path(name).suffix in FILES or not hint):
        # By its ending if it is a file, else by the example most people need.
        example = FILES.get(Path(name).suffix, "timm:{}" if role == "model" else "")
        known = example.partition(":")[0] in {*kinds, "python"}
        hint = f" A name begins with its kind{f', as in {example.format(name)!r}' if known else ' and a colon'}."
    raise UnknownName(f"no {role} named {kind!r}.{hint} 'counterfoil list {role}s' shows all {len(kinds) + 1}")


def _summary(role: str, entry: EntryPoint) -> str:
    """The first line of a part's documentation, read without importing it.

    Importing all parts takes seconds, and one that lacks its library would keep the others from being listed.
    """
    module, _, attribute = entry.value.partition(":")
    source = _source(module)
    for node in ast.parse(source.read_text(encoding="utf-8")).body if source else ():
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == attribute:
            return (ast.get_docstring(node) or "").split("\n")[0]
    return (inspect.getdoc(_import(role, entry)) or "").split("\n")[0]


def _source(module: str) -> Path | None:
    """The file of a module, found without importing the packages around it."""
    top, *inner = module.split(".")
    found = importlib.util.find_spec(top)
    if found is None:
        return None
    if not inner:
        return Path(found.origin) if found.origin and found.origin.endswith(".py") else None
    places = [Path(place, *inner) for place in found.submodule_search_locations or ()]
    files = [file for place in places for file in (place.with_suffix(".py"), place / "__init__.py")]
    return next((file for file in files if file.is_file()), None)


def _import(role: str, entry: EntryPoint) -> Any:
    try:
        return entry.load()
    except ImportError as error:
        reason = f"({entry.value}) cannot be imported: {type(error).__name__}: {one_line(error, 300)}"
        raise BadPart(f"{role} {entry.name!r} {missing(error) or reason}") from error


def _place_options(signature: inspect.Signature, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options where the factory takes them.

    A part around another, such as `classifier:`, takes the inner part's options under `options`; whatever it does not know
    itself is for the inner part. Other parts have no such option: the options given there are their own.
    """
    parameters = signature.parameters
    under = options.get("options")
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()) or not isinstance(under, Mapping | None):
        return dict(options)
    own = {key: value for key, value in options.items() if key != "options"}
    if "options" not in parameters:
        return {**(under or {}), **own}
    inside = {key: own.pop(key) for key in list(own) if key not in parameters}
    return {**own, "options": {**(under or {}), **inside}} if under or inside else own


def _options_of(factory: Any, *, skip: bool = False) -> str:
    names = list(inspect.signature(factory).parameters)[int(skip) :]
    return f"its options are {', '.join(names)}" if names else "it takes no options"


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


def _import_module(name: str) -> ModuleType:
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # as `python -m` does: a module in the working directory is found by its name
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise BadPart(f"python:{name}: no module of that name; install it, or give the path of its file") from None
        raise BadPart(f"python:{name}: it needs the module {error.name!r}, which is not installed") from error
    except (Exception, SystemExit) as error:
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
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise _unimportable(str(file), error) from error
    return module


def _unimportable(what: str, error: BaseException) -> BadPart:
    return BadPart(f"python:{what}: cannot be imported, {type(error).__name__}: {one_line(error)}")
