"""One page of a report: what its templates need, and the page itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from importlib.metadata import PackageNotFoundError, version

from jinja2 import Environment

from counterfoil.core.naming import short_name
from counterfoil.metrics.observations import unit_of
from counterfoil.report import audit, comparison, later, making, outcomes, transfer, wording
from counterfoil.report.cautions import Caution, cautions
from counterfoil.report.charts import classes, forest, ladder, rates, steps
from counterfoil.report.charts.svg import Figure
from counterfoil.report.collect import Collected, part_name
from counterfoil.report.downloads import Download
from counterfoil.report.numbers import FEWEST, Number, count, decimal, number
from counterfoil.report.pictures import GAIN
from counterfoil.report.templating import templates_of

ORACLE = "oracle on sources"
CLASS_COLUMNS = ("SA", "VR", "PA_reconstruction", "PA", "FMR", "FMR_matched", "steps", ORACLE)
RATIOS = ("FMR", "FMR_matched")
COMPARED = ("SA", "PA", "FMR", "FMR_matched", "FMR_random", "PA_reconstruction", "PA_random", "VR", "steps")


@dataclass(frozen=True)
class ClassRow:
    """One line of the table of classes."""

    name: str
    run: Collected
    images: int | None
    numbers: Mapping[str, Number]


@dataclass
class Part:
    """A run with the files that were written for it."""

    collected: Collected
    scripts: Sequence[str]
    downloads: Sequence[Download]
    missing: int = 0

    @property
    def label(self) -> str:
        return self.collected.label

    @property
    def model(self) -> str:
        return short_name(part_name(self.collected.run, "model"))

    @property
    def oracle(self) -> str:
        return short_name(part_name(self.collected.run, "oracle"))

    def number(self, key: str) -> Number:
        """One of the run's numbers."""
        return number(self.collected.results, key)

    @cached_property
    def cautions(self) -> list[Caution]:
        return cautions(self.collected, missing=self.missing)

    @cached_property
    def facts(self) -> list[making.Fact]:
        return making.facts(self.collected.run)

    @property
    def command(self) -> str:
        return making.command(self.collected.run)

    @property
    def repeatable(self) -> bool:
        return making.repeatable(self.collected.run)

    @cached_property
    def later(self) -> list[later.Later]:
        return later.asked_later(self.collected)

    @cached_property
    def audit(self) -> list[audit.Line]:
        return audit.lines(self.collected.results)

    def audited(self, key: str) -> Number:
        """One number of the oracle's audit."""
        return number(audit.of(self.collected.results), key)

    @property
    def audit_summary(self) -> str:
        return audit.summary(self.collected.results)

    @cached_property
    def classes(self) -> list[ClassRow]:
        """The run's classes in their own order."""
        found = (self.collected.results or {}).get("per_class")
        rows = []
        for name, entry in (found if isinstance(found, Mapping) else {}).items():
            images = entry.get("images")
            numbers = {key: number(entry, key) for key in CLASS_COLUMNS}
            for key in RATIOS:  # of one image against another: they say nothing
                if numbers[key].rests_on_few:
                    numbers[key] = Number(note=f"fewer than {FEWEST} accepted images")
            numbers[ORACLE] = audit.by_class(self.collected.results, str(name))
            rows.append(ClassRow(str(name), self.collected, images if isinstance(images, int) else numbers["SA"].n, numbers))
        return rows


@dataclass
class Page:
    """A page over one or several runs."""

    name: str
    parts: Sequence[Part]
    figures: dict[str, Figure] = field(default_factory=dict)

    @property
    def compares(self) -> bool:
        return len(self.parts) > 1

    @property
    def title(self) -> str:
        if self.compares:
            return f"{len(self.parts)} runs compared"
        return self.parts[0].label

    def charts(self) -> list[Figure]:
        """The figures this page has numbers for."""
        runs = [part.collected for part in self.parts]
        if self.compares:
            found = [
                forest.forest(runs, name="fmr"),
                steps.of_many(runs, name="steps"),
                rates.by_class(runs, name="rates"),
                transfer.heat_map(runs, name="transfer"),
            ]
        else:
            results = runs[0].results or {}
            found = [
                steps.of_one(results, name="steps"),
                forest.forest(runs, name="fmr"),
                classes.by_class(results, name="classes"),
                transfer.heat_map(runs, name="transfer"),
            ]
        return [figure for figure in found if figure is not None]

    def ladder(self) -> Figure | None:
        """Where the accuracy of a single run goes."""
        return None if self.compares else ladder.ladder(self.parts[0].collected.results or {}, name="ladder")


def render(page: Page, *, every: Sequence[Page]) -> str:
    """The page as HTML; `every` are the report's pages, for the way between them."""
    runs = [part.collected for part in page.parts]
    return (
        environment()
        .get_template("page.html")
        .render(
            page=page,
            every=every,
            parts=page.parts,
            figures=page.charts(),
            ladder=page.ladder(),
            bounds=None if page.compares else audit.bounds(runs[0].results, name="bounds"),
            audit_titles=audit.TITLES,
            audit_compared=audit.COMPARED,
            cautions=_cautions(page),
            order=comparison.order(runs) if page.compares else comparison.Order(),
            class_columns=CLASS_COLUMNS,
            compared=COMPARED,
            titles=wording.TITLES,
            outcomes=outcomes.OUTCOMES,
            endings=outcomes.ENDINGS,
            arms=[arm for arm in outcomes.ARMS if any(arm in run.tally for run in runs)] or ["guided"],
            arm_meanings=outcomes.ARMS,
            gain=GAIN,
            version=program_version(),
        )
    )


def render_image(parts: Sequence[Part]) -> str:
    """The page that shows one image at a time, whichever its address names."""
    return environment().get_template("image.html").render(parts=parts, version=program_version())


def _cautions(page: Page) -> list[Caution]:
    """What to know before reading the page's numbers."""
    if not page.compares:
        return page.parts[0].cautions
    return comparison.together([(part.label, part.collected.run, part.cautions) for part in page.parts])


@lru_cache(maxsize=1)
def environment() -> Environment:
    """The templates, with the helpers they share."""
    return templates_of(
        "counterfoil.report", sentence=wording.sentence, unit=unit_of, count=count, number=number, decimal=decimal
    )


def program_version() -> str:
    """Counterfoil's version."""
    try:
        return version("counterfoil")
    except PackageNotFoundError:
        return "unknown"
