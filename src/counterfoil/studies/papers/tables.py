"""The published tables, read from the package."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

from counterfoil.core.errors import UsageError

Cell = str | float


@dataclass(frozen=True)
class Elsewhere:
    """Another value that the same paper gives for the same thing."""

    row: int
    column: str
    value: float
    where: str


@dataclass(frozen=True)
class Published:
    """One table of a paper."""

    number: int
    title: str
    kind: str  # models, generators, transfer or classes, by what a row is; facts if no run has such rows
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    elsewhere: tuple[Elsewhere, ...]
    notes: tuple[str, ...]
    set_up: Mapping[str, str]  # as the paper states it for this table

    @property
    def labels(self) -> tuple[str, ...]:
        """The columns that say what a row is about."""
        return tuple(column for column, cell in zip(self.columns, self.rows[0], strict=True) if isinstance(cell, str))

    @property
    def numbers(self) -> tuple[str, ...]:
        """The columns that hold values."""
        return tuple(column for column in self.columns if column not in self.labels)

    def row(self, place: int) -> dict[str, Cell]:
        """A row by the names of its columns."""
        return dict(zip(self.columns, self.rows[place], strict=True))


@dataclass(frozen=True)
class Paper:
    """A paper's tables."""

    title: str
    authors: str
    tables: Mapping[int, Published]

    def table(self, number: int) -> Published:
        """The table of that number, or UsageError."""
        if number not in self.tables:
            raise UsageError(f"no table {number} in {self.title!r}; it has {min(self.tables)} to {max(self.tables)}")
        return self.tables[number]


@cache
def load(name: str = "fmr") -> Paper:
    """A paper by its short name."""
    content = json.loads((resources.files(__package__) / f"{name}.json").read_text(encoding="utf-8"))
    tables = {}
    for entry in content["tables"]:
        tables[entry["number"]] = Published(
            number=entry["number"],
            title=entry["title"],
            kind=entry["kind"],
            columns=tuple(entry["columns"]),
            rows=tuple(tuple(row) for row in entry["rows"]),
            elsewhere=tuple(Elsewhere(**each) for each in entry.get("also", [])),
            notes=tuple(entry.get("notes", [])),
            set_up={**content["set_up"], **entry.get("set_up", {})},
        )
    return Paper(content["title"], content["authors"], tables)
