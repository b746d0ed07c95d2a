"""Read runs with the help of their protocols: numbers, reports, boards, and answers that are added later. No torch here."""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from counterfoil import protocols, store
from counterfoil.core.errors import BadRun, UsageError
from counterfoil.core.naming import part_name
from counterfoil.core.records import LEVEL, Estimate, Picture
from counterfoil.metrics.estimate import RESAMPLES, Difference, Share, estimate_one
from counterfoil.metrics.observations import NO, OPEN, YES, Measure, Observations, Undecided, class_column, read_answers
from counterfoil.metrics.tables import Cell, Column, Link, Table, amount
from counterfoil.store.files import key_of
from counterfoil.store.later import append_to

if TYPE_CHECKING:
    from counterfoil.metrics.comparison import Scoreboard
    from counterfoil.protocols.base import Protocol
    from counterfoil.report.page import Page
    from counterfoil.report.result_file import ResultFile
    from counterfoil.report.site import Site
    from counterfoil.store.later import Appender


_PLACES: Mapping[Picture, str] = {"clean": "clean", "made": "image"}
"""Fields of a trial that name its images."""


@dataclass(frozen=True)
class Shown:
    """Images for a notebook."""

    html: str
    count: int

    def _repr_html_(self) -> str:
        return self.html

    def __repr__(self) -> str:
        return f"<{self.count} image pairs, for a notebook>"


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

    def show(self, count: int = 6) -> Shown:
        """Show in a notebook the most confident mistakes that generated images caused, each next to its source."""
        from counterfoil.report import gallery, html

        found = gallery.collect(self, number=1, label="", most=1000)
        figures = []
        for entry in gallery.strongest(found.shown, count):
            answer = entry.said.model["made"]
            images = [self.picture(entry.trial, which) for which in ("clean", "made") if getattr(entry.trial, _PLACES[which])]
            shown = [html.tag("img", src=f"data:image/png;base64,{b64encode(each.read_bytes()).decode()}") for each in images]
            words = f"{found.class_name(entry.trial.label)} → {found.class_name(answer.predicted, answer.said)}"
            caption = html.tag("figcaption", f"{words} ({answer.confidence:.0%})")
            figures.append(html.tag("figure", *shown, caption, style="display: inline-block; margin: 0.5em"))
        text = "no generated image changed what the model predicts; run.report() has all images"
        return Shown(str(html.tag("div", *figures) if figures else html.tag("p", text)), len(figures))

    def _repr_html_(self) -> str:
        """Its numbers, cautions and a few images, for notebooks."""
        from counterfoil.report import html

        results = self.results
        if results is None:
            return str(html.tag("p", f"{self.path}: {self.counts['images']} images are complete; the same command resumes it"))
        cautions = [html.tag("p", f"take care: {each}") for each in self.cautions]
        numbers = html.tag("pre", protocols.of(self).text(results))
        return str(html.tag("div", html.tag("b", str(self.path)), numbers, *cautions)) + self.show(3).html

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


def write_report(runs: Sequence[store.Run], out: str | Path, *, images: int = 1000, slices: str | Path | None = None) -> Path:
    """Write a report on runs into the folder `out` and return its first page; of several protocols that is models by tests.

    The gallery shows up to `images` images per run, the same ones for runs over the same data. `slices` is a CSV with
    `image_id` and slices of your own. A folder that holds an earlier report is written over; one that holds anything else
    is refused.
    """
    if not runs:
        raise UsageError("a report needs at least one run; give the --out of a run")
    if images < 0:
        raise UsageError(f"a gallery can't have {images} images; give 0 or more")
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

    return site.write_report(runs, Path(out), pages, limit=images, slices=file)


def _overview(runs: Sequence[store.Run], firsts: Sequence[Page], site: Site) -> Page:
    """The first page of a report over several protocols: models by tests, and the way to each protocol's own page."""
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
    names, surrogates = protocol.on_board(run, scored=scored)
    known = protocol.measures_of(run)
    told: dict[str, Any] = {
        "ranked": [name for name in protocol.ranked if name in known],
        "shown": protocol.compared,
        "against": part_name(run.spec.get("model")) if scored and protocol.against_model else "",
        "surrogates": surrogates,
    }
    return [of_run(run, protocol.observe(run, model=name), known, **told) for name in names]


def write_board(sources: Sequence[Path], out: Path, **options: Any) -> Path:
    """Write a leaderboard of runs and result files into the folder `out` and return its page."""
    from counterfoil.report import board

    return board.write_board(
        sources,
        out,
        results=lambda run, scored: result_files(run, scored=scored),
        report=lambda runs, folder, limit: write_report(runs, folder, images=limit),
        **options,
    )


_NONE, _ALONE = "no image that counts", "no image with a source image"
ACCURACY = Share("right", "counted", _NONE)
SOURCE = Share("source_right", "paired", _ALONE)
PAIRS: Mapping[str, Measure] = {  # of a run whose images were made in one step
    "accuracy": Measure("accuracy", ACCURACY, "accuracy on the images"),
    "accuracy_source": Measure("accuracy_source", SOURCE, "accuracy on their source images, once for each image"),
    "drop": Measure(
        "drop",
        Difference(SOURCE, Share("paired_right", "paired", _ALONE)),
        "accuracy_source less accuracy: accuracy lost to what was done",
        higher_is_better=False,
    ),
}


def observe_pairs(run: store.Run, *, model: str | None = None, oracle: str | None = None) -> Observations:
    """Read a run whose images were made in one step: a row per image, those of one source image drawn together.

    Where the run has an oracle, only images in which it sees the class count.
    """
    own = model in (None, part_name(run.spec.get("model"))) and oracle is None
    model, oracle = model or part_name(run.spec.get("model")), oracle or part_name(run.spec.get("oracle"))
    trials = [trial for trial in run.trials if trial.image]
    names, images = [trial.trial_id for trial in trials], [trial.image_id for trial in trials]
    answers = read_answers(run, "predictions", model)
    if trials and not len(answers):
        raise BadRun(f"{run.path}: no predictions by model {model!r}; ask it with 'counterfoil score {run.path} --model {model}'")
    said, before = answers.codes(names, "made"), answers.codes(images, "clean")
    counts, pending = said >= NO, 0
    if oracle:
        sees = read_answers(run, "verdicts", oracle).codes(names, "made")
        counts, pending = counts & (sees == YES), int((sees <= OPEN).sum())
    paired = counts & (before >= NO)
    columns = {
        "counted": counts,
        "right": counts & (said == YES),
        "paired": paired,
        "paired_right": paired & (said == YES),
        "source_right": paired & (before == YES),
    }
    keys = np.array([key_of(name) for name in names], dtype=np.uint64)
    labels = np.array([trial.label for trial in trials], dtype=np.int64)
    order = np.argsort(keys)
    found = Observations(
        model=model,
        oracle=oracle,
        keys=keys,
        columns=columns,
        groups={
            "class": class_column(tuple(run.classes), labels),
            "factor": np.array([f"{trial.factor} {trial.value}".strip() for trial in trials], dtype=object),
        },
        cluster=np.unique(images, return_inverse=True)[1].astype(np.int64),
        undecided=Undecided(pending, "image", oracle, "as if they did not show their class"),
        seed=int(run.spec.get("seed", 0)),
    ).take(order)
    stored = (run.results or {}) if own else {}
    return replace(found, estimates={name: Estimate.from_dict(stored[name]) for name in PAIRS if name in stored})


def results_of_pairs(run: store.Run, *, model: str | None = None, oracle: str | None = None) -> dict[str, Any]:
    """Compute the content of `results.json`: all images, by what was done to them, and by class."""
    rows = replace(observe_pairs(run, model=model, oracle=oracle), estimates={})
    known = protocols.of(run).measures_of(run)
    skipped = sum(trial.ending == "skipped" for trial in run.trials)
    readable = rows.clusters if len(rows) else 0
    found: dict[str, Any] = {"protocol": run.spec["protocol"], **_numbers(rows, known)}
    for entry, grouping in (("factors", "factor"), ("per_class", "class")):
        column = rows.groups[grouping]
        found[entry] = {name: _numbers(rows.take(column == name), known) for name in sorted(set(column.tolist())) if name}
    counts = {"images": readable + skipped, "readable": readable, "skipped": skipped}
    return {
        **found,
        "counts": {**counts, "made": len(rows), "validated": int(rows.columns["counted"].sum())},
        "model": {"name": rows.model},
        "oracle": {"name": rows.oracle or "none"},
        "interval": {"level": LEVEL, "resamples": RESAMPLES, "seed": rows.seed},
    }


def _numbers(rows: Observations, known: Mapping[str, Measure]) -> dict[str, Any]:
    drawn = rows.resamples()
    return {name: estimate_one(drawn, each.statistic).to_dict() for name, each in known.items()}


def tables_of_pairs(found: Mapping[str, Any]) -> list[Table]:
    """Put results into tables: all numbers, by what was done, and by class."""
    from counterfoil.protocols.pages import estimates, numbers_table

    known = [name for name in PAIRS if name in found]
    counts = found["counts"]
    notes = [f"{counts['validated']:,} of {amount(counts['made'], 'image')} count; {counts['skipped']:,} could not be read"]
    every = [numbers_table(found, {name: PAIRS[name].meaning for name in known}, notes)]
    for entry, title in (("factors", "By what was done"), ("per_class", "By class")):
        lines: list[list[Cell]] = [[name, *estimates(each, known), each["accuracy"]["n"]] for name, each in found[entry].items()]
        heads = [Column("class" if entry == "per_class" else "", "text"), *map(Column, known), Column("n")]
        every += [Table(heads, lines, title=title, filter_rows=True)] if lines else []
    return every
