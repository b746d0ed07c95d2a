"""The gallery as a page of its own, for protocols whose report has another first page: all pictures, with filters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from counterfoil.report import outcomes
from counterfoil.report.collect import collect
from counterfoil.report.downloads import write_downloads
from counterfoil.report.gallery import write_gallery
from counterfoil.report.page import Part, environment, program_version, render_image
from counterfoil.report.pictures import GAIN, Album
from counterfoil.store import Run

PAGE = "gallery.html"
SCRIPTS = ("tables.js", "core.js", "gallery.js", "view.js", "detail.js", "image.js")
"""What a page with a gallery needs beside the style sheets of every report."""


@dataclass(frozen=True)
class Browsed:
    """The page, as templates know it."""

    parts: Sequence[Part]
    title: str = "All pictures"

    @property
    def compares(self) -> bool:
        return len(self.parts) > 1


def write_browser(runs: Sequence[Run], labels: Sequence[str], out: Path, album: Album, *, pictures: int) -> Path:
    """Write the page, the page of one image, their data, and every trial as CSV and Parquet."""
    parts = []
    for number, (run, label) in enumerate(zip(runs, labels, strict=True), start=1):
        collected = collect(run, number=number, label=label, pictures=pictures)
        scripts = write_gallery(collected, out, album)
        parts.append(Part(collected, scripts, write_downloads(collected, out)))
    tally = {name for part in parts for arm in part.collected.tally.values() for name in arm}
    if any(part.collected.answers.other_models for part in parts):
        tally |= {"kept", "fooled"}  # in the eyes of another model
    endings = {name for part in parts for name in (each.trial.ending for each in part.collected.shown)}
    arms = [arm for arm in outcomes.ARMS if any(arm in part.collected.tally for part in parts)]
    text = (
        environment()
        .get_template("browse.html")
        .render(
            page=Browsed(parts),
            parts=parts,
            outcomes={name: meaning for name, meaning in outcomes.WORDED.items() if name in tally},
            endings={name: meaning for name, meaning in outcomes.ENDINGS.items() if name in endings},
            arms=arms,
            arm_meanings=outcomes.ARMS,
            gain=GAIN,
            version=program_version(),
        )
    )
    (out / "image.html").write_bytes(render_image(parts).encode("utf-8", "replace"))
    (out / PAGE).write_bytes(text.encode("utf-8", "replace"))
    return out / PAGE
