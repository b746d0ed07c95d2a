"""A few samples of a data set, taken evenly over its classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from torch import Tensor

from counterfoil.parts.contracts import Dataset, Reader, Sample, provenance_of, reader_of
from counterfoil.parts.labels import Aliases


def take(dataset: Dataset, limit: int) -> Dataset:
    """At most `limit` samples of `dataset`, in its order, the same ones every time.

    Every class gives the same number, or all it has if that is less. What does not divide goes to the largest classes,
    the first ones where they are alike. Within a class the samples are spread evenly over its list.
    """
    if limit >= len(dataset):
        return dataset
    return Subset(dataset, shares(Counter(sample.label for sample in dataset), limit))


def shares(held: Counter[int], limit: int) -> dict[int, tuple[int, int]]:
    """For each label, how many of how many samples to take so that `limit` are taken as evenly as can be."""
    taken: dict[int, tuple[int, int]] = {}
    left = limit
    # From the smallest class on: whatever a small class cannot give is shared by those that follow.
    for position, (label, count) in enumerate(sorted(held.items(), key=lambda item: (item[1], -item[0]))):
        share = min(count, left // (len(held) - position))
        taken[label] = (share, count)
        left -= share
    return taken


class Subset:
    """Some samples of a data set, chosen while it is listed, so that nothing is kept for each."""

    def __init__(self, dataset: Dataset, shares: dict[int, tuple[int, int]]) -> None:
        self.dataset = dataset
        self.classes: Sequence[str] = dataset.classes
        self.aliases: Aliases | None = getattr(dataset, "aliases", None)
        self._shares = shares

    def __len__(self) -> int:
        return sum(share for share, _ in self._shares.values())

    def __iter__(self) -> Iterator[Sample]:
        seen: Counter[int] = Counter()
        for sample in self.dataset:
            share, count = self._shares.get(sample.label, (0, 1))
            position = seen[sample.label]
            seen[sample.label] += 1
            # Taken where the running share reaches its next whole number: `share` times in `count` samples, spread out.
            if (position + 1) * share // count > position * share // count:
                yield sample

    def load(self, sample: Sample, size: int | None) -> Tensor:
        """The picture, from the data set the sample was taken from.  # → (3, H, W)"""
        return self.dataset.load(sample, size)

    def reader(self) -> Reader | None:
        """That of the whole data set."""
        return reader_of(self.dataset)

    def provenance(self) -> dict[str, str]:
        """What the whole data set says of itself, and how many samples of it were taken."""
        return {**provenance_of(self.dataset), "taken": f"{len(self)} of {len(self.dataset)}"}
