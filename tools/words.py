"""Check the wording of code and documentation against the rules in words.toml.

A rule has an allowance: the number of lines that may still break it. More lines than that fail the check. `--lower` sets every
allowance to today's count where that is smaller, and never raises one. `--show ID` lists the lines behind a rule's count.
`--pages` counts the words of each page of the documentation, without code; limits on them are in words.toml too.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RULES = Path(__file__).with_suffix(".toml")
CODE = re.compile(
    r"""(?P<comment>\#[^\n]*)"""
    r"""|(?P<doc>(?<=\n)[ ]*\"{3}.*?\"{3}|\A\"{3}.*?\"{3})"""
    r"""|[a-zA-Z]{0,2}(?P<text>\"{3}.*?\"{3}|'{3}.*?'{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')"""
    r"""|(?P<name>(?:^[ ]*@[\w.]*property\n)?^[ ]*(?:async[ ])?def[ ]\w+)""",
    re.DOTALL | re.MULTILINE,
)
NAMES = re.compile(r"`[^`]*`")
WORD = re.compile(r"[^\s|]*\w[^\s|]*")
FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)

OWN = {"tools/words.py", "tests/test_tools.py"}  # they quote what they look for

Line = tuple[str, int, str, str]  # file, line number, kind (prose, start or name), text


def lines_of(path: Path) -> Iterator[Line]:
    """Yield the lines of a file that people read, each with its kind."""
    text = path.read_text()
    name = path.relative_to(ROOT).as_posix()
    if path.suffix != ".py":
        plain = FENCE.sub(lambda fence: "\n" * fence[0].count("\n"), text)
        yield from ((name, number, "prose", NAMES.sub("", line)) for number, line in enumerate(plain.split("\n"), 1))
        return
    number = at = 0
    for found in CODE.finditer(text):
        number, at = number + text.count("\n", at, found.start()), found.start()
        kind, words = str(found.lastgroup), found[str(found.lastgroup)]
        if kind == "name":
            if "@" not in words:
                yield name, number + 1, "name", words.split()[-1]
            continue
        if kind == "text" and " " not in words:
            continue  # a key or an identifier, not a message
        if kind == "doc":
            yield name, number + 1, "start", words.strip(' "').lstrip()
        for row, line in enumerate(words.split("\n")):
            yield (
                name,
                number + 1 + row,
                "prose",
                re.sub(r"\{[^{}]*\}|`[^`]*`", "", line) if kind == "text" else NAMES.sub("", line),
            )


def count(rules: list[dict[str, str]]) -> dict[str, list[str]]:
    """Return the places that break each rule."""
    listed = subprocess.run(
        ["git", "ls-files", "*.py", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    found: dict[str, list[str]] = {rule["id"]: [] for rule in rules}
    patterns = [(rule["id"], rule.get("kind", "prose"), re.compile(rule["pattern"], re.IGNORECASE)) for rule in rules]
    for path in (ROOT / file for file in listed if file not in OWN):
        for file, number, kind, line in lines_of(path) if path.is_file() else ():
            for rule, wanted, pattern in patterns:
                if kind == wanted and (match := pattern.search(line)):
                    found[rule].append(f"{file}:{number}: {match[0].strip()}")
    return found


def pages() -> dict[str, int]:
    """Count the words of each page of the documentation, generated ones included if they are there; code does not count."""
    found = [path for path in sorted((ROOT / "docs").rglob("*.md")) if "_build" not in path.parts]
    return {path.relative_to(ROOT).as_posix(): len(WORD.findall(FENCE.sub("", path.read_text()))) for path in found}


def too_long(limits: dict[str, int]) -> list[str]:
    """Name the limits on the documentation that are exceeded."""
    if not limits:
        return []
    words = pages()
    hand = sorted(count for page, count in words.items() if "/generated/" not in page)
    sizes = {"words_by_hand": sum(hand), "words": sum(words.values()), "median_page": hand[len(hand) // 2]}
    return [f"docs: {name} {sizes[name]:,}, {limit:,} allowed" for name, limit in limits.items() if sizes[name] > limit]


def main() -> None:
    """Compare the counts with the allowances, lower these, or list the places of one rule."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--lower", action="store_true", help="set allowances to today's counts where those are smaller")
    parser.add_argument("--show", metavar="ID", help="list the places that break a rule")
    parser.add_argument("--pages", action="store_true", help="count the words of each page of the documentation")
    options = parser.parse_args()
    settings = tomllib.loads(RULES.read_text())
    if options.pages:
        for page, words in pages().items():
            print(f"{words:7,}  {page}")
        print(f"{sum(pages().values()):7,}  together")
        return
    rules = settings["rule"]
    found = count(rules)
    if options.show:
        print("\n".join(found[options.show]))
        return
    over = [rule for rule in rules if len(found[rule["id"]]) > rule["allowed"]]
    if options.lower:
        text = RULES.read_text()
        for rule in rules:
            low = min(rule["allowed"], len(found[rule["id"]]))
            text = re.sub(rf'(id = "{rule["id"]}"\n(?:.+\n)*?allowed = )\d+', rf"\g<1>{low}", text)
        RULES.write_text(text)
    for rule in over:
        n, allowed = len(found[rule["id"]]), rule["allowed"]
        print(f"{rule['id']}: {n} places, {allowed} allowed; write {rule['use']}; tools/words.py --show {rule['id']}")
    long = too_long(settings.get("docs", {}))
    print(*long, sep="\n", end="\n" if long else "")
    print(f"words: {sum(map(len, found.values()))} places, {sum(rule['allowed'] for rule in rules)} allowed")
    sys.exit(bool(over or long))


if __name__ == "__main__":
    main()
