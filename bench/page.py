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

ELSEWHERE = {"faithfulness", "instrument", "instrument_background", "instrument_colour", "instrument_cpu"}
"""What says nothing of speed; docs/editing.md and docs/instrument.md show it."""
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
HEAD = """# Benchmarks

What was measured, with the command that prints it. Times depend on the machine; each table says which one it was.
This page is made by `python -m bench.page` from the files under `bench/results`.
"""


def page(folder: Path = FOLDER) -> str:
    """The page as Markdown."""
    found = [_content(path) for path in sorted(folder.glob("*.json")) if path.stem not in ELSEWHERE]
    return "\n".join([HEAD, *(section(content) for content in found)])


def _content(path: Path) -> dict[str, Any]:
    content = json.loads(path.read_text(encoding="utf-8"))
    lacking = {"about", "command", "date", "hardware", "versions", "rows"} - {*content}
    if lacking:
        sys.exit(f"{path}: no {', '.join(sorted(lacking))}; write it with bench.results.keep")
    return {"name": path.stem, **content}


def section(content: dict[str, Any]) -> str:
    """One benchmark."""
    rows = content["rows"]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    heads = [column.replace("_", " ") for column in columns]
    table = [f"| {' | '.join(heads)} |", f"|{'---|' * len(columns)}"]
    table += [f"| {' | '.join(_cell(row.get(name)) for name in columns)} |" for row in rows]
    return "\n".join([f"## {content['name']}", "", content["about"], "", *table, "", *_made_by(content)])


def _made_by(content: dict[str, Any]) -> list[str]:
    """The command, the date and the machine, as far as it is known."""
    machine = content["hardware"]
    processor = f"{machine['cores']} cores of {machine['processor']}" if "processor" in machine else ""
    where = ", ".join([*([processor] if processor else []), *machine.get("gpu", [])])
    libraries = ", ".join(f"{name} {number}" for name, number in content["versions"].items())
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
