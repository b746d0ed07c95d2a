"""Makes docs/benchmarks.md of the files under bench/results.

    python -m bench.page [--check]

With --check it only says whether the page is up to date.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from bench.results import FOLDER

ELSEWHERE = {"faithfulness"}  # says nothing of speed; docs/editing.md shows it
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
HEAD = """# Benchmarks

What was measured, with the command that prints it. Times depend on the machine; each table says which one it was.
This page is made by `python -m bench.page` from the files under `bench/results`.
"""


def page(folder: Path = FOLDER) -> str:
    """The page as Markdown."""
    found = [_content(path) for path in sorted(folder.glob("*.json")) if path.stem not in ELSEWHERE]
    return "\n".join([HEAD, *(section(content) for content in found if "rows" in content)])


def _content(path: Path) -> dict[str, Any]:
    """A file in the form that `keep` writes; others, rows by name beside facts about the machine, are brought into it."""
    content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        return {}
    rows = content.get("rows")
    if isinstance(rows, list):
        return {"name": path.stem, "about": "", **content}
    facts = content.get("about", content)
    rows = rows if isinstance(rows, dict) else {name: row for name, row in content.items() if isinstance(row, dict)}
    said = ", ".join(f"{name} {_cell(value)}" for name, value in facts.items() if isinstance(value, int | float | str) and value)
    listed = [{"what": name, **_numbers(row)} for name, row in rows.items() if name != "about" and _numbers(row)]
    return {"name": path.stem, "about": f"{said}." if said else "", "rows": listed} if listed else {}


def _numbers(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if isinstance(value, int | float | str)}


def section(content: dict[str, Any]) -> str:
    """One benchmark."""
    rows = content["rows"]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    table = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    table += [f"| {' | '.join(_cell(row.get(name)) for name in columns)} |" for row in rows]
    return "\n".join([f"## {content['name']}", "", content["about"], "", *table, "", *_made_by(content)])


def _made_by(content: dict[str, Any]) -> list[str]:
    """The command, the date and the machine."""
    if "command" not in content:
        return []
    machine = content["hardware"]
    gpu = f", {', '.join(machine['gpu'])}" if machine.get("gpu") else ""
    libraries = ", ".join(f"{name} {number}" for name, number in content["versions"].items())
    where = f"{machine['cores']} cores of {machine['processor']}{gpu}"
    return [f"`{content['command']}`, {content['date']}, {where}; {libraries}.", ""]


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    if isinstance(value, int):
        return f"{value:,}"
    return str(value).replace("|", "\\|").replace("\n", " ")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    text = page()
    if not given.check:
        PAGE.write_text(text, encoding="utf-8")
    elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
        sys.exit("docs/benchmarks.md is not up to date; run python -m bench.page")


if __name__ == "__main__":
    main()
