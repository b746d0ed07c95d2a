"""The tools of `make lint`, and the suite itself: groups stay together, and no test can hang for ever."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parent.parent / "tools"

MODULE = '''"""Where things are."""

LABEL = "picture"


@property
def picture_told(self):
    return f"a {picture} of"  # no picture


def told():
    """Return
    the picture."""
    return "one picture"
'''


@pytest.fixture
def words(tmp_path, monkeypatch):
    """The tool in a repository of its own with one module and one page."""
    for name in ("words.py", "house.py"):
        (tmp_path / "tools" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "tools" / name).write_text((TOOLS / name).read_text())
    (tmp_path / "module.py").write_text(MODULE)
    (tmp_path / "page.md").write_text("A picture.\n```sh\na picture\n```\nand `picture`\n")
    git = ["git", "-C", str(tmp_path)]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "module.py", "page.md"], check=True)

    def run(*options: str, allowed: tuple[int, int, int] = (9, 9, 9)) -> tuple[int, list[str]]:
        kinds = (("picture", r"\bpictures?\b", "prose"), ("start", r"\AWhere\b", "start"), ("verb", r"\Atold\Z", "name"))
        rules = (
            f'[[rule]]\nid = "{name}"\npattern = \'{pattern}\'\nuse = "image"\nkind = "{kind}"\nallowed = {n}\n'
            for (name, pattern, kind), n in zip(kinds, allowed, strict=True)
        )
        (tmp_path / "tools/words.toml").write_text("\n".join(rules))
        done = subprocess.run([sys.executable, tmp_path / "tools/words.py", *options], capture_output=True, text=True)
        return done.returncode, done.stdout.splitlines()

    run.rules = tmp_path / "tools/words.toml"
    return run


def test_words_are_sought_in_prose_and_not_in_code(words):
    assert words("--show", "picture")[1] == [
        "module.py:8: picture",
        "module.py:13: picture",
        "module.py:14: picture",
        "page.md:1: picture",
    ]
    assert words("--show", "start")[1] == ["module.py:1: Where"]
    assert words("--show", "verb")[1] == ["module.py:11: told"]


def test_more_places_than_allowed_fail(words):
    assert words(allowed=(4, 1, 1))[0] == 0
    status, lines = words(allowed=(3, 1, 1))
    assert status == 1
    assert lines[0].startswith("picture: 4 places, 3 allowed; write image")


def test_lowering_never_raises_an_allowance(words):
    words("--lower", allowed=(3, 5, 0))
    assert [line for line in words.rules.read_text().split("\n") if "allowed" in line] == [
        "allowed = 3",
        "allowed = 1",
        "allowed = 0",
    ]


ERRORS = """import pytest

@pytest.mark.parametrize(("given", "message"), [(1, "too small"), (2, "too large")])
def test_numbers(given, message):
    with pytest.raises(ValueError, match=message):
        check(given)

def test_names():
    with pytest.raises(BadPart, match=rf"{name}: no such part"):
        find("x")
"""


def test_errors_that_tests_hold_are_read_from_their_tables_too() -> None:
    code = f"import errors; print([tuple(each)[:2] for each in errors.expectations({ERRORS!r}, 'test_x.py')])"
    answer = subprocess.run([sys.executable, "-c", code], cwd=TOOLS, capture_output=True, text=True, check=True).stdout
    assert ast.literal_eval(answer)[:2] == [("ValueError", "too small"), ("ValueError", "too large")]
    exception, pattern = ast.literal_eval(answer)[2]
    assert exception == "BadPart" and "no such part" in pattern


def test_no_test_module_is_imported_by_another_or_by_a_benchmark() -> None:
    root = TOOLS.parent
    found = [
        f"{path.relative_to(root)}: {node.module}"
        for folder in ("tests", "bench", "lab", "examples", "docs")
        for path in sorted((root / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").rpartition(".")[2].startswith("test_")
    ]
    assert found == []


GROUPED = """
import os
import pytest

@pytest.mark.xdist_group("one")
@pytest.mark.parametrize("number", range(6))
def test_worker(number):
    with open("workers", "a") as file:
        print(os.environ["PYTEST_XDIST_WORKER"], file=file)
"""


def test_tests_of_one_group_run_in_one_process(tmp_path: Path) -> None:
    (tmp_path / "test_grouped.py").write_text(GROUPED)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2", "--dist", "loadgroup", "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout
    assert len(set((tmp_path / "workers").read_text().split())) == 1


def test_every_test_has_a_time_limit(pytestconfig) -> None:
    assert 0 < float(pytestconfig.getini("timeout")) <= 600
