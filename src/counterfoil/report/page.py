"""The parts of a page: a headline, image pairs, key numbers, cautions, and sections of blocks. `html.py` draws them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Literal

from counterfoil.core.records import Estimate
from counterfoil.metrics.tables import Table

STRIP = 6  # image pairs under a headline
KEY_NUMBERS = 6  # rows before any other table


@dataclass(frozen=True)
class StoredImage:
    """An image in the report: its file, and a smaller one for overviews if it is large. Paths from the report's folder."""

    full: str
    thumb: str = ""


@dataclass(frozen=True)
class Caution:
    """One thing to know. `stop` means that there is no result, `care` that it is easily misread."""

    kind: Literal["stop", "care", "note"]
    text: str


@dataclass(frozen=True)
class ImagePair:
    """A source image next to the one made of it, with the true class and what the model answered."""

    before: StoredImage | None
    after: StoredImage | None
    truth: str
    answer: str
    right: bool
    confidence: float | None = None
    words: tuple[str, str, str, str] | None = None  # an edited caption: same, taken out, put in, same
    note: str = ""
    to: str = ""  # where it opens


@dataclass(frozen=True)
class ImagePairs:
    """Image pairs side by side, under a title of their own."""

    pairs: Sequence[ImagePair]
    title: str = ""
    text: str = ""


@dataclass(frozen=True)
class Series:
    """One line of a chart."""

    title: str
    points: Sequence[tuple[float, Estimate]]
    colour: str = "guided"
    dashed: bool = False


@dataclass(frozen=True)
class Lines:
    """Values in per cent against a whole number, with bands for their intervals."""

    title: str
    across: str  # what the numbers below are
    series: Sequence[Series]
    text: str = ""


@dataclass(frozen=True)
class Fold:
    """Blocks that open when asked for."""

    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Code:
    """A command or file, to be copied."""

    text: str


@dataclass(frozen=True)
class Downloads:
    """Files to download: their addresses, and what they hold."""

    files: Sequence[tuple[str, str]]


Block = str | Table | Lines | ImagePairs | Fold | Code | Downloads


@dataclass(frozen=True)
class PageSection:
    """A part of a page under a heading."""

    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Gallery:
    """The filters of the gallery, with the meanings of the words; its images are in the scripts."""

    text: str
    scripts: Sequence[str]
    runs: Sequence[tuple[int, str]]
    outcomes: dict[str, str]
    endings: dict[str, str]
    arms: dict[str, str]


@dataclass(frozen=True)
class Page:
    """A page of a report."""

    title: str
    eyebrow: str
    headline: str
    name: str = "index.html"
    pairs: Sequence[ImagePair] = ()
    key_numbers: Table | None = None
    lead: Sequence[str] = ()
    cautions: Sequence[Caution] = ()
    sections: Sequence[PageSection] = field(default_factory=tuple)
    gallery: Gallery | None = None
    last: Sequence[PageSection] = field(default_factory=tuple)  # below the gallery

    def __post_init__(self) -> None:
        if len(self.pairs) > STRIP or (self.key_numbers and len(self.key_numbers.rows) > KEY_NUMBERS):
            raise ValueError(f"{self.name}: at most {STRIP} pairs and {KEY_NUMBERS} key numbers stand before the sections")


def program_version() -> str:
    """Counterfoil's version."""
    try:
        return version("counterfoil")
    except PackageNotFoundError:
        return "unknown"
