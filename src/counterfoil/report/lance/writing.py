"""Writes the pages of LANCE runs: one for each, and one that sets several side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from counterfoil.core.spec.lance import FACTORS
from counterfoil.metrics.lance import MEANINGS
from counterfoil.metrics.tables import p_text
from counterfoil.parts.language.caption_checks import REASONS
from counterfoil.protocols.lance.quality.rule import CHECKS
from counterfoil.report import browse, making
from counterfoil.report.cautions import Caution
from counterfoil.report.charts.svg import Figure
from counterfoil.report.collect import part_name
from counterfoil.report.comparison import labels, together
from counterfoil.report.folder import STYLES, copy_static, prepare, write_pages, writing
from counterfoil.report.lance import charts
from counterfoil.report.lance.content import LEVEL, Content, collect, tested
from counterfoil.report.page import environment, program_version
from counterfoil.report.pictures import Album
from counterfoil.report.tables import write_tables
from counterfoil.store import Run

MODELS = 12  # pages of models on one run's edits
PICTURES = 60  # pairs of the gallery, of those asked for
TITLES = {
    "SA": "Clean accuracy",
    "accuracy_source": "Accuracy on the sources",
    "accuracy_edited": "Accuracy on the edits",
    "drop": "Accuracy drop",
    "drop_reconstruction": "Drop by redrawing alone",
    "sensitivity": "Sensitivity",
    "VR": "Validation rate",
}
TABLES = (
    ("captions", "captions, one a line"),
    ("edits", "edits, accepted and rejected"),
    ("quality", "similarities of every edit"),
)
WHY = {
    **REASONS,
    **CHECKS,
    "unreadable": "the picture could not be read",
    "no caption": "the captioner said nothing that can be used",
    "not inverted": "the editor could not invert the picture",
    "not edited": "the editor could not redraw the picture",
    "class lost": "the oracle no longer sees the class",
    "undecided": "the oracle has not decided yet",
}


@dataclass(frozen=True)
class Page:
    """A page over one run or several."""

    name: str
    contents: Sequence[Content]

    @property
    def compares(self) -> bool:
        return len(self.contents) > 1

    @property
    def title(self) -> str:
        if not self.compares:
            return self.contents[0].label
        apart = len({content.model for content in self.contents}) == len(self.contents)
        return f"{len(self.contents)} {'models' if apart else 'runs'} compared"

    def cautions(self) -> list[Caution]:
        """What to know before reading the page's numbers."""
        if not self.compares:
            return self.contents[0].cautions
        return together([(each.label, each.run, each.cautions) for each in self.contents], each_is="model")

    def figures(self) -> dict[str, Figure]:
        """The charts this page has numbers for."""
        if self.compares:
            models = {content.label: content.results["factors"] for content in self.contents if content.results}
            found = {"factors": charts.by_factor(models, name="factors")}
        else:
            content = self.contents[0]
            results = content.results or {}
            factors = [factor for factor in FACTORS if factor in results.get("factors", {})]
            found = {
                "factors": charts.by_factor({content.label: results.get("factors", {})}, name="factors"),
                "heat": charts.heat_map(results.get("per_class", {}), factors, name="heat"),
                "funnel": charts.funnel(results.get("funnel", []), name="funnel"),
            }
        return {name: figure for name, figure in found.items() if figure is not None}


def write(runs: Sequence[Run], out: Path, *, pictures: int = PICTURES) -> Path:
    """Write a report on LANCE runs into a folder and return its first page."""
    with writing(out):
        prepare(out)
        album = Album(out)
        contents = [
            collect(run, album, model=model, number=number, label=label, pictures=min(pictures, PICTURES))
            for number, (run, model, label) in enumerate(_listed(runs), start=1)
        ]
        copy_static(out, (*STYLES, "pairs.css", "lance.css", *browse.SCRIPTS))
        browse.write_browser(runs, labels(runs), out, album, pictures=pictures)
        downloads = {
            content.number: write_tables(content.run, content.results, out, number=content.number, stages=TABLES)
            for content in contents
        }
        pages = [Page("index.html", contents)]
        if len(contents) > 1:
            pages += [Page(f"run-{content.number}.html", [content]) for content in contents]
        return write_pages(out, pages, lambda page: _render(page, pages, downloads))


def _listed(runs: Sequence[Run]) -> Iterator[tuple[Run, str, str]]:
    """A page a model: the run's own, and those that were tested on the same edits."""
    for run, label in zip(runs, labels(runs), strict=True):
        for model in tested(run)[:MODELS]:
            own = model == part_name(run, "model")
            yield run, model, label if own else model if len(runs) == 1 else f"{model} on the edits of {label}"


def _render(page: Page, every: Sequence[Page], downloads: dict[int, list[tuple[str, str]]]) -> str:
    return (
        environment()
        .get_template("lance.html")
        .render(
            page=page,
            every=every,
            contents=page.contents,
            figures=page.figures(),
            titles=TITLES,
            meanings=MEANINGS,
            factors=[factor for factor in FACTORS if any(factor in (c.results or {}).get("factors", {}) for c in page.contents)],
            why=WHY,
            level=LEVEL,
            chance=p_text,
            facts=making.facts,
            command=making.command,
            downloads=downloads,
            version=program_version(),
        )
    )
