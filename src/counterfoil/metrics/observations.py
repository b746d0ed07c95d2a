"""Observations: one model's results on a run's images, one row each, the form that comparisons, gates, boards and slices read.

Every protocol turns its runs into this form, and tables of predictions come in it too; nothing that reads it knows a protocol.
Protocols read the last answer of a model or an oracle about each image: a later answer replaces an earlier one, and an
abstention replaces none. The source image and its reconstruction are the same for all trials of an image, so an answer
about them counts for each; what was made is not.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from counterfoil.core.errors import UsageError
from counterfoil.core.naming import part_name, short_name
from counterfoil.core.records import LEVEL, Estimate
from counterfoil.metrics.estimate import Resamples, Seed, Statistic, estimate_one
from counterfoil.metrics.tables import amount
from counterfoil.store import Run
from counterfoil.store.later import asked_of


@dataclass(frozen=True)
class Measure:
    """One number of a run: how it is found, what it says, and whether more of it is better."""

    name: str
    statistic: Statistic
    meaning: str
    higher_is_better: bool = True
    title: str = ""  # for people, where the name is not enough

    @property
    def unit(self) -> str:
        """The unit of its values."""
        return "" if self.name.startswith("steps") else " %" if self.higher_is_better else " points"

    @property
    def difference_unit(self) -> str:
        """The unit of a difference of two of its values."""
        return "" if self.name.startswith("steps") else " points"


class Undecided(NamedTuple):
    """The number of a run's images that an oracle or people have not decided on, and what these count in meanwhile."""

    number: int = 0
    what: str = ""
    by: str = ""
    counted: str = ""

    def __str__(self) -> str:
        return f"{amount(self.number, self.what)} undecided by {self.by}, counted {self.counted}" if self.number else ""


@dataclass(frozen=True)
class Observations:
    """One row per image, edit or painted image, in the order of `keys`."""

    model: str
    keys: NDArray[np.uint64]  # eight bytes that stand for the row, to pair runs by
    columns: Mapping[str, NDArray[Any]]  # zeros and ones, or numbers, whose sums the measures are made of
    groups: Mapping[str, NDArray[Any]] = field(default_factory=dict)  # names per row by "class", "factor" …; "" for none
    oracle: str = ""
    row: str = "image"
    cluster: NDArray[np.int64] | None = None  # rows that share a number are no more independent than one
    cluster_of: str = "source image"
    made: NDArray[np.bool_] | None = None  # which rows are made of others, where others have rows too
    made_as: str = "edit"
    undecided: Undecided = Undecided()  # of the whole run
    seed: Seed = 0  # of the run's own intervals
    estimates: Mapping[str, Estimate] = field(default_factory=dict)  # the numbers that stand in the run's results

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def clusters(self) -> int:
        """The number of source images, or prompts, the rows are of."""
        return len(self) if self.cluster is None else len(np.unique(self.cluster))

    @property
    def extent(self) -> str:
        """The number of rows, in words."""
        if self.made is not None:
            return f"{amount(self.clusters, self.cluster_of)} and {amount(int(self.made.sum()), self.made_as)} of them"
        if self.cluster is None:
            return amount(len(self), self.cluster_of)
        return amount(len(self), self.row) + (
            "" if self.clusters == len(self) else f" of {amount(self.clusters, self.cluster_of)}"
        )

    def take(self, rows: NDArray[Any]) -> Observations:
        """The same for some of the rows, whose numbers are no longer those of the run."""
        if rows.dtype == np.bool_ and rows.all():
            return self
        return replace(
            self,
            keys=self.keys[rows],
            columns={name: column[rows] for name, column in self.columns.items()},
            groups={name: column[rows] for name, column in self.groups.items()},
            cluster=None if self.cluster is None else self.cluster[rows],
            made=None if self.made is None else self.made[rows],
            estimates={},
        )

    def group(self, name: str, *, of: str = "") -> Observations:
        """The rows of one class, factor or other group, found by its name in any case. UsageError if there is none."""
        known: dict[str, str] = {}
        for grouping in self.groups.values():
            spelt = {str(each).lower(): str(each) for each in np.unique(grouping) if each != ""}
            if name.lower() in spelt:
                return self.take(grouping == spelt[name.lower()])
            known |= spelt
        near = difflib.get_close_matches(name.lower(), known, n=1)
        hint = f"did you mean {known[near[0]]!r}?" if near else f"it has {', '.join(known)}"
        raise UsageError(f"{of or name}: the run has no images of a {' or '.join(self.groups)} {name!r}; {hint}")

    def estimate(self, measure: Measure, *, level: float = LEVEL) -> Estimate:
        """One number: as it stands in the run's results, or drawn from this model's columns alone."""
        known = self.estimates.get(measure.name)
        return known if known is not None and level == LEVEL else estimate_one(self.resamples(), measure.statistic, level=level)

    def resamples(self) -> Resamples:
        """Resamples of its rows, the same whatever is asked of them."""
        return Resamples(self.columns, clusters=self.cluster, seed=self.seed)

    def has(self, measure: Measure) -> bool:
        """Tell whether it has the columns that a measure is made of."""
        return all(term.part in self.columns and term.whole in self.columns for term in measure.statistic.terms)


def unit_of(name: str) -> str:
    """The unit that a number of that name is given in."""
    if name.startswith("steps"):
        return ""
    return " points" if name.startswith("drop") or name == "sensitivity" else " %"


def find_measure(name: str, known: Mapping[str, Measure]) -> Measure:
    """Find the measure of that name, in whatever case it is written."""
    spelt = {each.lower(): each for each in known}
    if name.lower() in spelt:
        return known[spelt[name.lower()]]
    near = difflib.get_close_matches(name.lower(), spelt, n=1)
    hint = f"did you mean {spelt[near[0]]!r}?" if near else f"there are {', '.join(known)}"
    raise UsageError(f"no number called {name!r}; {hint}")


def class_names(classes: Sequence[str], labels: NDArray[np.int64]) -> dict[int, str]:
    """Names of the classes among the labels, by their number; two of one name are told apart by it."""
    twice = {name for name, times in Counter(classes).items() if times > 1}
    names = {each: classes[each] for each in np.unique(labels).tolist()}
    return {each: f"{name} ({each})" if name in twice else name for each, name in names.items()}


def class_column(classes: Sequence[str], labels: NDArray[np.int64]) -> NDArray[Any]:
    """The names of the rows' classes, as a grouping."""
    names = class_names(classes, labels)
    return np.array([names[each] for each in labels.tolist()], dtype=object)


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
