"""A data set that another process has gone through, for workers that are told which images to load."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor

from counterfoil.datasets.subset import take
from counterfoil.labels import Aliases
from counterfoil.parts import Dataset, Sample

FEW = 32
"""Images that parts are tried on before a run."""


@dataclass(frozen=True)
class Listed:
    """What workers have to know of a run's data set without going through it."""

    images: int
    few: tuple[Sample, ...]

    @classmethod
    def of(cls, dataset: Dataset) -> Listed:
        """A few of the samples, taken evenly over the classes, and how many there are."""
        return cls(len(dataset), tuple(take(dataset, FEW)))


class Excerpt:
    """The whole data set, of which only a few samples are listed here: its own list, of millions perhaps, is not asked for."""

    def __init__(self, dataset: Dataset, listed: Listed) -> None:
        self.dataset, self._listed = dataset, listed
        self.classes: Sequence[str] = dataset.classes
        self.aliases: Aliases | None = getattr(dataset, "aliases", None)

    def __len__(self) -> int:
        return self._listed.images

    def __iter__(self) -> Iterator[Sample]:
        return iter(self._listed.few)

    def load(self, sample: Sample, size: int | None) -> Tensor:
        """The picture of any sample of the data set.  # → (3, H, W)"""
        return self.dataset.load(sample, size)
