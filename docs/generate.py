"""Write the generated pages: commands, settings, parts and the Python interface from the program, results from bench/results."""

from __future__ import annotations

import dataclasses
import fnmatch
import inspect
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from counterfoil import protocols
from counterfoil.cli import app as cli
from counterfoil.core.spec import PartSpec
from counterfoil.parts import registry
from counterfoil.studies import published

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from bench.results import FOLDER, code  # noqa: E402

OURS = {"counterfoil", "counterfoil_lab"}
API = {
    "counterfoil": "Run a protocol and read its results.",
    "counterfoil.parts.contracts": "What a part of each role has; a part of your own subclasses nothing.",
    "counterfoil.testing": "Checks that a part keeps its contract.",
    "counterfoil.core.errors": "Every error that is raised on purpose.",
}
RESULTS = {  # page: title, introduction, names of results
    "lab": (
        "Does it find planted flaws?",
        "In the lab it is known what a model has learned. An instrument is trusted once it reads known weights right.",
        ["lab_*"],
    ),
    "statistics": (
        "Statistics",
        "How often intervals contain the truth, and p-values of equal models ([methods](../concepts/statistics.md)).",
        ["intervals*", "coverage*", "few_images*"],
    ),
    "speed": (
        "Speed",
        "Times depend on the machine; compare within a table ([what is done](../concepts/speed.md)).",
        ["fmr_*", "engine*", "cpu_engine*", "diffusion*", "editing*", "sparse*", "precision*"],
    ),
    "measurements": ("All other measurements", "Reproducibility, scale, servers, rewriters, published tables.", ["*"]),
}
LONGEST = 8  # rows of a table on a page


def write(folder: Path) -> None:
    """Write the pages that changed."""
    folder.mkdir(exist_ok=True)
    pages: dict[str, Callable[[], Iterator[str]]] = {
        "commands": commands,
        "settings": settings,
        "parts": parts,
        "api": api,
        "papers": papers,
    }
    texts = {name: page() for name, page in pages.items()} | dict(results())
    for name, lines in texts.items():
        text = "\n".join(lines) + "\n"
        path = folder / f"{name}.md"
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def commands() -> Iterator[str]:
    """Yield the commands with their options; options of `run` that `doctor` shares are listed once."""
    yield "# Commands\n"
    yield "Exit codes: 0 done, 1 the run or the gate failed, 2 wrong use. An error is one line; `--debug` shows the traceback."
    yield "Commands with results take `--json FILE`; `-` prints JSON instead of text.\n"
    shared: set[str] = set()
    for name, entry in cli.COMMANDS.items():
        command = cli.load(name)
        yield f"## {name}\n"
        yield from _paragraphs(command.help or entry.summary)
        own = [
            each
            for each in command.params
            if each.name not in ("help", "json", "json_file", "as_json") and (name != "doctor" or each.name not in shared)
        ]
        if name == "run":
            shared = {each.name for each in own}
        if name == "doctor":
            yield "Takes the options of `run` that name parts and settings, and:\n"
        if own:
            yield from _table(("option", "default", "meaning"), map(_option, own))


def _paragraphs(text: str) -> Iterator[str]:
    for block in inspect.cleandoc(text).split("\n\n"):
        if block.startswith("\b"):
            yield "```sh\n" + block.removeprefix("\b").strip("\n") + "\n```\n"
        else:
            yield " ".join(block.split()) + "\n"


def _option(each: Any) -> tuple[str, str, str]:
    names = [*each.opts, *each.secondary_opts] if each.param_type_name == "option" else [each.metavar or str(each.name).upper()]
    default = "" if each.default in (None, False, (), "") or callable(each.default) else f"`{each.default}`"
    return ", ".join(f"`{name}`" for name in names), default, getattr(each, "help", "") or ""


def settings() -> Iterator[str]:
    """Yield every key of every protocol's specification; keys that all have are listed once."""
    yield "# Settings\n"
    yield "Every key can be given in a YAML file or as `--set KEY=VALUE`; a key that occurs once needs no section.\n"
    found = {each.name: each for each in map(protocols.get, protocols.names()) if type(each).__module__.split(".")[0] in OURS}
    keys = {name: list(_keys(each.spec)) for name, each in found.items()}
    shared = [row for row in next(iter(keys.values())) if all(row in rows for rows in keys.values())]
    yield "## Every protocol\n"
    yield from _table(("key", "default", "meaning"), shared)
    for name, rows in keys.items():
        yield f"## {name}\n"
        yield f"{found[name].title}.\n"
        yield from _table(("key", "default", "meaning"), [row for row in rows if row not in shared and row[0] != "`protocol`"])


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
    """Yield every part that comes with the package or the lab, with its options."""
    yield "# Parts\n"
    yield "A part's name is `kind:rest`; options are `--set ROLE.OPTION=VALUE`. `python:FILE.py:FUNCTION` works in every role.\n"
    for role in registry.ROLES:
        yield f"## {role.capitalize()}\n"
        rows: dict[tuple[str, str], list[str]] = {}
        for each in registry.list_parts(role):
            if each.kind == "python" or registry.factory(role, each.kind).__module__.split(".")[0] in OURS:
                rows.setdefault((", ".join(_options(role, each.kind)), each.summary), []).append(f"`{each.kind}:`")
        table = [(", ".join(kinds), options, summary) for (options, summary), kinds in rows.items()]
        yield from _table(("name", "options", "what it is"), table)


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
        more = "\n   :imported-members:" if module == "counterfoil" else ""
        yield f"## {module}\n\n{purpose}\n"
        yield f"```{{eval-rst}}\n.. automodule:: {module}\n   :members:{more}\n```\n"


def papers() -> Iterator[str]:
    """Yield what the papers report, the command for each, and how far it has been run."""
    yield "# The papers, item by item\n"
    yield "Stand-ins are tiny networks with weights in the published formats. Nothing was run with the published weights.\n"
    for paper in dict.fromkeys(name.partition("/")[0] for name in published.names()):
        yield f"## {published.title_of(paper)}\n"
        yield from _table(
            ("item", "command", "state"),
            ((what, f"`{run}`" if run else "", state) for what, run, state in published.items(paper)),
        )


def results(folder: Path = FOLDER) -> Iterator[tuple[str, Iterator[str]]]:
    """Yield each page of results with its lines; a result is on the first page that names it."""
    left = {path.stem: path for path in sorted(folder.glob("*.json"))}
    for page, (title, introduction, patterns) in RESULTS.items():
        named = [name for name in left if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)]
        found = [(name, json.loads(left.pop(name).read_text(encoding="utf-8"))) for name in named]
        yield page, _results(title, introduction, found)


def _results(title: str, introduction: str, found: list[tuple[str, dict[str, Any]]]) -> Iterator[str]:
    yield f"# {title}\n"
    yield f"{introduction}\n"
    for name, content in found:
        yield f"## {name.replace('_', ' ').capitalize()}\n"
        yield f"{content['about']}\n"
        rows = [_fold(row) for row in content["rows"]]
        columns = list(dict.fromkeys(column for row in rows for column in row))
        same = {column for column in columns if len(rows) > 2 and len({row.get(column) for row in rows}) == 1}
        if same:
            common = [f"{_title(column)} {_cell(rows[0][column])}" for column in columns if column in same]
            yield f"In every row: {', '.join(common)}.\n"
        shown = [column for column in content.get("shown", columns) if column not in same]
        yield from _table(map(_title, shown), [[_cell(row.get(column)) for column in shown] for row in rows[:LONGEST]])
        if len(rows) > LONGEST:
            yield f"{len(rows) - LONGEST} more rows in `bench/results/{name}.json`.\n"
        yield f"{_origin(content)}\n"


def _fold(row: dict[str, Any]) -> dict[str, Any]:
    """Put the ends of an interval behind its value: `36.9 (32.1 to 41.5)`."""
    folded = dict(row)
    for low in [name for name in row if name.endswith("low")]:
        stem = low.removesuffix("low")
        value, high = stem.rstrip(" _") or "value", f"{stem}high"
        if value in row and high in row:
            ends = _cell(folded.pop(low)), _cell(folded.pop(high))
            folded[value] = f"{_cell(row[value])} ({ends[0]} to {ends[1]})" if row[low] is not None else row[value]
            if stem:
                folded.pop(f"{stem}n", None)
    return folded


def _title(column: str) -> str:
    return column.replace("_", " ")


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _origin(content: dict[str, Any]) -> str:
    """Name command, date, commit and machine of a result, and say if it is older than its code."""
    machine = content["hardware"]
    where = machine.get("gpu", [])[:1] or ([f"{machine['cores']} cores"] if "cores" in machine else [])
    parts = [f"`{content['command']}`", f"{content['date']} {content.get('commit') or ''}".strip(), *where]
    fresh = content.get("covers") and content.get("code") == code(content["covers"])
    return f"{', '.join(parts)}.{'' if fresh else ' **Older than the code.**'}"


def _table(heads: Iterable[str], rows: Iterable[Iterable[Any]]) -> Iterator[str]:
    heads = list(heads)
    yield f"| {' | '.join(heads)} |"
    yield "|" + "---|" * len(heads)
    for row in rows:
        yield "| " + " | ".join(" ".join(str(cell).split()).replace("|", "\\|") for cell in row) + " |"
    yield ""
