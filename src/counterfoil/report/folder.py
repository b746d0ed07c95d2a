"""Writes a report: the folder, its files, and a page for all runs together and for each."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Protocol, TypeVar

from counterfoil.core.errors import UsageError
from counterfoil.report.browse import SCRIPTS
from counterfoil.report.collect import Collected, collect
from counterfoil.report.comparison import labels
from counterfoil.report.downloads import Download, write_downloads
from counterfoil.report.gallery import write_gallery
from counterfoil.report.page import Page, Part, program_version, render, render_image
from counterfoil.report.pictures import Album
from counterfoil.store import Run

STYLES = ("colours.css", "report.css", "charts.css", "gallery.css")
STATIC = (*STYLES, *SCRIPTS)
_OWN = ("data", "pictures", "thumbs", "downloads")  # folders that are written anew


class Named(Protocol):
    """A page, by the name of its file."""

    @property
    def name(self) -> str: ...


AnyPage = TypeVar("AnyPage", bound=Named)


def write_report(runs: Sequence[Run], out: Path, *, pictures: int) -> Path:
    """Write a report on FMR runs into the folder `out` and return its first page."""
    gathered = [
        collect(run, number=number, label=label, pictures=pictures)
        for number, (run, label) in enumerate(zip(runs, labels(runs), strict=True), start=1)
    ]
    with writing(out):
        prepare(out)
        album = Album(out)
        parts = [_part(each, out, album) for each in gathered]
        copy_static(out)
        pages = [Page("index.html", parts)]
        if len(parts) > 1:
            pages += [Page(f"run-{part.collected.number}.html", [part]) for part in parts]
        (out / "image.html").write_bytes(render_image(parts).encode("utf-8", "replace"))
        return write_pages(out, pages, lambda page: render(page, every=pages))


def _part(collected: Collected, out: Path, album: Album) -> Part:
    scripts = write_gallery(collected, out, album)
    downloads: list[Download] = write_downloads(collected, out)
    return Part(collected, scripts, downloads, missing=len(album.missing.get(collected.run.path, ())))


def write_pages(out: Path, pages: Sequence[AnyPage], text: Callable[[AnyPage], str]) -> Path:
    """Put the pages into the folder, the first one last: when it is there, so is everything it leads to. Returns that one."""
    for page in reversed(pages):
        (out / page.name).write_bytes(text(page).encode("utf-8", "replace"))
    return out / pages[0].name


def copy_static(out: Path, names: Sequence[str] = STATIC) -> None:
    """Put the style sheets and scripts beside the pages."""
    for name in names:
        (out / name).write_bytes(resources.files("counterfoil.report").joinpath("static", name).read_bytes())


def prepare(out: Path) -> None:
    """Make the folder ready: new, empty, or with an earlier report taken out of it."""
    take_over(out, "report", folders=_OWN)
    for page in [*out.glob("run-*.html"), out / "gallery.html", out / "image.html"]:
        page.unlink(missing_ok=True)


def take_over(out: Path, kind: str, *, folders: Sequence[str]) -> None:
    """Make a folder one of a kind, and mark it so: new or empty, or one of the kind that loses its first page and `folders`."""
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out}: is a file, and a {kind} needs a folder; choose another")
    marker = out / f"{kind}.json"
    if out.is_dir() and any(out.iterdir()) and not _marks(marker, kind):
        raise UsageError(f"{out}: not empty and not a {kind}; choose another folder")
    out.mkdir(parents=True, exist_ok=True)
    (out / "index.html").unlink(missing_ok=True)
    for name in folders:
        shutil.rmtree(out / name, ignore_errors=True)
    marker.write_text(json.dumps({kind: "counterfoil", "version": program_version()}) + "\n", encoding="utf-8")


def _marks(marker: Path, kind: str) -> bool:
    try:
        content = json.loads(marker.read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and content.get(kind) == "counterfoil"


@contextmanager
def writing(out: Path, kind: str = "report") -> Iterator[None]:
    """Turn an error of the operating system into one line."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"{out}: the {kind} cannot be written ({error.strerror or error}); choose another folder") from error
