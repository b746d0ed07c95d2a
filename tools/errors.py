"""List the errors that tests hold: which exception, and what its message says.

`python tools/errors.py` prints them by exception. With a commit, those of its tests are printed that no test of today expects:
a pattern counts as held if most of its words stand together in one that a test matches on, itself or in a table of the test.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
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
    """The exceptions that a test file expects, with their patterns; those of a table where a test matches on a column of it."""
    module = ast.parse(text)
    tables = [node.value for node in module.body if isinstance(node, ast.Assign | ast.AnnAssign) and node.value]
    for test in (node for node in ast.walk(module) if isinstance(node, ast.FunctionDef)):
        marks = [argument for mark in test.decorator_list if isinstance(mark, ast.Call) for argument in mark.args[1:]]
        for node in ast.walk(test):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("raises") and node.args:
                match = [word.value for word in node.keywords if word.arg == "match"]
                patterns = [" ".join(_texts(match))]
                if any(isinstance(part, ast.Name | ast.Attribute) for each in match for part in ast.walk(each)):
                    patterns += _texts(marks) or _texts(tables)
                yield from (Held(ast.unparse(node.args[0]), pattern, file) for pattern in patterns if pattern or not match)


def _texts(nodes: Iterable[ast.AST]) -> list[str]:
    parts = (part.value for node in nodes for part in ast.walk(node) if isinstance(part, ast.Constant))
    return [part for part in parts if isinstance(part, str)]


def words(pattern: str) -> set[str]:
    """The words of a pattern, without what belongs to regular expressions."""
    return set(re.findall(r"[a-z][a-z_]+", re.sub(r"\\.|\(\?[:=!]", " ", pattern.lower())))


def list_held(commit: str | None = None) -> list[Held]:
    """The expectations of the tests in the working tree, or of a commit."""
    if commit is None:
        files = {str(file.relative_to(ROOT)): file.read_text() for file in sorted((ROOT / "tests").rglob("*.py"))}
    else:
        names = [name for name in _git("ls-tree", "-r", "--name-only", commit, "tests").split() if name.endswith(".py")]
        files = {name: _git("show", f"{commit}:{name}") for name in names}
    return [each for name, text in files.items() for each in expectations(text, name)]


def _holds(known: set[str], wanted: set[str]) -> bool:
    return len(wanted & known) >= ENOUGH * len(wanted)


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def main() -> None:
    """Print what is held, or what of a commit is no longer."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("commit", nargs="?", help="compare with the tests of this commit")
    commit = parser.parse_args().commit
    today = list_held()
    if commit is None:
        for exception, count in Counter(each.exception for each in today).most_common():
            print(f"{count:5d}  {exception}")
        return
    known = [words(each.pattern) for each in today]
    before = sorted({each for each in list_held(commit) if words(each.pattern)})
    lost = [each for each in before if not any(_holds(one, words(each.pattern)) for one in known)]
    print(f"{len(before)} patterns at {commit}, {len(before) - len(lost)} held today")
    for each in lost:
        print(f"{each.exception}: {each.pattern}  [{each.file}]")


if __name__ == "__main__":
    main()
