"""Writes the reference pages from the program itself: commands, settings, parts and the Python interface."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

import counterfoil
from counterfoil import protocols
from counterfoil.cli import app as cli
from counterfoil.core.spec import PartSpec
from counterfoil.parts import registry

PACKAGE = Path(counterfoil.__file__).parent
API = {
    "counterfoil": "Run a protocol and read its results.",
    "counterfoil.parts.contracts": "What a part of each role has; a part of your own subclasses nothing.",
    "counterfoil.testing": "Checks that a part keeps its contract.",
    "counterfoil.core.errors": "Every error that is raised on purpose.",
}


def write(folder: Path) -> None:
    """Write the pages that changed."""
    folder.mkdir(exist_ok=True)
    pages = {"commands": commands, "settings": settings, "parts": parts, "api": api, "modules": modules}
    for name, lines in pages.items():
        text = "\n".join(lines()) + "\n"
        path = folder / f"{name}.md"
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def commands() -> Iterator[str]:
    """Yield the commands with their options."""
    yield "# Commands\n"
    yield "Exit codes: 0 done, 1 the run or the gate failed, 2 wrong use. An error is one line; `--debug` shows the traceback.\n"
    for name, entry in cli.COMMANDS.items():
        command = cli.load(name)
        yield f"## {name}\n"
        yield from _paragraphs(command.help or entry.summary)
        rows = [_option(each) for each in command.params if each.name != "help"]
        if rows:
            yield from _table(("option", "default", "meaning"), rows)


def _paragraphs(text: str) -> Iterator[str]:
    for block in inspect.cleandoc(text).split("\n\n"):
        if block.startswith("\b"):
            yield "```sh\n" + block.removeprefix("\b").strip("\n") + "\n```\n"
        else:
            yield " ".join(block.split()) + "\n"


def _option(each: Any) -> tuple[str, str, str]:
    names = [*each.opts, *each.secondary_opts] if each.param_type_name == "option" else [each.metavar or str(each.name).upper()]
    default = "" if each.default in (None, False, ()) or callable(each.default) else f"`{each.default}`"
    return ", ".join(f"`{name}`" for name in names), default, getattr(each, "help", "") or ""


def settings() -> Iterator[str]:
    """Yield every key of every protocol's specification."""
    yield "# Settings\n"
    yield "Every key can be given in a YAML file or as `--set KEY=VALUE`; a key that occurs once needs no section.\n"
    for name in protocols.names():
        protocol = protocols.get(name)
        yield f"## {name}\n"
        yield f"{protocol.title}.\n"
        yield from _table(("key", "default", "meaning"), _keys(protocol.spec))


def _keys(spec: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str, str]]:
    for name, field in spec.model_fields.items():
        inner = field.annotation
        default = field.get_default(call_default_factory=True)
        if inspect.isclass(inner) and issubclass(inner, BaseModel) and not issubclass(inner, PartSpec):
            yield from _keys(inner, f"{prefix}{name}.")
            continue
        shown = "required" if default is PydanticUndefined else "" if default in (None, (), {}) else f"`{default}`"
        yield f"`{prefix}{name}`", shown, field.description or ""


def parts() -> Iterator[str]:
    """Yield every part that is installed, with its options."""
    yield "# Parts\n"
    yield "A part's name is `kind:rest`; options are `--set ROLE.OPTION=VALUE`. `python:FILE.py:FUNCTION` works in every role.\n"
    for role in registry.ROLES:
        rows = [(f"`{each.kind}:`", ", ".join(_options(role, each.kind)), each.summary) for each in registry.listed(role)]
        yield f"## {role.capitalize()}\n"
        yield from _table(("name", "options", "what it is"), rows)


def _options(role: str, kind: str) -> list[str]:
    if kind == "python":
        return []
    factory = registry.factory(role, kind)
    spec = registry.options_class(factory)
    if spec is not None:
        return [f"`{field.name}`" for field in dataclasses.fields(spec)]
    kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return [f"`{name}`" for name, each in list(inspect.signature(factory).parameters.items())[1:] if each.kind not in kinds]


def api() -> Iterator[str]:
    """Yield the modules that users import."""
    yield "# Python interface\n"
    for module, purpose in API.items():
        yield f"## {module}\n"
        yield f"{purpose}\n"
        yield (
            f"```{{eval-rst}}\n.. automodule:: {module}\n   :members:\n   :imported-members:\n```\n"
            if module == "counterfoil"
            else (f"```{{eval-rst}}\n.. automodule:: {module}\n   :members:\n```\n")
        )


def modules() -> Iterator[str]:
    """Yield every module with the first sentence of its docstring."""
    yield "# Modules\n"
    yield "The package's modules by entry; the [design](../design/house.md) says how they hang together.\n"
    by_entry: dict[str, list[tuple[str, str]]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        purpose = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n\n")[0]
        by_entry.setdefault(name.partition("/")[0], []).append((f"`{name}`", purpose))
    single = [row for rows in by_entry.values() if len(rows) == 1 for row in rows]
    yield from _table(("module", "what it is for"), single)
    for entry, rows in by_entry.items():
        if len(rows) > 1:
            yield f"## {entry}\n"
            yield from _table(("module", "what it is for"), rows)


def _table(heads: tuple[str, ...], rows: Any) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield "|" + "---|" * len(heads)
    for row in rows:
        yield "| " + " | ".join(" ".join(str(cell).split()).replace("|", "\\|") for cell in row) + " |"
    yield ""
