"""The documentation names what is there, the changelog is short, and results become tables."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
from pathlib import Path

import pytest

from counterfoil.cli import app as cli

ROOT = Path(__file__).parents[2]
PAGES = [
    *sorted(path for path in (ROOT / "docs").rglob("*.md") if not {"_build", "generated"} & set(path.parts)),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "lab/README.md")),
]
GENERATED = {"commands", "settings", "parts", "api", "lab", "statistics", "speed", "measurements", "papers"}
BLOCK = re.compile(r"^```(?:sh|bash|console)?\n(.*?)^```", re.DOTALL | re.MULTILINE)
SPAN = re.compile(r"`(counterfoil [^`]+)`")
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def commands(text: str) -> list[list[str]]:
    """Split every line that calls the command into words."""
    lines = [line.strip() for block in BLOCK.findall(text) for line in block.replace("\\\n", " ").splitlines()]
    lines = [line for line in lines if line.startswith("counterfoil ")] + SPAN.findall(text)
    found = []
    for line in lines:
        try:
            found.append(shlex.split(line, comments=True))
        except ValueError:  # prose in backquotes with an apostrophe
            found.append(line.split())
    return found


def test_no_page_promises_more_intervals_than_there_are() -> None:
    texts = {page.relative_to(ROOT).as_posix(): " ".join(page.read_text(encoding="utf-8").split()) for page in PAGES}
    promise = re.compile(
        r"interval (with|for|on) (\w+ )?(every|each|all) number|(every|each) number \w+ (its|a|an) [^.]*interval", re.I
    )
    assert promise.search("and a 95 % interval with nearly every number")
    assert [name for name, text in texts.items() if promise.search(text)] == []
    exact = "Fréchet distance has none: few images bias it upwards"
    assert [name for name in ("docs/index.md", "docs/concepts/statistics.md") if exact not in texts[name]] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_commands_and_options_exist(page: Path) -> None:
    for words in commands(page.read_text(encoding="utf-8")):
        names = [word for word in words[1:] if not word.startswith("-")]
        if not names or not re.fullmatch(r"[a-z-]+", names[0]):
            continue
        assert names[0] in cli.COMMANDS, f"{page.name}: {' '.join(words)}"
        options = {option for each in cli.load(names[0]).params for option in (*each.opts, *each.secondary_opts)}
        for word in words:
            if word.startswith("--"):
                assert word.partition("=")[0].rstrip(",.;:") in options | {"--help", "--debug"}, f"{page.name}: {' '.join(words)}"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_to_files(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    for target in LINK.findall(text):
        generated = "generated/" in target and Path(target).stem in GENERATED
        if "://" not in target and not target.startswith("mailto:") and not generated:
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_page_is_reached_from_the_index() -> None:
    reached: set[Path] = set()
    waiting = [ROOT / "docs" / "index.md"]
    while waiting:
        page = waiting.pop()
        if page in reached or not page.is_file():
            continue
        reached.add(page)
        for block in re.findall(r"```\{toctree\}\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL):
            for line in block.splitlines():
                name = re.sub(r"^.*<(.*)>$", r"\1", line.strip())
                if name and not name.startswith(":"):
                    waiting.append((page.parent / f"{name}.md").resolve())
    docs = {path for path in (ROOT / "docs").rglob("*.md") if not {"_build", "generated"} & set(path.parts)}
    assert docs <= reached, sorted(path.name for path in docs - reached)


def test_the_design_names_files_that_are_there() -> None:
    text = (ROOT / "docs" / "design" / "house.md").read_text(encoding="utf-8").split("## Where things were before")[0]
    named = re.findall(r"`([a-z_/]+\.(?:py|css))`", text)
    here = {path.relative_to(ROOT / "src/counterfoil").as_posix() for path in (ROOT / "src/counterfoil").rglob("*.*")}
    assert len(named) > 40
    assert [name for name in named if not any(f"/{path}".endswith(f"/{name}") for path in here)] == []


def test_a_result_becomes_a_table_that_says_whether_it_is_old(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec and spec.loader
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    rows = [
        {"way": way, "FMR": at + 36.94, "FMR low": 32.38, "FMR high": 41.88, "seed": 0}
        for at, way in enumerate(("a", "b", "c|d"))
    ]
    content = {
        "about": "Three.",
        "command": "python -m bench.x",
        "date": "2026-11-19",
        "covers": ["bench/results.py"],
        "rows": rows,
    }
    content |= {"hardware": {"processor": "CPU", "cores": 2}, "versions": {}, "code": generate.code(["bench/results.py"])}
    (tmp_path / "lab_x.json").write_text(json.dumps(content))
    page = "\n".join(dict(generate.results(tmp_path))["lab"])
    assert "In every row: seed 0." in page
    assert "| a | 36.94 (32.38 to 41.88) |" in page and "| c\\|d | 38.94" in page
    assert "Older" not in page
    (tmp_path / "lab_x.json").write_text(json.dumps({**content, "code": "another"}))
    assert "**Older than the code.**" in "\n".join(dict(generate.results(tmp_path))["lab"])


ENTRIES = [line for line in (Path(__file__).parents[2] / "CHANGELOG.md").read_text().splitlines() if line.startswith("- ")]


def test_each_entry_is_one_line_of_at_most_25_words():
    assert len(ENTRIES) > 20
    assert [line for line in ENTRIES if len(line[2:].split()) > 25] == []


def test_the_present_places_of_earlier_modules_are_there() -> None:
    """In the last table of the design, what stands as code in the second column is a module or folder of today."""
    trees = (ROOT / "src/counterfoil", ROOT / "lab")
    table = (ROOT / "docs" / "design" / "house.md").read_text(encoding="utf-8").split("## Where things were before")[1]
    rows = [line.strip("| ").split(" | ", 1)[1] for line in table.splitlines() if line.startswith("| `")]
    places = {name.rstrip("/") for row in rows for name in re.findall(r"`([a-z_/]+)`", row)}
    here = {f"/{path.relative_to(ROOT).with_suffix('')}" for tree in trees for path in [tree, *tree.rglob("*")]}
    assert len(rows) > 30 and len(places) > 100
    assert [place for place in places if not any(path.endswith(f"/{place}") for path in here)] == []
