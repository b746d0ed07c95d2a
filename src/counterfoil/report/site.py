"""Writes a report folder: pages, images, the gallery's data, downloads.

index.html               the page; with several runs a comparison, and run-1.html … for each
colours.css, look.css    how it looks; *.js what can be clicked
data/                    what the gallery shows, as scripts, because a page opened from disk may not fetch JSON
images/, thumbs/         the images of the pages
downloads/               every trial as CSV and Parquet, the numbers, the specification
report.json              marks the folder as a report, so that it may be written over
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
import yaml

from counterfoil.core.errors import UsageError
from counterfoil.core.naming import without_folders
from counterfoil.core.records import Trial
from counterfoil.report import html
from counterfoil.report.gallery import ARMS, ENDINGS, OUTCOMES, WORDED, Collected, collect, path_answers, write_gallery
from counterfoil.report.images import GAIN, ReportImages
from counterfoil.report.page import Downloads, Gallery, Page, program_version
from counterfoil.report.provenance import labels
from counterfoil.store import Run
from counterfoil.store.files import canonical

STATIC = ("colours.css", "look.css", "tables.js", "gallery.js")
ROWS = 4096  # in one group of the Parquet file
_OWN = ("data", "images", "thumbs", "downloads")  # folders that are rewritten
_PICTURES = ("clean", "reconstruction", "made")

_MODEL = {"predicted": pa.string(), "correct": pa.bool_(), "confidence": pa.float64(), "truth": pa.float64()}

SCHEMA = pa.schema(
    {
        **dict.fromkeys(("image_id", "arm", "class"), pa.string()),
        "label": pa.int64(),
        **dict.fromkeys(("outcome", "ending"), pa.string()),
        **dict.fromkeys(("steps", "queries"), pa.int64()),
        **{f"model_{picture}_{name}": kind for picture in _PICTURES for name, kind in _MODEL.items()},
        **{
            f"oracle_{picture}_{name}": kind
            for picture in _PICTURES
            for name, kind in (("keeps_label", pa.bool_()), ("sees", pa.string()), ("score", pa.float64()))
        },
        "reason": pa.string(),
        "seed": pa.int64(),
        **dict.fromkeys(("source", "source_sha256", "image", "image_sha256"), pa.string()),
        "path_loss": pa.list_(pa.float64()),
        "path_predicted": pa.list_(pa.string()),
        "path_score": pa.list_(pa.float64()),
        **dict.fromkeys(("variant", "factor", "value", "caption", "prompt"), pa.string()),
        "quality": pa.float64(),
    }
)
"""The columns of the table of trials among the downloads."""

OF_TRIALS = [each.name for each in fields(Trial) if each.name in SCHEMA.names]


@dataclass
class Site:
    """One report while it is written: what protocols ask for when they make its pages."""

    out: Path
    images: ReportImages
    limit: int  # images per run in the gallery
    slices: Path | None = None  # a CSV with image_id and slices of a user's own
    alone: bool = True  # whether the report is about one protocol, so that its first page is the report's
    _collected: dict[tuple[Path, str | None], Collected] = field(default_factory=dict)
    _numbers: dict[Path, int] = field(default_factory=dict)
    _names: dict[str, str] = field(default_factory=dict)
    _pages: int = 0
    _scripts: dict[int, list[str]] = field(default_factory=dict)
    _downloads: dict[int, Downloads] = field(default_factory=dict)

    def collect(self, run: Run, *, label: str, model: str | None = None) -> Collected:
        """Read a run, once; outcomes are those of `model`, by default the run's own."""
        key = (run.path, model)
        if key not in self._collected:
            number = self._numbers.setdefault(run.path, len(self._numbers) + 1)
            self._collected[key] = collect(run, number=number, label=label, most=self.limit, model=model)
        return self._collected[key]

    def name(self, part: str) -> str:
        """A part's name without folders of this machine; a number tells two files of one name apart."""
        if part not in self._names:
            found, again, taken = without_folders(part), 2, set(self._names.values())
            while found in taken:
                found, again = f"{without_folders(part)} ({again})", again + 1
            self._names[part] = found
        return self._names[part]

    def page_names(self, protocol: str, count: int) -> tuple[str, list[str]]:
        """File names for the first of several pages of a protocol, and for each of `count` single ones."""
        if self.alone and count == 1:
            return "", ["index.html"]
        begin, self._pages = self._pages + 1, self._pages + count
        first = "index.html" if self.alone else f"protocol-{protocol}.html"
        return first, [f"run-{at}.html" for at in range(begin, self._pages + 1)]

    def gallery(self, every: Sequence[Collected]) -> Gallery | None:
        """Write the gallery's data and give what its part of a page needs; None where there is nothing to show."""
        if not any(each.shown for each in every):
            return None
        for each in every:
            if each.number not in self._scripts:
                self._scripts[each.number] = write_gallery(each, self.out, self.images, name=self.name)
        scripts = [path for each in every for path in self._scripts[each.number]]
        arms = {name: meaning for name, meaning in ARMS.items() if any(name in each.tally for each in every)} or {
            "guided": ARMS["guided"]
        }
        meanings = WORDED if arms.keys() & {"edited", "painted"} else OUTCOMES
        endings = {shown.trial.ending for each in every for shown in each.shown}
        sampled = any(each.sampled for each in every)
        if "painted" in arms:
            text = "Every image with the answers about it."
        elif "edited" in arms:
            text = f"Original, reconstruction, edited image, and what the edit changed, {GAIN} times amplified."
        else:
            text = (
                "Original, the generator's plain reconstruction, the image made, and what the search changed: made minus "
                f"reconstruction, {GAIN} times amplified, grey where nothing changed."
            )
        if sampled:
            text += " Half are the most confident mistakes, half a random choice of the images; the downloads have all."
        return Gallery(
            text=text,
            scripts=scripts,
            runs=[(each.number, each.label) for each in every],
            outcomes={name: meaning for name, meaning in meanings.items() if name != "skipped"},
            endings={name: meaning for name, meaning in ENDINGS.items() if name in endings and name != "skipped"},
            arms=arms,
        )

    def downloads(self, collected: Collected, *, stages: Sequence[tuple[str, str]] = ()) -> Downloads:
        """Write what a reader takes along, once: trials, numbers, specification, and stage tables that people may read."""
        if collected.number in self._downloads:
            return self._downloads[collected.number]
        slug = re.sub(r"[^A-Za-z0-9.]+", "-", collected.label).strip("-.")[:40] or "run"
        folder = f"downloads/{collected.number}-{slug}"
        (self.out / folder).mkdir(parents=True, exist_ok=True)
        found = [(f"{folder}/trials.csv", "every trial, one line each"), (f"{folder}/trials.parquet", "the same, typed")]
        _write_trials(collected, self.out / found[0][0], self.out / found[1][0])
        if collected.results is not None:
            found.append((f"{folder}/results.json", "the numbers of this page"))
            (self.out / found[-1][0]).write_bytes(canonical(without_folders(collected.results)))
        found.append((f"{folder}/spec.yaml", "the specification: counterfoil run spec.yaml makes the run again"))
        text = yaml.safe_dump(_plain(collected.run.spec), sort_keys=False, allow_unicode=True)
        (self.out / found[-1][0]).write_text(text, encoding="utf-8")
        for stage, what in stages:
            source = collected.run.path / "stages" / f"{stage}.jsonl"
            if source.is_file():
                found.append((f"{folder}/{stage}.jsonl", what))
                (self.out / found[-1][0]).write_bytes(source.read_bytes())
        self._downloads[collected.number] = Downloads(found)
        return self._downloads[collected.number]


Pages = Callable[[Sequence[Run], Sequence[str], Site], Sequence[Page]]
"""A function of a protocol from runs and their labels to pages, the first one first."""


def write_report(runs: Sequence[Run], out: Path, pages: Pages, *, limit: int = 1000, slices: Path | None = None) -> Path:
    """Write a report on `runs` into the folder `out` and return its first page.

    A folder that holds an earlier report is written over; one that holds anything else is refused.
    """
    out = Path(out)
    with writing(out):
        take_over(out, "report", folders=_OWN)
        for old in (*out.glob("run-*.html"), *out.glob("protocol-*.html")):
            old.unlink(missing_ok=True)
        site = Site(out, ReportImages(out), limit, slices)
        made = pages(runs, labels(runs), site)
        copy_static(out)
        for page in reversed(made):  # the first one last: when it is there, so is everything it leads to
            (out / page.name).write_bytes(html.render(page, every=made))
    return out / made[0].name


def copy_static(out: Path, names: Iterable[str] = STATIC) -> None:
    """Put style sheets and scripts next to the pages."""
    for name in names:
        (out / name).write_bytes(resources.files("counterfoil.report").joinpath("static", name).read_bytes())


def take_over(out: Path, kind: str, *, folders: Sequence[str]) -> None:
    """Make a folder one of a kind, and mark it so: new or empty, or one of the kind that loses its first page and `folders`."""
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out}: is a file, and a {kind} needs a folder; choose another")
    marker = out / f"{kind}.json"
    partial = marker.with_name(f".{marker.name}.partial")
    if out.is_dir() and any(each != partial for each in out.iterdir()) and not _marks(marker, kind):
        raise UsageError(f"{out}: not empty and not a {kind}; choose another folder")
    out.mkdir(parents=True, exist_ok=True)
    # Whole or not at all: a full disk must leave a folder that can be written again.
    partial.write_text(json.dumps({kind: "counterfoil", "version": program_version()}) + "\n", encoding="utf-8")
    os.replace(partial, marker)
    (out / "index.html").unlink(missing_ok=True)
    for name in folders:
        shutil.rmtree(out / name, ignore_errors=True)


@contextmanager
def writing(out: Path, kind: str = "report") -> Iterator[None]:
    """Turn an error of the operating system into one line."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"{out}: the {kind} cannot be written ({error.strerror or error}); choose another folder") from error


def _marks(marker: Path, kind: str) -> bool:
    try:
        content = json.loads(marker.read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and content.get(kind) == "counterfoil"


def _write_trials(collected: Collected, as_csv: Path, as_parquet: Path) -> None:
    """Write every trial as CSV and Parquet, a group of rows at a time; texts that a spreadsheet would run are escaped."""
    rows = (_row(collected, trial) for trial in collected.run.trials)
    flat = pa.schema([pa.field(each.name, pa.string() if pa.types.is_list(each.type) else each.type) for each in SCHEMA])
    with (
        pyarrow.csv.CSVWriter(as_csv, flat) as lines,
        pq.ParquetWriter(as_parquet, SCHEMA, compression="zstd") as parquet,
    ):
        while group := list(islice(rows, ROWS)):
            table = pa.Table.from_pylist(group, schema=SCHEMA)
            parquet.write_table(table)
            lines.write_table(pa.Table.from_arrays([_plain_column(column) for column in table.columns], schema=flat))


def _row(collected: Collected, trial: Trial) -> dict[str, Any]:
    answers = collected.answers.of(trial)
    row: dict[str, Any] = {name: getattr(trial, name) for name in OF_TRIALS}
    row["source"] = without_folders(trial.source)
    row["class"] = collected.class_name(trial.label)
    row["outcome"] = answers.outcome(trial)
    row["path_predicted"] = [collected.class_name(*answer) for answer in path_answers(trial)]
    for picture, prediction in answers.model.items():
        row[f"model_{picture}_predicted"] = collected.class_name(prediction.predicted, prediction.said)
        for name in ("correct", "confidence", "truth"):
            row[f"model_{picture}_{name}"] = getattr(prediction, name)
    for picture, verdict in answers.oracle.items():
        row[f"oracle_{picture}_keeps_label"] = verdict.keeps_label
        row[f"oracle_{picture}_sees"] = collected.class_name(verdict.predicted)
        row[f"oracle_{picture}_score"] = verdict.score
    return row


def _plain_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column for CSV: a path's steps with bars between them, and no text that begins a formula, as `escape_formula` has it."""
    if pa.types.is_list(column.type):
        texts = (None if steps is None else " | ".join(map(str, steps)) for steps in column.to_pylist())
        column = pa.chunked_array([pa.array(texts, pa.string())])
    if not pa.types.is_string(column.type):
        return column
    return pc.replace_substring_regex(column, pattern=r"^('*[=+\-@\t\r])", replacement=r"'\1")


def _plain(value: Any) -> Any:
    """Mappings as dictionaries, which YAML can write; part options that are empty are left out."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items() if not (key == "options" and not each)}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value
