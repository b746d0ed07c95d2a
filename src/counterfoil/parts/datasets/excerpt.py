"""A data set that another process has gone through, for workers that are told which images to load."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor

from counterfoil.parts.contracts import Dataset, Reader, Sample, reader_of
from counterfoil.parts.datasets.subset import take
from counterfoil.parts.labels import Aliases

FEW = 32
"""Images that parts are tried on before a run."""


@dataclass(frozen=True)
class Listed:
    """What workers have to know of a run's data set without going through it."""

    images: int
    few: tuple[Sample, ...]
    classes: tuple[str, ...]
    aliases: Aliases | None
    reader: Reader | None  # of its pictures, where they can be read without the data set

    @classmethod
    def of(cls, dataset: Dataset) -> Listed:
        """A few of the samples, taken evenly over the classes, and how many there are."""
        few = tuple(take(dataset, FEW))
        return cls(len(dataset), few, tuple(dataset.classes), getattr(dataset, "aliases", None), reader_of(dataset))


class Excerpt:
    """The whole data set, of which only a few samples are listed here: its own list, of millions perhaps, is not asked for."""

    def __init__(self, listed: Listed, reader: Reader) -> None:
        self._listed, self._reader = listed, reader
        self.classes: Sequence[str] = listed.classes
        self.aliases = listed.aliases

    def __len__(self) -> int:
        return self._listed.images

    def __iter__(self) -> Iterator[Sample]:
        return iter(self._listed.few)

    def load(self, sample: Sample, size: int | None) -> Tensor:
        """The picture of any sample of the data set.  # → (3, H, W)"""
        return self._reader.load(sample, size)
