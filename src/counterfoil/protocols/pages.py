"""The pages of a report on runs of one protocol: one per run and, of several, a comparison before them.

`ReportPages` has what all of them share; a protocol says in a subclass what is its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from counterfoil.core.errors import CounterfoilError, UsageError
from counterfoil.core.naming import part_name, short_name
from counterfoil.core.records import Estimate
from counterfoil.metrics.comparison import Ranking, Scoreboard, compare
from counterfoil.metrics.observations import Measure, Observations, unit_of
from counterfoil.metrics.slices import read_slices, slices
from counterfoil.metrics.slices import table_of as slice_table
from counterfoil.metrics.tables import Cell, Column, Link, Table, Value, amount, estimate_in, estimate_text, minus
from counterfoil.protocols.base import Protocol
from counterfoil.report.gallery import Collected, GalleryEntry, filter_of, mark, pair_of, strongest
from counterfoil.report.page import KEY_NUMBERS, STRIP, Block, Caution, Fold, ImagePair, ImagePairs, Page, PageSection
from counterfoil.report.provenance import about_images, about_parts, how_it_was_made, together
from counterfoil.report.site import Site
from counterfoil.store import Run

SLICES = 12  # listed before the rest is folded
MOST_PAIRS = 5  # of models, named in a sentence
SHOWN_SLICES = 3  # of which image pairs are shown


class ReportPages:
    """The pages of a report on runs of one protocol."""

    each_is = "run"  # what has a page of its own
    how = ""  # how the images are made
    stages: Sequence[tuple[str, str]] = ()  # stage tables among the downloads, with what they hold
    order = ("has the highest accuracy ({})", "the lowest ({})")  # how a comparison speaks of the first and the last model

    def __init__(self, protocol: Protocol, runs: Sequence[Run], labels: Sequence[str], site: Site) -> None:
        self.protocol, self.site, self.runs = protocol, site, len(runs)
        self._observed: dict[tuple[Any, str], Observations] = {}
        self.views = [view for run, label in zip(runs, labels, strict=True) for view in self.views_of(run, label)]

    def pages(self) -> list[Page]:
        """Make a page for each run and, of several, a comparison before them."""
        first, names = self.site.page_names(self.protocol.name, len(self.views))
        singles = [self.page(view, name) for view, name in zip(self.views, names, strict=True)]
        return singles if len(singles) == 1 else [self.comparison(first, singles), *singles]

    # What a protocol may say of its own

    def views_of(self, run: Run, label: str) -> Iterator[Collected]:
        """Read what has a page of its own: a run, with the answers of its model."""
        yield self.site.collect(run, label=label)

    @property
    def title(self) -> str:
        """The protocol's name for people."""
        return self.protocol.name

    def about(self, view: Collected) -> str:
        """The line above the headline, after the protocol's name."""
        oracle = short_name(part_name(view.run.spec.get("oracle")))
        return f"tested model {short_name(view.model)}" + (f" · oracle {oracle}" if oracle else "")

    def headline(self, view: Collected, results: Mapping[str, Any]) -> str:
        """The verdict in a sentence."""
        found = estimate_in(results, self.measure(view.run).name)
        if found is None or found.value is None:
            return f"{view.label}: no image that counts yet"
        return f"{view.label} is right on {found.value:.0f} % of {amount(found.n, 'image')}."

    def key_numbers(self, results: Mapping[str, Any]) -> Table | None:
        """At most six numbers before any other table."""
        return None

    def extent(self, results: Mapping[str, Any]) -> tuple[int, str]:
        """The number of images that count, and a sentence that says so."""
        count = int(results["counts"]["validated"])
        return count, amount(count, "image counts", "images count")

    def cautions(self, view: Collected, results: Mapping[str, Any], missing: int) -> list[Caution]:
        """List cautions about the numbers."""
        return [*about_parts(view.run, name=self.site.name), *about_images(*self.extent(results), missing=missing)]

    def about_unfinished(self, view: Collected) -> list[Caution]:
        """Say why there is no result, if so."""
        return [] if view.results is not None else [Caution("stop", "This run is not finished. The same command resumes it.")]

    def notes(self, view: Collected, missing: int) -> list[Caution]:
        """List notes about the run, whether it has a result or not."""
        return []

    def sections(self, view: Collected, results: Mapping[str, Any]) -> Iterator[PageSection]:
        """The protocol's sections, in their order."""
        if where := self.where_it_fails(view):
            yield PageSection("Where it fails", where)
        yield PageSection("All numbers", list(self.protocol.tables(results)))

    def pair(self, view: Collected, entry: GalleryEntry) -> ImagePair:
        """One image of the gallery as a pair."""
        return pair_of(view, entry, self.site.images)

    def shown_in_gallery(self, view: Collected) -> Collected:
        """The run with the answers that its gallery begins with."""
        return view

    def side_by_side(self, view: Collected) -> Sequence[tuple[Column, Cell]]:
        """A row of the comparison's table: columns with a model's values."""
        known = self.protocol.measures_of(view.run)
        names = [name for name in self.protocol.compared if name in known]
        return [(Column(f"{name},{unit_of(name)}"), estimate_in(view.results, name)) for name in names]

    def comparison_sections(self, finished: Sequence[Collected]) -> Iterator[PageSection]:
        """Further sections of a comparison."""
        yield from ()

    # What is the same for all

    def measure(self, run: Run) -> Measure:
        """The measure that models are ranked by."""
        known = self.protocol.measures_of(run)
        return known[next(name for name in self.protocol.ranked if name in known)]

    def observe(self, view: Collected) -> Observations:
        """A view's rows, read once."""
        key = (view.run.path, view.model)
        if key not in self._observed:
            self._observed[key] = self.protocol.observe(view.run, model=view.model)
        return self._observed[key]

    def page(self, view: Collected, name: str) -> Page:
        """The page of one view."""
        results = view.results or {}
        pairs = [self.pair(view, each) for each in strongest(view.shown, STRIP)]
        gallery = self.site.gallery([self.shown_in_gallery(view)])
        missing = len(self.site.images.missing.get(view.run.path, ()))
        cautions = self.about_unfinished(view) or self.cautions(view, results, missing)
        return Page(
            name=name,
            title=view.label,
            eyebrow=f"{self.title} · {self.about(view)}",
            headline=self.headline(view, results) if view.results is not None else f"{view.label}: no numbers yet",
            pairs=pairs,
            key_numbers=self.key_numbers(results) if view.results is not None else None,
            cautions=[*cautions, *self.notes(view, missing)],
            sections=list(self.sections(view, results)) if view.results is not None else [],
            gallery=gallery,
            last=self.last([view]),
        )

    def where_it_fails(self, view: Collected) -> list[Block]:
        """Named slices against the rest, the surely worst first, with image pairs of those that differ."""
        try:
            own, measure = self.observe(view), self.measure(view.run)
            observed = read_slices(self.site.slices, own) if self.site.slices else own
            found = slices(observed, measure)
        except CounterfoilError:  # a model without answers: the page says so where it belongs
            return []
        if not found:
            return []
        table = slice_table(found, measure)
        rows = [
            [Link(each.name, show=filter_of(each.where, view.number)), *row[1:]]
            for each, row in zip(found, table.rows, strict=True)
        ]
        blocks: list[Block] = [replace(table, rows=rows[:SLICES])]
        if len(rows) > SLICES:
            blocks.append(Fold(f"All {len(rows):,} slices", [replace(table, title="", rows=rows, filter_rows=True)]))
        asked_for = observed.groups.keys() - own.groups.keys()
        chosen = [each for each in found if each.worse(measure) or asked_for & dict(each.where).keys()]
        mistakes = strongest(view.shown, len(view.shown))
        pairs = ((each, [entry for entry in mistakes if entry.keys & each.keys(observed)][:STRIP]) for each in chosen)
        for each, some in islice(((each, some) for each, some in pairs if some), SHOWN_SLICES):
            lead = estimate_text(each.difference, unit=measure.difference_unit, sign=True)
            text = f"{measure.name}: {lead} against the rest. The most confident mistakes:"
            blocks.append(ImagePairs([self.pair(view, entry) for entry in some], title=each.name, text=text))
        return blocks

    def last(self, every: Sequence[Collected]) -> list[PageSection]:
        """The sections below the gallery: images that could not be used, how the run was made, downloads."""
        own = list({view.run.path: self.shown_in_gallery(view) for view in every}.values())
        skipped: list[list[Cell]] = [
            [view.label, trial.image_id, view.class_name(trial.label), trial.reason or "no reason recorded"]
            for view in own
            for trial in view.skipped
        ]
        columns = [Column(head, "text") for head in ("run", "image", "class", "reason")]
        found = [PageSection("Images that could not be used", [Table(columns, skipped, filter_rows=True)])] if skipped else []
        made: list[Block] = [self.how] if self.how else []
        files: list[Block] = []
        for view in own:
            facts = how_it_was_made(view.run, self.protocol.spec, name=self.site.name)
            made += facts if len(own) == 1 else [Fold(view.label, facts)]
            files += [*([view.label] if len(own) > 1 else []), self.site.downloads(view, stages=self.stages)]
        return [*found, PageSection("How it was made", made), PageSection("Downloads", files)]

    def comparison(self, name: str, pages: Sequence[Page]) -> Page:
        """The page that compares all views."""
        finished = [view for view in self.views if view.results is not None]
        ranking, why = self.ranking(finished)
        address = {view.label: page.name for view, page in zip(self.views, pages, strict=True)}
        cautions = [(view.label, view.run, list(page.cautions)) for view, page in zip(self.views, pages, strict=True)]
        sections = [PageSection("Models side by side", [self._side_by_side(finished, ranking, address)])] if finished else []
        if len(self.views) > 1 and finished:
            sections.append(PageSection("Models by tests", [replace(self.scoreboard(finished).table(), title="")]))
        own = list({view.run.path: self.shown_in_gallery(view) for view in self.views}.values())
        return Page(
            name=name,
            title="Comparison" if self.site.alone else f"{self.title}: comparison",
            eyebrow=f"{self.title} · {amount(len(self.views), self.each_is)} compared",
            headline=self.verdict(finished, ranking, why),
            lead=_not_told_apart(ranking),
            pairs=self._same_image() or [pair for page in pages for pair in page.pairs[:1]][:STRIP],
            key_numbers=self.first_numbers(finished, ranking, address),
            cautions=[*self.about_all(finished), *together(cautions, each_is=self.each_is)],
            sections=[*sections, *self.comparison_sections(finished)],
            gallery=self.site.gallery(own),
            last=self.last(self.views),
        )

    def about_all(self, finished: Sequence[Collected]) -> list[Caution]:
        """List cautions about several runs together."""
        return []

    def ranking(self, finished: Sequence[Collected]) -> tuple[Ranking | None, str]:
        """The order of the views by paired tests; else why there is none."""
        if len(finished) < 2:
            return None, ""
        try:
            found = compare({view.label: self.observe(view) for view in finished}, [self.measure(finished[0].run)])
        except UsageError:
            return None, "These runs have no source image in common, so they cannot be compared image by image."
        return found.rankings[0], ""

    def verdict(self, finished: Sequence[Collected], ranking: Ranking | None, why: str) -> str:
        """A comparison in a sentence."""
        if ranking is None:
            return why or f"{amount(len(finished), 'finished run')} so far"
        first, *_, last = ranking.values
        best, worst = (minus(f"{(ranking.values[name].value or 0) + 0.0:.0f}") for name in (first, last))
        unit = ranking.measure.unit
        if not any(pair.significant(0.05) for pair in ranking.pairs):
            these = f"No two of these {len(ranking.values)} models can be told apart by {ranking.measure.name}"
            return f"{these} ({best} to {worst}{unit})."
        return f"{first} {self.order[0].format(best + unit)}, {last} {self.order[1].format(worst + unit)}."

    def first_numbers(self, finished: Sequence[Collected], ranking: Ranking | None, address: Mapping[str, str]) -> Table | None:
        """The key numbers of a comparison: the best models by the measure that ranks them."""
        if ranking is None:
            return None
        measure = ranking.measure
        axis = (0, 100) if measure.unit == " %" else None
        rows: list[list[Cell]] = [
            [Link(name, to=address[name]), ranking.values[name], ranking.rank(name)]
            for name in islice(ranking.values, KEY_NUMBERS)
        ]
        heads = [Column(measure.name, "text"), Column("per cent" if axis else measure.unit.strip(), axis=axis)]
        return Table([*heads, Column("rank", "rank")], rows)

    def scoreboard(self, finished: Sequence[Collected]) -> Scoreboard:
        """The views as models by tests."""
        from counterfoil.protocols.reading import scoreboard_of

        return scoreboard_of(list({view.run.path: view.run for view in finished}.values()), name=self.site.name)

    def _side_by_side(self, finished: Sequence[Collected], ranking: Ranking | None, address: Mapping[str, str]) -> Table:
        every = [dict(self.side_by_side(view)) for view in finished]
        columns = list(dict.fromkeys(column for row in every for column in row))
        rank = [Column("rank", "rank")] if ranking else []
        rows: list[list[Cell]] = []
        for view, row in zip(finished, every, strict=True):
            place: list[Cell] = [ranking.rank(view.label)] if ranking else []
            rows.append([Link(view.label, to=address[view.label]), *place, *(row.get(column) for column in columns)])
        note = "A rank is a range where paired tests on the same images do not tell models apart."
        return Table([Column(self.each_is, "text"), *rank, *columns], rows, notes=[note] if ranking else [])

    def _same_image(self) -> list[ImagePair]:
        """One image for all models: the one that fools most of them. Nothing where they have none in common."""
        chosen = self.same_images(1)
        return [replace(self.pair(view, each), note=label) for label, (view, each) in (chosen[0] if chosen else {}).items()][
            :STRIP
        ]

    def same_images(self, most: int) -> list[dict[str, tuple[Collected, GalleryEntry]]]:
        """Images that several models have, by the models' labels; those first that fool most of them."""
        by_image: dict[str, dict[str, tuple[Collected, GalleryEntry]]] = {}
        for view in self.views:
            for each in view.shown:
                if each.trial.arm != "random" and each.trial.image and "made" in each.said.model:
                    by_image.setdefault(each.trial.trial_id, {})[view.label] = view, each

        def rank(name: str) -> tuple[int, int, str]:
            some = by_image[name]
            return len(some), sum(each.outcome == "fooled" for _, each in some.values()), mark(name)

        common = sorted((name for name, some in by_image.items() if len(some) > 1), key=rank, reverse=True)
        return [by_image[name] for name in common[:most]]


def numbers_table(results: Mapping[str, Any], meanings: Mapping[str, str], notes: Sequence[str] = ()) -> Table:
    """All numbers with what they say; those that are not defined have the reason in the place of their value."""
    columns = [Column("", "text"), Column("value (95 % interval)"), Column("n"), Column("", "text", wide=True)]
    rows: list[list[Cell]] = []
    for name, meaning in meanings.items():
        if (found := estimate_in(results, name)) is not None:
            rows.append([name, Value(found, unit_of(name)), found.n, meaning])
    return Table(columns, rows, notes=notes)


def estimates(entry: Mapping[str, Any], names: Sequence[str]) -> list[Estimate | None]:
    """Several estimates of an entry of the results."""
    return [estimate_in(entry, name) for name in names]


def _not_told_apart(ranking: Ranking | None) -> list[str]:
    """The pairs of models that the images leave open, in a sentence."""
    if ranking is None:
        return []
    alike = [f"{pair.first} and {pair.second}" for pair in ranking.pairs if not pair.significant(0.05)]
    if not alike:
        return ["Compared image by image, all of them can be told apart."]
    more = f"; and {len(alike) - MOST_PAIRS} more pairs" if len(alike) > MOST_PAIRS else ""
    return [f"Compared image by image, these can't be told apart: {'; '.join(alike[:MOST_PAIRS])}{more}."]
