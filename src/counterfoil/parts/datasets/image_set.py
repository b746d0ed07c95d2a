"""The one data set class: an Arrow index with one row per image, and a reader that loads one of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from torch import Tensor

from counterfoil.core.errors import BadData
from counterfoil.core.naming import stable_hash
from counterfoil.parts import labels, registry
from counterfoil.parts.contracts import Dataset, Reader, Sample, provenance_of, reader_of

TRIED = 32  # images that parts are tried on before a run
_BATCH = 4096  # rows turned into samples at a time

About = Mapping[str, str]


FURTHER = ("caption", "place", "factor", "value")
"""Fields of a sample that are a column of an index where they are not empty."""


class ImageSet:
    """Labelled images in a fixed order.

    The index has the columns `image_id` and `label`, `source` where it differs from the id, and those of `FURTHER`.
    `source` is a pattern for people with `{id}` in it, used without such a column.
    """

    def __init__(
        self,
        index: pa.Table,
        classes: Sequence[str],
        reader: Reader | None,
        *,
        about: Callable[[], About] | None = None,
        aliases: labels.Aliases | None = None,
        source: str = "{id}",
    ) -> None:
        self.index = index
        self.classes: Sequence[str] = list(classes)
        self.aliases = aliases
        self.class_ids: Mapping[str, Sequence[str]] | None = None  # what each class stands for, where it is more than its name
        self._reader = reader
        self._dataset: Reader | None = None  # loads the images of a data set that has no reader
        self._about = about
        self._source = source
        self._selection: dict[str, str] = {}  # what was selected from a larger set, for the provenance
        self._length = len(index)

    @classmethod
    def of(cls, dataset: Dataset) -> ImageSet:
        """Any data set with its samples listed once."""
        if isinstance(dataset, cls):
            return dataset
        samples = list(dataset)
        columns = {name: [getattr(sample, name) for sample in samples] for name in ("image_id", "source", *FURTHER)}
        found = index(columns.pop("image_id"), [sample.label for sample in samples], what="data", **columns)
        about, aliases = partial(provenance_of, dataset), getattr(dataset, "aliases", None)
        return cls(found, dataset.classes, reader_of(dataset), about=about, aliases=aliases).read_by(dataset)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Sample]:
        for batch in self.index.to_batches(max_chunksize=_BATCH):
            columns = {name: column.to_pylist() for name, column in zip(batch.schema.names, batch.columns, strict=True)}
            ids = columns["image_id"]
            sources = columns.get("source") or [self._source.replace("{id}", image_id) for image_id in ids]
            further = (columns.get(name) or [""] * len(ids) for name in FURTHER)
            yield from map(Sample, ids, columns["label"], sources, *further)

    def load(self, sample: Sample, size: int | None) -> Tensor:
        """The image, square with side `size` if given; raises BadImage if it can't be used.  # → (3, H, W)"""
        reader = self._reader or self._dataset
        if reader is None:
            raise BadData("data: its images cannot be read without the data set itself")
        return reader.load(sample, size)

    def reader(self) -> Reader | None:
        """Loads the images without the index, where workers can be sent one."""
        return self._reader

    def provenance(self) -> dict[str, str]:
        return {**(self._about() if self._about else {}), **self._selection}

    def limit(self, *, per_class: int | None = None, count: int | None = None, seed: int | None = None) -> ImageSet:
        """At most `per_class` images of each class and `count` in all: evenly spread, or drawn at random with a seed.

        Every class gives the same number, or all it has if that is less. What does not divide goes to the largest classes,
        the first ones where they are alike. Without a seed a class's images are spread evenly over its list.
        """
        numbers = self._labels()
        held = Counter(dict(zip(*(part.tolist() for part in np.unique(numbers, return_counts=True)), strict=True)))
        capped = Counter({label: min(number, per_class or number) for label, number in held.items()})
        wanted = shares(capped, min(count or capped.total(), capped.total()))
        if sum(wanted.values()) == len(self.index):
            return self
        order = np.argsort(numbers, kind="stable") if seed is None else np.lexsort((self._hashes(seed), numbers))
        keep = np.zeros(len(numbers), dtype=bool)
        start = 0
        for label in sorted(held):
            rows, share = order[start : start + held[label]], wanted[label]
            at = np.arange(len(rows))
            spread = (at + 1) * share // len(rows) > at * share // len(rows)  # `share` times, evenly spread
            keep[rows[spread if seed is None else at < share]] = True
            start += held[label]
        selected = self._with(self.index.filter(pa.array(keep)))
        how = {"taken": f"{len(selected)} of {len(self)}"}
        selected._selection |= how if seed is None else {"drawn": f"{how['taken']}, seed {seed}"}
        return selected

    def relabel(self, groups: Mapping[str, Sequence[labels.Member]], *, what: str, lenient: bool = False) -> ImageSet:
        """The images of some classes, labelled by the groups they are in. With `lenient`, missing members are left out."""
        found = labels.resolve_groups(groups, self.classes, what=f"data {what}", aliases=self.aliases, partial=lenient)
        new = np.full(len(self.classes), -1, dtype=np.int32)
        for label, numbers in enumerate(found.values()):
            new[numbers] = label
        mapped = new[self._labels()]
        place = self.index.schema.get_field_index("label")
        selected = self._with(self.index.set_column(place, "label", pa.array(mapped)).filter(pa.array(mapped >= 0)))
        selected.classes, selected.aliases, selected.class_ids = list(found), None, None  # a group has no name but its own
        if all(len(numbers) == 1 for numbers in found.values()):  # a class that is only kept keeps its names
            kept = [numbers[0] for numbers in found.values()]
            selected.aliases = [(self.classes[number], *(self.aliases[number] if self.aliases else ())) for number in kept]
        members = sum(map(len, found.values()))
        kept_of = f"{len(selected)} of {len(self)}, {members} of {len(self.classes)} classes"
        selected._selection["kept"] = kept_of
        return selected

    def head(self, images: int) -> ImageSet:
        """A few images spread over the classes, with the length of the whole set: all that a worker has to be sent."""
        few = copy(self.limit(count=images))
        few._length, few._about, few._dataset = len(self), None, None
        return few

    def read_by(self, dataset: Dataset) -> ImageSet:
        """The same set with its images loaded by a data set, unless it has a reader."""
        found = copy(self)
        found._dataset = dataset
        return found

    def _with(self, index: pa.Table) -> ImageSet:
        found = copy(self)
        found.index, found._length, found._selection = index, len(index), dict(self._selection)
        return found

    def _labels(self) -> NDArray[np.int32]:
        values: NDArray[np.int32] = self.index["label"].to_numpy()
        return values

    def _hashes(self, seed: int) -> NDArray[np.uint64]:
        return np.fromiter((stable_hash(seed, image.as_py()) for image in self.index["image_id"]), np.uint64, len(self.index))


def index(ids: Sequence[str], numbers: Any, *, what: str, **columns: Sequence[str]) -> pa.Table:
    """An index; further columns that say nothing new are left out. Names that are not UTF-8 are refused by name."""
    table = {"image_id": _text(ids, what), "label": pa.array(np.asarray(numbers, dtype=np.int32))}
    for name, values in columns.items():
        if values != ids if name == "source" else any(values):
            table[name] = _text(values, what)
    return pa.table(table)


def shares(held: Counter[int], limit: int) -> dict[int, int]:
    """Share `limit` images among the labels as evenly as can be."""
    taken: dict[int, int] = {}
    left = limit
    # From the smallest class on: whatever a small class cannot give is shared by those that follow.
    for position, (label, count) in enumerate(sorted(held.items(), key=lambda item: (item[1], -item[0]))):
        taken[label] = min(count, left // (len(held) - position))
        left -= taken[label]
    return taken


@dataclass(frozen=True)
class SubsetOptions:
    classes: Sequence[str] | None = None
    groups: labels.GroupSpec | None = None
    per_class: int | None = None
    count: int | None = None
    seed: int | None = None
    options: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.classes is not None and self.groups is not None:
            raise BadData("subset: give classes or groups, not both; a class is a group of one")
        if any(limit is not None and limit < 1 for limit in (self.per_class, self.count)):
            raise BadData(f"subset: per_class and count are at least 1, got {self.per_class} and {self.count}")


def subset_dataset(data: str, options: SubsetOptions) -> ImageSet:
    """A part of any data set: subset:folder:PATH with `classes`, `groups`, `per_class`, `count` and `seed`.

    `classes` are the ones to keep, by any of their names. `groups` makes many classes one: a mapping from the new class to
    names, WordNet ids or numbers, a file with one, or `imagenet-9`; classes in no group are left out. `per_class` and
    `count` limit the images; they are spread evenly over each class, or with `seed` drawn at random. The data set's own
    options go under `options`.
    """
    if not data:
        raise BadData("subset: name a data set, as in subset:folder:photos")
    found = ImageSet.of(registry.create("dataset", data if ":" in data else f"folder:{data}", options.options))
    if options.classes is not None:
        found = found.relabel({name: [name] for name in options.classes}, what=data)
    elif options.groups is not None:
        found = found.relabel(labels.read_groups(options.groups), what=data, lenient=True)
    held = len(np.unique(found._labels()))
    if held < 2:
        raise BadData(f"subset:{data}: images of {held} of the {len(found.classes)} classes; two are needed")
    return found.limit(per_class=options.per_class, count=options.count, seed=options.seed)


def _text(values: Iterable[str], what: str) -> pa.Array:
    try:
        return pa.array(values, type=pa.string())
    except (UnicodeEncodeError, pa.ArrowInvalid):
        strange = next((value for value in values if value.encode(errors="replace").decode() != value), "")
        raise BadData(f"{what}: the name {strange!a} is not in UTF-8; rename it") from None
