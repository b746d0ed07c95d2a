"""What was said later of pictures that are being made anew, kept aside until it is known which of them are still the same.

    aside/predictions-000007.parquet   the rows of a part, each with the name of the picture that it is about

A run whose tables were corrected writes its trials anew, some with other pictures under the same ids. What models, oracles and
people said later was said of the pictures before. So before the trials are dropped such parts go aside, where no reader sees
them. Once all trials are there, rows whose picture is still the trial's come back under their part's number, and the others are
dropped. A writer killed on the way leaves a part whole in its place, aside, or in both; then its manifest decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import get_args

import pyarrow as pa
import pyarrow.parquet as pq

from counterfoil.core.errors import BadRun
from counterfoil.core.records import Picture, Trial
from counterfoil.store import parts, reviewed
from counterfoil.store.files import TEMPORARY, remove, write_whole, writing
from counterfoil.store.schema import SCHEMAS, completed, to_bytes, to_records

FOLDER = "aside"
_SHOWN = "shown"  # the column of pictures' names
_WHO = {"predictions": "model", "verdicts": "oracle"}

Shown = dict[tuple[str, str], str]
"""Names of pictures, which are hashes of their content, by trial and kind."""


def shown(trials: Iterable[Trial]) -> Shown:
    """Every picture that there is."""
    kinds: tuple[Picture, ...] = get_args(Picture)
    return {(trial.trial_id, kind): name for trial in trials for kind in kinds if (name := trial.shows(kind))}


def set_aside(root: Path) -> None:
    """Take out of the run what was said later, while the trials that it was said of are there."""
    later = [part for part in _parts(root) if "trials" not in part.tables]
    before = shown(_trials(root)) if later else {}
    for part in later:
        with writing(root):
            for table in part.tables:
                found = (completed(table, each, SCHEMAS[table]) for each in parts.batches(root, table, part.number))
                rows = pa.Table.from_batches(found, schema=SCHEMAS[table])
                names = pa.array([before.get(key) for key in _keys(rows)], pa.string())
                write_whole(_path(root, table, part.number), to_bytes(rows.append_column(_SHOWN, names)))
            parts.manifest_path(root, part.number).unlink()
        for table in part.tables:
            remove(parts.table_path(root, table, part.number))


def bring_back(root: Path) -> Counter[tuple[str, str]]:
    """Put back what was said of pictures that are the same; answer how many rows were dropped, by role and name."""
    dropped: Counter[tuple[str, str]] = Counter()
    found = numbers(root)
    now = shown(_trials(root)) if found else {}
    for number in found:
        kept = {}
        for table, rows in _rows(root, number):
            then = zip(_keys(rows), _column(rows, _SHOWN), strict=True)
            same = [name is not None and name == now.get(key) for key, name in then]
            said = zip(_column(rows, _WHO[table]), same, strict=True)
            dropped.update((_WHO[table], who) for who, still in said if not still)
            kept[table] = rows.filter(pa.array(same, pa.bool_())).drop_columns([_SHOWN])
        with writing(root):
            if any(role == "oracle" and reviewed.by_people(who) for role, who in dropped):
                remove(root / reviewed.NAME)  # its numbers are no longer those of the verdicts
            written = {
                table: parts.write_table(root, table, number, data=to_bytes(rows), rows=len(rows))
                for table, rows in kept.items()
                if len(rows)
            }
            if written:
                parts.commit(root, parts.Part(number, written))
        discard(root, number)
    return dropped


def numbers(root: Path) -> list[int]:
    """Numbers of the parts that are aside, in order."""
    return sorted({int(path.stem.rpartition("-")[2]) for path in (root / FOLDER).glob("*-*.parquet")})


def discard(root: Path, number: int) -> None:
    """Leave no trace of a part aside."""
    for table in _WHO:
        remove(_path(root, table, number))


def sweep(root: Path) -> None:
    """Remove what a writer that was killed had not finished, and parts that are in their places."""
    for path in (root / FOLDER).glob(f"*{TEMPORARY}"):
        remove(path)
    for number in {*numbers(root)} & {*parts.numbers(root)}:
        discard(root, number)


def _path(root: Path, table: str, number: int) -> Path:
    return root / FOLDER / f"{table}-{number:06d}.parquet"


def _rows(root: Path, number: int) -> Iterator[tuple[str, pa.Table]]:
    for table in _WHO:
        path = _path(root, table, number)
        if path.exists():
            try:
                yield table, pq.read_table(path)
            except (OSError, pa.ArrowException) as error:
                raise BadRun(f"{path}: damaged; delete it and ask again what it held, by 'judge' or 'score'") from error


def _parts(root: Path) -> Iterator[parts.Part]:
    return (parts.read_part(root, number) for number in parts.numbers(root))


def _trials(root: Path) -> Iterator[Trial]:
    for part in _parts(root):
        if "trials" in part.tables:
            for batch in parts.batches(root, "trials", part.number):
                yield from to_records(Trial, batch)


def _keys(rows: pa.Table) -> Iterator[tuple[str, str]]:
    return zip(_column(rows, "trial_id"), _column(rows, "picture"), strict=True)


def _column(rows: pa.Table, name: str) -> list[str]:
    found: list[str] = rows.column(name).to_pylist()
    return found
