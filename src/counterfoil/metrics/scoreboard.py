"""Models by tests in one table: value, interval, and the rank that paired tests leave open within each test."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from counterfoil.core.errors import UsageError
from counterfoil.metrics.comparison import compare, rank_text
from counterfoil.metrics.observations import Measure, Observations
from counterfoil.metrics.tables import Cell, Column, Table, Value, amount

NOT_RUN = "not run"


@dataclass(frozen=True)
class BoardTest:
    """One thing that models were put to: the same protocol, data and parts, whatever the model; and one number of it."""

    identity: str
    title: str  # as in "FMR, lab:kl"
    measure: Measure = field(compare=False)


@dataclass(frozen=True)
class Scoreboard:
    """The result of each model in each test that it took. There is no mean over tests, which measure different things."""

    tests: Mapping[BoardTest, Mapping[str, Observations]]
    ranks: Mapping[BoardTest, Mapping[str, tuple[int, int]]]
    notes: tuple[str, ...] = ()

    @property
    def models(self) -> list[str]:
        """The models, in the order of the tests."""
        return list(dict.fromkeys(name for each in self.tests.values() for name in each))

    def table(self) -> Table:
        """A row per model, a column per test; what a model did not take is not run."""
        columns = [Column("model", "text"), *(Column(test.title) for test in self.tests)]
        rows = [[name, *(self._cell(test, name) for test in self.tests)] for name in self.models]
        notes = ["Each value with its 95 % interval and the rank, or ranks, that paired tests within the column leave open."]
        if less := [test.title for test in self.tests if not test.measure.higher_is_better]:
            notes.append(f"Less is better: {'; '.join(less)}.")
        return Table(columns, rows, title="Models by tests", notes=[*notes, *self.notes])

    def headline(self) -> str:
        """Name the model that is first in most of the tests that two models or more took."""
        ranked = [test for test in self.tests if self.ranks.get(test)]
        first = {name: sum(self.ranks[test].get(name, (0, 0))[0] == 1 for test in ranked) for name in self.models}
        most = max(first.values(), default=0)
        if not most:
            return f"{amount(len(self.models), 'model')} in {amount(len(self.tests), 'test')}; no two took the same one."
        best = " and ".join(name for name, times in first.items() if times == most)
        verb = "is" if sum(times == most for times in first.values()) == 1 else "are"
        return f"{best} {verb} first, or not told apart from the first, in {most} of {amount(len(ranked), 'test')}."

    def _cell(self, test: BoardTest, name: str) -> Cell:
        if name not in self.tests[test]:
            return NOT_RUN
        found = self.tests[test][name].estimate(test.measure)
        ranks = self.ranks.get(test, {})
        return Value(found, test.measure.unit, rank_text(ranks[name]) if name in ranks and found.value is not None else "")


def scoreboard(found: Iterable[tuple[BoardTest, str, Observations]], *, alpha: float = 0.05) -> Scoreboard:
    """Put what each model did into one table, with ranks by paired tests in every test that two models took."""
    tests: dict[BoardTest, dict[str, Observations]] = {}
    for test, name, observed in found:
        tests.setdefault(test, {})[name] = observed
    ranks: dict[BoardTest, Mapping[str, tuple[int, int]]] = {}
    notes = []
    for test, models in tests.items():
        if len(models) > 1:
            try:
                ranks[test] = compare(models, [test.measure], alpha=alpha).rankings[0].ranks
            except UsageError as error:
                notes.append(f"{test.title}: no ranks ({error})")
    return Scoreboard(tests, ranks, tuple(notes))
