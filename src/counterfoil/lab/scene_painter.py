"""The lab's world itself as a painter: exact, quick, and a control for what a real painter adds."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from counterfoil.core.errors import BadSpec
from counterfoil.lab import garments
from counterfoil.lab.captions import parse
from counterfoil.lab.garments import Garments
from counterfoil.lab.scenes import Scenes, render
from counterfoil.lab.vocabulary import FACTORS, GARMENTS


class ScenePainter:
    """Draws the scene that a sentence of the lab's grammar states; pose, shape and details come from the seed."""

    def __init__(self, split: str = "report") -> None:
        self._split = split

    def paint(self, prompts: Sequence[str], seeds: Tensor) -> Tensor:
        """One picture a prompt.  # (N, 3, 64, 64)"""
        rows = [self._row(prompt) for prompt in prompts]
        factors = {name: torch.tensor([row[name] for row in rows]) for name in FACTORS}
        shapes = [self._shape(GARMENTS[row["garment"]], int(seed)) for row, seed in zip(rows, seeds, strict=True)]
        return render(Scenes(factors, torch.tensor(shapes), seeds), self._garments)[0]

    def provenance(self) -> dict[str, str]:
        """Which garments it has."""
        return {"garments": f"split {self._split}"}

    @cached_property
    def _garments(self) -> Garments:
        return garments.shipped(self._split)

    def _row(self, prompt: str) -> dict[str, int]:
        said = parse(prompt)
        if said is None:
            raise BadSpec(
                f"lab:scenes: {prompt!r} is no sentence of the lab; write as in 'a photo of a red wool dress on a beach'"
            )
        return {name: FACTORS[name].index(value) for name, value in said.items()}

    def _shape(self, garment: str, seed: int) -> int:
        """A garment of the class, by the seed."""
        own = (self._garments.labels == GARMENTS.index(garment)).nonzero()[:, 0]
        return int(own[(seed >> 7) % len(own)])
