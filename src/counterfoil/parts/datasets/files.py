"""Reads the pictures of a data set by their paths, without its list."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from counterfoil.parts import images
from counterfoil.parts.contracts import Sample


@dataclass(frozen=True)
class Files:
    """Pictures whose sources are paths below a folder."""

    root: Path

    def load(self, sample: Sample, size: int | None) -> Tensor:
        """The picture, square with side `size` if given; raises BadImage if it can't be used.  # → (3, H, W)"""
        return images.read(self.root / sample.source, size)
