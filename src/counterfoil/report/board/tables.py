"""The board's tables: results of one test, ranked as far as the images allow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from counterfoil.core.errors import UsageError
from counterfoil.metrics.comparison import compare
from counterfoil.metrics.fmr import MEASURES, observations_of
from counterfoil.report.board.answers import unpack
from counterfoil.report.board.entry import Entry, Test
from counterfoil.report.numbers import Number, number

RANKED = {"fmr": ("FMR_matched", "FMR"), "imagenet-d": ("PA",)}
"""What a protocol's models are ranked by; the first decides how rows are ordered."""


@dataclass(frozen=True)
class Row:
    """One result with where it stands."""

    entry: Entry
    label: str  # the model, told apart from others of its name
    ranks: Mapping[str, tuple[int, int]]  # by measure: best and worst rank that the images leave open
    report: str = ""  # address of its report
    marks: tuple[str, ...] = ()

    @property
    def results(self) -> dict[str, Any]:
        """Its numbers as a run's results have them, for charts."""
        return {name: each.model_dump() for name, each in self.entry.numbers.items()}

    def number(self, name: str) -> Number:
        """One of its numbers."""
        return number(self.results, name)

    def rank(self, name: str) -> str:
        """Its place for people: `2`, or `2–4` where that is open."""
        if name not in self.ranks:
            return "–"
        best, worst = self.ranks[name]
        return str(best) if best == worst else f"{best}–{worst}"


@dataclass(frozen=True)
class Table:
    """All results of one test, the best first."""

    test: Test
    rows: Sequence[Row]
    images: int  # that all results have in common; the ranks rest on these
    note: str = ""  # why there are no ranks

    @property
    def identity(self) -> str:
        return self.test.identity

    @property
    def protocol(self) -> str:
        return self.rows[0].entry.protocol

    @property
    def marks(self) -> set[str]:
        """The marks that any row has, for the legend."""
        return {mark for row in self.rows for mark in row.marks}


def tables(entries: Sequence[Entry], reports: Mapping[str, str]) -> list[Table]:
    """The results sorted into tests, those with most results first; `reports` gives addresses by a result's identity."""
    groups: dict[str, list[Entry]] = {}
    seen: set[str] = set()
    for entry in entries:
        if entry.identity in seen:
            raise UsageError(f"{entry.model.name}: the same result twice ({entry.identity}); give each once")
        seen.add(entry.identity)
        groups.setdefault(entry.test.identity, []).append(entry)
    ordered = sorted(groups.values(), key=lambda group: (-len(group), group[0].test.identity))
    weights = _weights_of_others(entries)
    return [_table(group, reports, weights) for group in ordered]


def _table(entries: Sequence[Entry], reports: Mapping[str, str], weights: Mapping[str, set[str]]) -> Table:
    named, ranked = _labels(entries), RANKED[entries[0].protocol]
    ranks: dict[str, dict[str, tuple[int, int]]] = {label: {} for label in named}
    shared, note = len(entries[0].answers.images), ""
    if len(named) == 1:
        note = "One result by itself has no rank."
    else:
        outcomes = {label: observations_of(unpack(entry.answers)) for label, entry in named.items()}
        shared = len(_common(entries))
        if not shared:
            note = "These results have no image in common, so they cannot be ranked."
        else:
            for ranking in compare(outcomes, [MEASURES[name] for name in ranked]).rankings:
                for label, found in ranking.ranks.items():
                    if ranking.values[label].value is not None:
                        ranks[label][ranking.measure.name] = found
    rows = [
        Row(entry, label, ranks[label], report=reports.get(entry.identity, entry.report), marks=_marks(entry, weights))
        for label, entry in named.items()
    ]
    rows.sort(key=lambda row: (-_value(row, ranked[0]), row.label))
    return Table(entries[0].test, rows, shared, note)


def _common(entries: Sequence[Entry]) -> set[str]:
    return set.intersection(*(set(entry.answers.images) for entry in entries))


def _value(row: Row, name: str) -> float:
    found = row.number(name).value
    return -np.inf if found is None else found


def _labels(entries: Sequence[Entry]) -> dict[str, Entry]:
    """Each result under a name of its own: the model, with a piece of its identity where two share one."""
    names = [entry.model.name for entry in entries]
    return {
        name if names.count(name) == 1 else f"{name} · {entry.identity.rpartition('-')[2][:6]}": entry
        for name, entry in zip(names, entries, strict=True)
    }


def _weights_of_others(entries: Sequence[Entry]) -> dict[str, set[str]]:
    """For each hash of weights, the parts that have them: oracles, and models that pictures were made against."""
    found: dict[str, set[str]] = {}
    for entry in entries:
        oracle = entry.test.settings.get("oracle weights")
        if isinstance(oracle, str):
            found.setdefault(oracle, set()).add("oracle")
        if entry.surrogate and entry.model.weights:
            found.setdefault(entry.model.weights, set()).add("surrogate")
    return found


def _marks(entry: Entry, weights: Mapping[str, set[str]]) -> tuple[str, ...]:
    """What a reader has to know of a row, in a word or two."""
    kin = weights.get(entry.model.weights or "", set())
    surrogate = entry.surrogate or (bool(entry.test.against) and "surrogate" in kin)
    return (
        *(("surrogate",) if surrogate else ()),
        *(("shares weights with the oracle",) if entry.caution or "oracle" in kin else ()),
    )
