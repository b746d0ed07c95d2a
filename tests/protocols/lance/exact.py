"""An editor for the lab's scenes that makes no mistakes: it draws the scene again with the edited attributes.

With it, what LANCE says of a classifier is about the classifier and about the measures, not about an editor's skill.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from counterfoil.parts import images
from counterfoil.parts.contracts import EditResult, Inversion, Refusal
from counterfoil_lab.captions import parse
from counterfoil_lab.drawing.render import render
from counterfoil_lab.parts import Wardrobe
from counterfoil_lab.world import FACTORS, Scenes


@dataclass
class Redrawn:
    """Knows each scene by its pixels."""

    wardrobe: Wardrobe
    size: int | None = 64
    sweep: Sequence[str] = ("exact",)
    _known: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for index, sample in enumerate(self.wardrobe):
            self._known[images.digest(self.wardrobe.load(sample, None))] = index

    def invert(self, pictures: Sequence[Tensor], captions: Sequence[str], seeds: Sequence[int]) -> list[Inversion | Refusal]:
        """The scene's number; a caption that is not true of it is refused, as its edit would be another edit."""
        found: list[Inversion | Refusal] = []
        for picture, caption in zip(pictures, captions, strict=True):
            said, at = parse(caption), self._known[images.digest(picture)]
            true = said is not None and all(
                FACTORS[name].index(value) == int(self.wardrobe.scenes.factors[name][at]) for name, value in said.items()
            )
            found.append(Inversion(caption, {"scene": torch.tensor(at)}) if true else Refusal("the caption is not true of it"))
        return found

    def edit(self, inversions: Sequence[Inversion], edited: Sequence[str]) -> list[EditResult | Refusal]:
        """The scenes with what the captions say."""
        rows = torch.tensor([int(inversion.tensors["scene"]) for inversion in inversions])
        scenes = self.wardrobe.scenes[rows]
        said = [parse(caption) or {} for caption in edited]
        factors = {name: torch.tensor([values.index(each[name]) for each in said]) for name, values in FACTORS.items()}
        with torch.no_grad():
            before, _ = render(scenes, self.wardrobe.garments)
            after, _ = render(Scenes(factors, scenes.garment, scenes.seed), self.wardrobe.garments)
        return [EditResult(made[None], source) for source, made in zip(before, after, strict=True)]
