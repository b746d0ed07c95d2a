"""Reading a report back: its pages as elements, its scripts as data, its folder as bytes."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any


@dataclass
class Element:
    """One element with its own text and that of everything inside it."""

    name: str
    attributes: dict[str, str]
    pieces: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The text as it stands in the page."""
        return "".join(self.pieces)


@dataclass
class Document(HTMLParser):
    """A page as a flat list of elements."""

    elements: list[Element] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._open: list[Element] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {key: value or "" for key, value in attrs})
        self.elements.append(element)
        if tag not in ("meta", "link", "input", "img", "br"):
            self._open.append(element)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th", "li", "dt", "dd"):
            self.handle_data(" ")  # what stands in another cell is another word
        while self._open and self._open.pop().name != tag:
            pass

    def handle_data(self, data: str) -> None:
        for element in self._open:
            element.pieces.append(data)

    def all(self, name: str) -> list[Element]:
        """Every element of a name."""
        return [element for element in self.elements if element.name == name]

    @property
    def rows(self) -> list[str]:
        """The text of every table row, with single spaces."""
        return [" ".join(row.text.split()) for row in self.all("tr")]

    @property
    def words(self) -> str:
        """All text a reader sees, with single spaces."""
        return " ".join(self.all("body")[0].text.split())


def read(page: Path) -> Document:
    """A page of a report."""
    document = Document()
    document.feed(page.read_text(encoding="utf-8"))
    document.close()
    return document


def data(script: Path) -> Any:
    """Read the data of a script."""
    text = script.read_text(encoding="ascii")
    return json.loads(text[text.index("(") + 1 : text.rindex(")")])


def fingerprint(folder: Path) -> dict[str, str]:
    """Every file of a folder with the hash of its content."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
