"""Writes the pages of ImageNet-D runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from counterfoil.core.naming import part_name
from counterfoil.metrics.tables import p_text
from counterfoil.report import browse
from counterfoil.report.charts.svg import Figure
from counterfoil.report.folder import STYLES, copy_static, prepare, write_pages, writing
from counterfoil.report.imagenet_d import charts
from counterfoil.report.imagenet_d.content import Content, collect
from counterfoil.report.page import environment, program_version
from counterfoil.report.pictures import Album
from counterfoil.report.tables import write_tables
from counterfoil.store import Run

TEST = "p: bootstrap of whole prompts, that the drop is zero; of several models corrected for their number (Holm)"
PICTURES = 120  # of the gallery, of those asked for
TABLES = (("prompts", "prompts, one a line"), ("paintings", "what was painted"), ("mined", "what was kept, and why not"))


@dataclass(frozen=True)
class Page:
    """A page over one run."""

    name: str
    content: Content
    compares = False

    @property
    def title(self) -> str:
        return self.content.label

    def figures(self) -> dict[str, Figure]:
        """The charts this page has numbers for."""
        content = self.content
        found = {
            "accuracy": charts.before_and_after(content.models, name="accuracy"),
            "number": charts.by_number((content.results or {}).get("by_number") or [], name="number"),
            "failures": charts.failures(content.models, content.kinds, name="failures"),
        }
        return {name: each for name, each in found.items() if each is not None}


def write(runs: Sequence[Run], out: Path, *, pictures: int = PICTURES) -> Path:
    """Write a report on ImageNet-D runs into a folder, a page for each, and return the first."""
    with writing(out):
        prepare(out)
        album = Album(out)
        contents = [
            collect(run, album, number=number, label=label, pictures=min(pictures, PICTURES))
            for number, (run, label) in enumerate(zip(runs, _labels(runs), strict=True), start=1)
        ]
        copy_static(out, (*STYLES, "pairs.css", *browse.SCRIPTS))
        browse.write_browser(runs, _labels(runs), out, album, pictures=pictures)
        pages = [Page("index.html" if at == 0 else f"run-{each.number}.html", each) for at, each in enumerate(contents)]
        return write_pages(out, pages, lambda page: _render(page, pages, out))


def _render(page: Page, every: Sequence[Page], out: Path) -> str:
    content = page.content
    return (
        environment()
        .get_template("imagenet_d.html")
        .render(
            page=page,
            every=every,
            content=content,
            results=content.results,
            figures=page.figures(),
            test=TEST,
            chance=lambda p: "–" if p is None else p_text(p),
            roles=charts.ROLES,
            downloads=write_tables(content.run, content.results, out, number=content.number, stages=TABLES),
            version=program_version(),
        )
    )


def _labels(runs: Sequence[Run]) -> list[str]:
    """What each run is about: its painter or its data, with its folder where that is not enough."""
    names = [part_name(run.spec.get("painter") or run.spec.get("data")) for run in runs]
    return [
        f"{name} · {run.path.resolve().name}" if names.count(name) > 1 else name for name, run in zip(names, runs, strict=True)
    ]
