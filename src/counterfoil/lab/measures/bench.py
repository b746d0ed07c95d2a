"""What a measurement is given: the garments of a split, the scenes of a seed, and the models, each noted by its hash."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from diffusers import VQModel
from torch import Tensor, nn
from transformers import AutoTokenizer

from counterfoil.core.errors import UnknownName
from counterfoil.lab.checker import Checker
from counterfoil.lab.garments import Garments, fresh, shipped, whole
from counterfoil.lab.places import WEIGHTS
from counterfoil.lab.scenes import Scenes, render, sample
from counterfoil.lab.train.classifiers import to_grey
from counterfoil.lab.train.formats import load_timm, normalise
from counterfoil.lab.train.pool import to_bytes, to_floats
from counterfoil.parts import weights as weight_files
from counterfoil.parts.generators.autoencoders import VectorAutoencoder

BATCH = 100
SEEDS = {"tune": 500_001, "report": 500_002, "fresh": 500_003, "whole": 500_004}
"""Where the scenes of each split come from: no two share a scene, and no recipe's pool draws from these seeds."""
TUNE, REPORT, FRESH, WHOLE = SEEDS


@dataclass(frozen=True)
class Bench:
    """Where the models are, and what they are measured on."""

    weights: Path = WEIGHTS
    device: str = "cpu"
    count: int = 1000
    split: str = REPORT
    data: Path | None = None
    """The folder with Fashion-MNIST's idx files, for the splits that do not ship; None for where they usually are."""
    hashes: dict[str, str] = field(default_factory=dict, compare=False)
    """SHA-256 of every weight file that was loaded, by its path below the folder of the lab's models."""

    @property
    def seed(self) -> int:
        """What the scenes are drawn from."""
        return SEEDS[self.split]

    def garments(self) -> Garments:
        """The shapes of the split."""
        if self.split not in SEEDS:
            raise UnknownName(f"no split named {self.split!r}; choose one of {', '.join(SEEDS)}")
        if self.split in (FRESH, WHOLE):
            return fresh(self.data) if self.split == FRESH else whole(self.data)
        return shipped(self.split)

    def scenes(self, distribution: str = "full") -> tuple[Scenes, Tensor]:
        """Scenes of the split's garments and their pictures, rounded as a file would round them."""
        garments = self.garments()
        scenes = sample(self.count, garments=garments, distribution=distribution, seed=self.seed)
        images, _ = render(scenes, garments)
        return scenes.to(self.device), to_floats(to_bytes(images)).to(self.device)

    def undrawn(self) -> Scenes:
        """The scenes of the full distribution without their pictures, for models that are given words: garments play no part."""
        return sample(self.count, garments=shipped(REPORT), seed=self.seed).to(self.device)

    def folder(self, name: str, *inner: str) -> Path:
        """Where a model is, whose hashes are noted: in the folder that was given, or else, as judges and decoders of another may
        be, in the package."""
        given = self.weights / name
        root = self.weights if given.is_dir() else WEIGHTS
        found = (root / name).joinpath(*inner)
        for path in sorted(found.rglob("*.safetensors")):
            key = path.relative_to(root).as_posix()
            if key not in self.hashes:
                self.hashes[key] = weight_files.file_sha256(path)
        return found

    def load(self, kind: type, name: str, *inner: str) -> nn.Module:
        """A diffusers or transformers model in single precision."""
        model = kind.from_pretrained(self.folder(name, *inner))  # type: ignore[attr-defined]
        return model.float().to(self.device).eval().requires_grad_(False)  # type: ignore[no-any-return]

    def tokenizer(self, name: str, **options: Any) -> Any:
        """The tokenizer that comes with a model."""
        return AutoTokenizer.from_pretrained(self.folder(name), **options)

    def classifier(self, name: str) -> Callable[[Tensor], Tensor]:
        """A timm model's scores of pictures."""
        model = load_timm(self.folder(name)).to(self.device)
        grey = model.pretrained_cfg["input_size"][0] == 1  # type: ignore[index]
        return lambda images: model(normalise(to_grey(images) if grey else images))

    def classify(self, name: str, images: Tensor) -> Tensor:
        """The classes that a timm model sees.  # (N, 3, 64, 64) → (N,)"""
        return self.batched(self.classifier(name), images).argmax(1)

    def read(self, images: Tensor) -> dict[str, Tensor]:
        """The value of each factor that the attribute checker sees.  # (N, 3, 64, 64) → {factor: (N,)}"""
        seen = Checker(self.device, folder=self.folder("attributes")).read(images)
        return {factor: values.to(self.device) for factor, values in seen.items()}

    def batched(self, function: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
        """The function over batches, without gradients."""
        with torch.no_grad():
            return torch.cat([function(part) for part in rows.split(BATCH)])

    def codes(self, images: Tensor) -> Tensor:
        """The vqgan's codes of pictures, as the search starts from them.  # (N, 3, 64, 64) → (N, 8, 16, 16)"""
        vqgan = VectorAutoencoder(self.load(VQModel, "vqgan"))
        return self.batched(lambda part: vqgan.quantise(vqgan.encode(part)), images)

    def decoded(self, codes: Tensor) -> Tensor:
        """The vqgan's pictures of codes."""
        vqgan = VectorAutoencoder(self.load(VQModel, "vqgan"))
        return self.batched(lambda part: vqgan.decode(part).clamp(0, 1), codes)
