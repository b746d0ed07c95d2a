"""Measure the layout of the package and hold it to the limits in house.toml.

A limit only falls: `--lower` sets each to today's number where that is smaller. The target is what the layout is heading for.
`--show NAME` lists what stands behind a number.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import words

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src/counterfoil"
LIMITS = Path(__file__).with_suffix(".toml")
BLOCK = 8  # lines that make a repeated block
PROTOCOL = re.compile(r"""["'](?:fmr|lance|imagenet-d)["']|protocols\.(?:fmr|lance|imagenet_d|static)\b""")


def sources() -> dict[str, str]:
    """Return the text of every module of the product."""
    files = sorted(PACKAGE.rglob("*.py"))
    return {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in files}


def repeated_blocks(texts: dict[str, str]) -> list[str]:
    """Find runs of lines that occur in more than one place, ignoring indentation, comments and imports."""
    places: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name, text in texts.items():
        lines = [(number, line.strip()) for number, line in enumerate(text.split("\n"), 1)]
        lines = [(n, line) for n, line in lines if len(line) > 3 and not line.startswith(("#", "import ", "from ", '"'))]
        for at in range(len(lines) - BLOCK + 1):
            places[tuple(line for _, line in lines[at : at + BLOCK])].append(f"{name}:{lines[at][0]}")
    ends: set[str] = set()
    found = []
    for where in (where for where in places.values() if len(where) > 1):
        if not ends.intersection(where):
            found.append("  ".join(where))
        ends = {f"{name}:{int(line) + step}" for name, line in (place.rsplit(":", 1) for place in where) for step in range(1, 4)}
    return found


def internal_imports(name: str, tree: ast.Module) -> Iterator[str]:
    """Yield the packages of the product that a module imports, lazily or not, but not for type checking alone."""
    typing = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test)
        for node in ast.walk(block)
    }
    for node in ast.walk(tree):
        if id(node) in typing:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("counterfoil."))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("counterfoil"):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def cycle(trees: dict[str, ast.Module]) -> list[str]:
    """Return the packages in import cycles, at the top level of the product."""
    edges: dict[str, set[str]] = defaultdict(set)
    for name, tree in trees.items():
        here = name.removesuffix(".py").split("/")[0]
        edges[here] |= {[*module.split("."), ""][1] for module in internal_imports(name, tree)} - {here, ""}
    reach: dict[str, set[str]] = {}
    for start in edges:
        seen, todo = set[str](), list(edges[start])
        while todo:
            if (node := todo.pop()) not in seen:
                seen.add(node)
                todo.extend(edges.get(node, ()))
        reach[start] = seen
    return sorted(name for name in edges if name in reach[name])


def measure() -> dict[str, list[str] | int]:
    """Return every number of the layout, as a list of places where there are places."""
    texts = sources()
    trees = {name: ast.parse(text) for name, text in texts.items()}
    lengths = {name: text.count("\n") for name, text in texts.items()}
    classes = Counter(node.name for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    longest = max(lengths, key=lambda name: lengths[name])
    counted = words.count(tomllib.loads(words.RULES.read_text())["rule"])
    return {
        "entries": sorted({name.split("/")[0] for name in texts if not name.startswith("__")}),
        "files": len(texts),
        "lines": sum(lengths.values()),
        "median_lines": round(median(lengths.values())),
        "largest_lines": [longest] * lengths[longest],
        "repeated_classes": [f"{name} {n}x" for name, n in classes.items() if n > 1],
        "repeated_blocks": repeated_blocks(texts),
        "files_naming_a_protocol": [n for n, text in texts.items() if not n.startswith("protocols/") and PROTOCOL.search(text)],
        "packages_in_cycles": cycle(trees),
        "dialect": [place for places in counted.values() for place in places],
    }


def main() -> None:
    """Print the numbers next to limits and targets, and fail where one is over its limit."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--lower", action="store_true", help="set limits to today's numbers where those are smaller, but not below targets"
    )
    parser.add_argument("--show", metavar="NAME", help="list what stands behind a number")
    options = parser.parse_args()
    measured = measure()
    if options.show:
        shown = measured[options.show]
        print("\n".join(dict.fromkeys(shown)) if isinstance(shown, list) else shown)
        return
    numbers = {name: value if isinstance(value, int) else len(value) for name, value in measured.items()}
    rows = tomllib.loads(LIMITS.read_text())
    if options.lower:
        text = LIMITS.read_text()
        for name, row in rows.items():
            limit = min(row["limit"], max(row["target"], numbers[name]))
            text = re.sub(rf"(?m)^({name} = {{ limit = )\d+", rf"\g<1>{limit}", text)
        LIMITS.write_text(text)
        rows = tomllib.loads(text)
    print(f"{'':24}{'today':>8}{'limit':>8}{'target':>8}")
    over = [name for name, row in rows.items() if numbers[name] > row["limit"]]
    for name, row in rows.items():
        note = f"  over its limit; tools/house.py --show {name}" if name in over else ""
        print(f"{name:24}{numbers[name]:8,}{row['limit']:8,}{row['target']:8,}{note}")
    sys.exit(bool(over))


if __name__ == "__main__":
    main()
