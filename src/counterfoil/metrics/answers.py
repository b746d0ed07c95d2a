"""The last answer of a model or an oracle about each image of a run.

Two rules hold everywhere: a later answer replaces an earlier one, and an abstention replaces none. The source image and its
reconstruction are the same for all trials of an image, so an answer about them counts for each; what was made is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from counterfoil.core.naming import part_name, short_name
from counterfoil.store import Run
from counterfoil.store.later import asked_of

YES, NO, OPEN, ABSENT = 1, 0, -1, -2
"""An answer, an oracle that abstains so far, or no record at all."""

Codes = NDArray[np.int8]
Names = Sequence[str] | Any
"""Keys as strings, or as an Arrow array of them."""

_COLUMNS = {"predictions": ("model", "correct"), "verdicts": ("oracle", "keeps_label")}


@dataclass(frozen=True)
class Answers:
    """One row per image that a part was asked about, under `key`: a trial's id, or an image's where trials share it."""

    rows: pa.Table  # key, which of the trial's images, answer, and what else was asked for

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def about(self, keys: Names, picture: str, column: str = "answer") -> pa.Array:
        """A column in the order of `keys`, null where there is no answer; for `made` they are trial ids, else image ids."""
        some = self.rows.filter(pc.equal(self.rows["picture"], picture)).combine_chunks()
        wanted = keys if isinstance(keys, pa.Array) else pa.array(keys, pa.string())
        places = pc.index_in(wanted, value_set=_whole(some["key"]))
        return _whole(some[column]).take(places)

    def codes(self, keys: Names, picture: str) -> Codes:
        """YES, NO, OPEN or ABSENT in the order of `keys`."""
        some = self.rows.filter(pc.equal(self.rows["picture"], picture)).combine_chunks()
        wanted = keys if isinstance(keys, pa.Array) else pa.array(keys, pa.string())
        places = pc.index_in(wanted, value_set=_whole(some["key"]))
        answers = pc.fill_null(_whole(some["answer"]).cast(pa.int8()), OPEN)
        return np.asarray(pc.fill_null(answers.take(places), ABSENT), dtype=np.int8)

    def numbers(self, keys: Names, picture: str, column: str) -> NDArray[np.float64]:
        """A column of numbers in the order of `keys`, NaN where there is no answer."""
        return np.asarray(pc.fill_null(self.about(keys, picture, column).cast(pa.float64()), np.nan), dtype=np.float64)


def read_answers(run: Run, table: Literal["predictions", "verdicts"], who: str, extra: Sequence[str] = ()) -> Answers:
    """Read what one model or oracle answered, in one pass over a run's table."""
    return read_all(run, table, extra, who=who).get(who) or Answers(_nothing(extra))


def read_all(
    run: Run, table: Literal["predictions", "verdicts"], extra: Sequence[str] = (), *, who: str | None = None
) -> dict[str, Answers]:
    """Read what every model or oracle answered, by name in the order of their first answers."""
    name, answer = _COLUMNS[table]
    read = run.table(table, columns=["trial_id", "picture", name, answer, *extra])
    batches = (batch if who is None else batch.filter(pc.equal(batch.column(2), who)) for batch in read)
    rows = pa.Table.from_batches(batches, read.schema)
    names = rows[name].unique().to_pylist()
    one = len(names) == 1
    return {each: Answers(_last(rows if one else rows.filter(pc.equal(rows[name], each)), table, extra)) for each in names}


def models_of(run: Run, table: Literal["predictions", "verdicts"] = "predictions") -> list[str]:
    """Name all models or oracles that answered about a run's images, the run's own first."""
    column = _COLUMNS[table][0]
    own = part_name(run.spec.get(column))
    found = {name for batch in run.table(table, columns=[column]) for name in batch.column(0).unique().to_pylist()}
    return sorted(found, key=lambda name: (name != own, name))


def surrogates_of(run: Run) -> list[str]:
    """Name the models whose mistakes decided what is in the set: of this run, or of the one that made its set.

    A set names them without folders, so that a model of this run is found by its short name.
    """
    own = [part_name(part) for part in run.spec.get("surrogates") or ()]
    tested_here = [part_name(part) for part in (run.spec.get("model"), *(run.spec.get("models") or ())) if part]
    tested_here += [each.name for each in asked_of(run.path) if each.role == "model"]
    known = {short_name(name): name for name in reversed(tested_here)}
    told = [known.get(short_name(name), name) for name in run.provenance.get("set_surrogates") or ()]
    return list(dict.fromkeys([*own, *told]))


def _last(rows: pa.Table, table: str, extra: Sequence[str]) -> pa.Table:
    """One row per key and image: the last that answers or, where none does, an abstention."""
    trial, picture, answer = rows["trial_id"], rows["picture"], rows[_COLUMNS[table][1]]
    image = pc.replace_substring_regex(trial, pattern="#[^#]*$", replacement="")
    key = pc.if_else(pc.equal(picture, "made"), trial, image)
    place = pa.array(np.arange(rows.num_rows))
    answered = pc.if_else(pc.is_valid(answer), place, pa.scalar(None, place.type))
    found = pa.table({"key": key, "picture": picture, "answered": answered, "place": place})
    found = found.group_by(["key", "picture"]).aggregate([("answered", "max"), ("place", "max")])
    last = pc.coalesce(found["answered_max"], found["place_max"])
    columns = {"key": found["key"], "picture": found["picture"], "answer": answer.take(last)}
    return pa.table({**columns, **{name: rows[name].take(last) for name in extra}}).sort_by([("key", "ascending")])


def _nothing(extra: Sequence[str]) -> pa.Table:
    fields: list[tuple[str, Any]] = [("key", pa.string()), ("picture", pa.string()), ("answer", pa.bool_())]
    return pa.schema([*fields, *((name, pa.float64()) for name in extra)]).empty_table()


def _whole(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return found if isinstance(found, pa.Array) else pa.concat_arrays(found.chunks)
