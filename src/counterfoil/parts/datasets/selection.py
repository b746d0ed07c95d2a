"""A part of any data set: some classes, groups of them, some pictures of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import heappush, heapreplace
from typing import Any

from torch import Tensor

from counterfoil.core.errors import BadData
from counterfoil.core.lots import lot
from counterfoil.parts import labels, registry
from counterfoil.parts.contracts import Dataset, Reader, Sample, provenance_of, reader_of
from counterfoil.parts.datasets.subset import Subset, shares


def subset_dataset(
    data: str,
    *,
    classes: Sequence[str] | None = None,
    groups: labels.GroupSpec | None = None,
    per_class: int | None = None,
    count: int | None = None,
    seed: int | None = None,
    options: Mapping[str, Any] | None = None,
) -> Dataset:
    """A part of any data set: subset:folder:PATH with `classes`, `groups`, `per_class`, `count` and `seed`.

    `classes` are the ones to keep, by any of their names. `groups` makes many classes one: a mapping from the new class to
    names, WordNet ids or numbers, a file with one, or `imagenet-9`; classes in no group are left out. `per_class` and
    `count` limit the pictures; they are spread evenly over each class, or with `seed` drawn at random. The data set's own
    options go under `options`.
    """
    if not data:
        raise BadData("subset: name a data set, as in subset:folder:photos")
    if classes is not None and groups is not None:
        raise BadData("subset: give classes or groups, not both; a class is a group of one")
    whole: Dataset = registry.create("dataset", data if ":" in data else f"folder:{data}", options)
    selected = whole
    if classes is not None:
        selected = Relabelled(whole, {name: [name] for name in classes}, what=data, partial=False)
    elif groups is not None:
        selected = Relabelled(whole, labels.read_groups(groups), what=data, partial=True)
    return limited(selected, per_class=per_class, count=count, seed=seed, what=data)


class Relabelled:
    """The samples of some classes of a data set, under the labels of the groups they are in."""

    def __init__(self, dataset: Dataset, groups: Mapping[str, Sequence[labels.Member]], *, what: str, partial: bool) -> None:
        aliases: labels.Aliases | None = getattr(dataset, "aliases", None)
        found = labels.resolve_groups(groups, dataset.classes, what=f"data {what}", aliases=aliases, partial=partial)
        self.dataset = dataset
        self.classes: Sequence[str] = list(found)
        self.aliases: labels.Aliases | None = None  # a group has no name but its own
        if all(len(numbers) == 1 for numbers in found.values()):  # a class that is only kept keeps its names
            kept = [numbers[0] for numbers in found.values()]
            self.aliases = [(dataset.classes[number], *(aliases[number] if aliases else ())) for number in kept]
        self._labels = {number: label for label, numbers in enumerate(found.values()) for number in numbers}
        self._length = sum(sample.label in self._labels for sample in dataset)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Sample]:
        for sample in self.dataset:
            if sample.label in self._labels:
                yield replace(sample, label=self._labels[sample.label])

    def load(self, sample: Sample, size: int | None) -> Tensor:
        """The picture, from the whole data set.  # → (3, H, W)"""
        return self.dataset.load(sample, size)

    def reader(self) -> Reader | None:
        """That of the whole data set."""
        return reader_of(self.dataset)

    def provenance(self) -> dict[str, str]:
        """What the whole data set says of itself, and what was kept of it."""
        of_classes = f"{len(self._labels)} of {len(self.dataset.classes)} classes"
        return {**provenance_of(self.dataset), "kept": f"{len(self)} of {len(self.dataset)}, {of_classes}"}


class Drawn:
    """Samples of a data set drawn at random: for each label, those whose ids hash lowest with the seed."""

    def __init__(self, dataset: Dataset, wanted: Mapping[int, tuple[int, int]], *, seed: int) -> None:
        self.dataset = dataset
        self.classes: Sequence[str] = dataset.classes
        self.aliases: labels.Aliases | None = getattr(dataset, "aliases", None)
        self._seed = seed
        lowest: dict[int, list[tuple[int, str]]] = {label: [] for label in wanted}  # heaps with the highest hash on top
        for sample in dataset:
            heap, entry = lowest[sample.label], (-lot(seed, sample.image_id), sample.image_id)
            if len(heap) < wanted[sample.label][0]:
                heappush(heap, entry)
            elif heap and entry > heap[0]:
                heapreplace(heap, entry)
        self._chosen = {image_id for heap in lowest.values() for _, image_id in heap}

    def __len__(self) -> int:
        return len(self._chosen)

    def __iter__(self) -> Iterator[Sample]:
        return (sample for sample in self.dataset if sample.image_id in self._chosen)

    def load(self, sample: Sample, size: int | None) -> Tensor:
        """The picture, from the whole data set.  # → (3, H, W)"""
        return self.dataset.load(sample, size)

    def reader(self) -> Reader | None:
        """That of the whole data set."""
        return reader_of(self.dataset)

    def provenance(self) -> dict[str, str]:
        """What the whole data set says of itself, and what was drawn from it."""
        return {**provenance_of(self.dataset), "drawn": f"{len(self)} of {len(self.dataset)}, seed {self._seed}"}


def limited(dataset: Dataset, *, per_class: int | None, count: int | None, seed: int | None, what: str) -> Dataset:
    """At most `per_class` samples of each class and `count` in all: evenly spread, or drawn with a seed."""
    if any(limit is not None and limit < 1 for limit in (per_class, count)):
        raise BadData(f"subset:{what}: per_class and count are at least 1, got {per_class} and {count}")
    held = Counter(sample.label for sample in dataset)
    if len(held) < 2:
        raise BadData(f"subset:{what}: pictures of {len(held)} of the {len(dataset.classes)} classes; two are needed")
    if per_class is None and count is None:
        return dataset
    capped = Counter({label: min(number, per_class or number) for label, number in held.items()})
    fair = shares(capped, min(count or capped.total(), capped.total()))
    wanted = {label: (share, held[label]) for label, (share, _) in fair.items()}
    return Subset(dataset, wanted) if seed is None else Drawn(dataset, wanted, seed=seed)
