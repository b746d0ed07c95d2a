"""Read runs with the help of their protocols: numbers, reports, boards, and answers that are added later. No torch here."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterfoil import protocols, store
from counterfoil.core.errors import UsageError
from counterfoil.core.naming import part_name
from counterfoil.core.records import Estimate
from counterfoil.store.later import append_to

if TYPE_CHECKING:
    from counterfoil.metrics.comparison import Scoreboard
    from counterfoil.metrics.observations import Measure
    from counterfoil.protocols.base import Protocol
    from counterfoil.report.page import Page
    from counterfoil.report.result_file import ResultFile
    from counterfoil.report.site import Site
    from counterfoil.store.later import Appender


class Run(store.Run):
    """A run directory as plain records, with its numbers and its report. Chunks committed after it was opened are seen too."""

    @property
    def scores(self) -> dict[str, Estimate]:
        """The run's estimates by name: `run.scores["FMR"].value`. Empty while the run is not finished."""
        found = (self.results or {}).items()
        return {name: Estimate.from_dict(entry) for name, entry in found if isinstance(entry, dict) and "value" in entry}

    @property
    def cautions(self) -> list[str]:
        """Cautions about the scores: what parts assumed, why the oracle may not count, what is easily misread."""
        told = [*(self.provenance.get("cautions") or ()), *filter(None, [self.provenance.get("caution")])]
        results = self.results
        found = protocols.of(self).cautions(self, results) if results is not None else []
        return [*told, *(each.text for each in found if each.kind != "note")]

    def report(self, out: str | os.PathLike[str] | None = None) -> Path:
        """Write a page about the run, by default into its directory, and return its address."""
        return write_report([self], Path(out) if out is not None else self.path / "report")

    @contextmanager
    def appending(self, *, chunk_rows: int = 4096) -> Iterator[Appender]:
        """Add many answers, a few at a time: `with run.appending() as rows: rows.add(predictions=…)`.

        Results that are there are computed again if the run's own model or oracle is among those who answer, as people do
        who judge the images of a run that was made for them. Until then those before stay.
        """
        protocol = protocols.of(self)
        own = {*protocol.models(self), part_name(self.spec.get("oracle"))} - {""}
        with append_to(self.path, chunk_rows=chunk_rows, own=own) as rows:
            try:
                yield rows
            finally:
                rows.commit()
                if rows.outdated:
                    rows.close(protocol.results(self))


def open_run(path: str | os.PathLike[str]) -> Run:
    """Open the run kept in a directory; BadRun if there is none or a part of it is damaged."""
    return Run(store.open_run(path).path)


def protocol_of(runs: Sequence[store.Run]) -> Protocol:
    """Find the one protocol of several runs; UsageError if they are of several, which have no number in common."""
    found = {each.name: each for each in map(protocols.of, runs)}
    if len(found) > 1:
        paths = ", ".join(str(run.path) for run in runs)
        raise UsageError(f"{paths}: runs of several protocols ({', '.join(found)}); give runs of one")
    return next(iter(found.values()))


def measures_of(runs: Sequence[store.Run]) -> Mapping[str, Measure]:
    """The measures that all the runs have, by name."""
    protocol = protocol_of(runs)
    shared = [protocol.measures_of(run) for run in runs]
    return {name: each for name, each in shared[0].items() if all(name in other for other in shared)}


def results_of(run: store.Run, *, model: str | None = None, oracle: str | None = None) -> dict[str, Any]:
    """The stored results of a run, or those computed for another model or oracle."""
    stored = run.results if model is None and oracle is None else None
    return stored if stored is not None else protocols.of(run).results(run, model=model, oracle=oracle)


def write_report(runs: Sequence[store.Run], out: str | Path, *, pictures: int = 1000, slices: str | Path | None = None) -> Path:
    """Write a report on runs into the folder `out` and return its first page; of several protocols that is models by tests.

    The gallery shows up to `pictures` images per run, the same ones for runs over the same data. `slices` is a CSV with
    `image_id` and slices of your own. A folder that holds an earlier report is written over; one that holds anything else
    is refused.
    """
    if not runs:
        raise UsageError("a report needs at least one run; give the --out of a run")
    if pictures < 0:
        raise UsageError(f"a gallery can't have {pictures} images; give 0 or more")
    from counterfoil.metrics.slices import read_slices
    from counterfoil.report import site

    file = Path(slices) if slices is not None else None
    if file is not None:  # refused before anything is written
        for run in (each for each in runs if each.results is not None):
            for model in protocols.of(run).models(run):
                read_slices(file, protocols.of(run).observe(run, model=model))
    by_protocol: dict[str, list[store.Run]] = {}
    for run in runs:
        by_protocol.setdefault(protocols.of(run).name, []).append(run)

    def pages(runs: Sequence[store.Run], labels: Sequence[str], made: Site) -> Sequence[Page]:
        label = dict(zip((run.path for run in runs), labels, strict=True))
        made.alone = len(by_protocol) == 1
        found = [protocols.get(name).pages(own, [label[run.path] for run in own], made) for name, own in by_protocol.items()]
        every = [page for own in found for page in own]
        return every if made.alone else [_overview(runs, [own[0] for own in found], made), *every]

    return site.write_report(runs, Path(out), pages, limit=pictures, slices=file)


def _overview(runs: Sequence[store.Run], firsts: Sequence[Page], site: Site) -> Page:
    """The first page of a report over several protocols: models by tests, and the way to each protocol's own page."""
    from counterfoil.metrics.tables import Cell, Column, Link, Table, amount
    from counterfoil.report import page

    found = scoreboard_of([run for run in runs if run.results is not None], name=site.name)
    names = [each.eyebrow.partition(" · ")[0] for each in firsts]
    ways: list[list[Cell]] = []
    stops = []
    for name, each in zip(names, firsts, strict=True):
        ways.append([Link(name, to=each.name), each.headline])
        stops += [page.Caution("stop", f"{name}: {caution.text}") for caution in each.cautions if caution.kind == "stop"]
    number = sum(caution.kind == "care" for each in firsts for caution in each.cautions)
    text = f"The pages of the protocols have {amount(number, 'caution')}; read them before believing these numbers."
    return page.Page(
        title="Models by tests",
        eyebrow=f"{amount(len(runs), 'run')} of {len(firsts)} protocols",
        headline=found.headline(),
        pairs=[replace(pair, to=first.name + pair.to) for first in firsts for pair in first.pairs[: page.STRIP // len(firsts)]],
        key_numbers=Table([Column("protocol", "text"), Column("", "text", wide=True)], ways),
        cautions=[*stops, *([page.Caution("care", text)] if number else [])],
        sections=[page.PageSection("Models by tests", [replace(found.table(), title="")])],
    )


def scoreboard_of(
    runs: Sequence[store.Run], *, scored: bool = False, alpha: float = 0.05, name: Callable[[str], str] = str
) -> Scoreboard:
    """Models by tests, for runs of any protocols: the clean accuracy first, then what each protocol ranks by.

    `name` gives the models' names as a report shows them.
    """
    from counterfoil.core.naming import short_name
    from counterfoil.metrics.comparison import BoardTest, scoreboard
    from counterfoil.report.provenance import test_identity

    found = []
    for run in runs:
        protocol = protocols.of(run)
        known = protocol.measures_of(run)
        makers = [part_name(run.spec.get(role)) for role in ("generator", "painter", "editor", "data")]
        made_by = short_name(next(filter(None, makers), ""))
        names = [name for name in dict.fromkeys([protocol.clean, *reversed(protocol.ranked)]) if name in known]
        for model in protocol.models(run, scored=scored):
            observed = protocol.observe(run, model=model)
            for measure in (known[name] for name in names):
                if observed.has(measure):
                    title = f"{measure.name}, {protocol.name} {made_by}".strip()
                    found.append((BoardTest(f"{test_identity(run)} {measure.name}", title, measure), name(model), observed))
    return scoreboard(found, alpha=alpha)


def result_files(run: store.Run, *, scored: bool = False) -> list[ResultFile]:
    """Make the results of a run's models for a board. With `scored`, its images are a fixed set that others were scored on."""
    from counterfoil.report.result_file import of_run

    protocol = protocols.of(run)
    if run.results is None:
        raise UsageError(f"{run.path}: not finished, so it has no result yet; repeat its command first")
    against = part_name(run.spec.get("model")) if scored and protocol.against_model else ""
    names, surrogates = protocol.on_board(run, scored=scored)
    ranked = [name for name in protocol.ranked if name in protocol.measures_of(run)]
    return [
        of_run(
            run,
            protocol.observe(run, model=name),
            protocol.measures_of(run),
            ranked=ranked,
            shown=protocol.compared,
            against=against,
            surrogates=surrogates,
        )
        for name in names
    ]


def write_board(sources: Sequence[Path], out: Path, **options: Any) -> Path:
    """Write a leaderboard of runs and result files into the folder `out` and return its page."""
    from counterfoil.report import board

    return board.write_board(
        sources,
        out,
        results=lambda run, scored: result_files(run, scored=scored),
        report=lambda runs, folder, limit: write_report(runs, folder, pictures=limit),
        **options,
    )
