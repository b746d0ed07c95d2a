"""List the errors that tests hold: which exception, and what its message says.

`python tools/errors.py` prints them by exception. With a commit, those of its tests that no test holds any more are printed:
a pattern counts as held if a test expects the same words, or if most of its words stand in a pattern of today or in the source.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
ENOUGH = 0.75  # of a pattern's words


class Held(NamedTuple):
    """One expectation of a test."""

    exception: str
    pattern: str
    file: str


def expectations(text: str, file: str) -> Iterator[Held]:
    """The exceptions that a test file expects, with their patterns, also those in the tables of its tests."""
    for test in ast.walk(ast.parse(text)):
        if not isinstance(test, ast.FunctionDef):
            continue
        for node in ast.walk(test):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("raises") and node.args:
                match = next((word.value for word in node.keywords if word.arg == "match"), None)
                exception, rows = ast.unparse(node.args[0]), _column(test, match)
                yield from (Held(exception, row, file) for row in rows or [_text(match)])


def _column(test: ast.FunctionDef, match: ast.expr | None) -> list[str]:
    """The patterns in the table of a parametrized test that expects one of its columns."""
    for mark in test.decorator_list:
        if isinstance(mark, ast.Call) and ast.unparse(mark.func).endswith("parametrize") and isinstance(match, ast.Name):
            names = re.findall(r"\w+", _text(mark.args[0]))
            if match.id in names and isinstance(mark.args[1], ast.List):
                at, one = names.index(match.id), len(names) == 1
                rows = [row if one else row.elts[at] for row in mark.args[1].elts if one or isinstance(row, ast.Tuple)]
                return [_text(row) for row in rows]
    return []


def _text(node: ast.expr | None) -> str:
    """The constant parts of an expression for a pattern."""
    found = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant)] if node is not None else []
    return " ".join(str(part) for part in found)


def words(pattern: str) -> list[str]:
    """The words of a pattern, without what belongs to regular expressions."""
    return re.findall(r"[a-z][a-z_]+", re.sub(r"\\.|\(\?[:=!]", " ", pattern.lower()))


def at_commit(commit: str) -> Iterator[Held]:
    """The expectations of a commit's tests."""
    listed = _git("ls-tree", "-r", "--name-only", commit, "tests")
    for file in (name for name in listed.splitlines() if name.endswith(".py")):
        yield from expectations(_git("show", f"{commit}:{file}"), file)


def now() -> Iterator[Held]:
    """The expectations of the tests in the working tree."""
    for file in sorted((ROOT / "tests").rglob("*.py")):
        yield from expectations(file.read_text(), str(file.relative_to(ROOT)))


def texts(top: str) -> list[set[str]]:
    """The words of every text in the Python files of a folder."""
    trees = [ast.parse(file.read_text()) for file in (ROOT / top).rglob("*.py")]
    found = (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.JoinedStr | ast.Constant))
    return [set(words(_text(node))) for node in found]


def best(pattern: str, others: list[set[str]]) -> float:
    """The largest share of a pattern's words that stands in one of the others."""
    wanted = set(words(pattern))
    return max((len(wanted & other) / len(wanted) for other in others), default=0.0) if wanted else 1.0


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def main() -> None:
    """Print what is held, or what of a commit is no longer."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("commit", nargs="?", help="compare with the tests of this commit")
    options = parser.parse_args()
    held = list(now())
    if options.commit is None:
        for exception, count in Counter(each.exception for each in held).most_common():
            print(f"{count:5d}  {exception}")
        return
    today, source = texts("tests"), [*texts("src"), *texts("lab")]
    before = sorted({each for each in at_commit(options.commit) if words(each.pattern)})
    lost = [each for each in before if best(each.pattern, today) < ENOUGH]
    print(f"{len(before)} patterns at {options.commit}, {len(before) - len(lost)} held today")
    for each in lost:
        where = "in the source" if best(each.pattern, source) >= ENOUGH else "gone"
        print(f"{where:14s} {each.exception}: {each.pattern}  [{each.file}]")


if __name__ == "__main__":
    main()
