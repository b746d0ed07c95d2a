"""CLIP, asked for each attribute by captions that state it alone."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers import CLIPModel

from counterfoil.lab.measures.bench import Bench
from counterfoil.lab.prompts import singles
from counterfoil.lab.readings import Reading, share
from counterfoil.lab.train.formats import normalise
from counterfoil.lab.vocabulary import FACTORS


class ZeroShot:
    """The lab's CLIP as a judge of pictures."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._model = bench.load(CLIPModel, "clip")
        self._tokenizer = bench.tokenizer("clip")

    def see(self, images: Tensor) -> Tensor:
        """Pictures as points of unit length.  # (N, 3, 64, 64) → (N, D)"""

        def features(part: Tensor) -> Tensor:
            found: Tensor = self._model.get_image_features(pixel_values=normalise(part)).pooler_output  # type: ignore[operator]
            return found

        return nn.functional.normalize(self._bench.batched(features, images), dim=1)

    def choose(self, seen: Tensor, factor: str) -> Tensor:
        """The value of a factor whose caption is nearest to each picture.  # (N, D) → (N,)"""
        tokens = self._tokenizer(singles(factor), padding=True, return_tensors="pt").to(self._bench.device)
        with torch.no_grad():
            texts = self._model.get_text_features(**tokens).pooler_output  # type: ignore[operator]
        return (seen @ nn.functional.normalize(texts, dim=1).T).argmax(1)


def clip(bench: Bench) -> list[Reading]:
    """Zero-shot accuracy on each attribute, and reconstructions accepted."""
    scenes, images = bench.scenes()
    judge = ZeroShot(bench)
    seen = judge.see(images)
    readings = []
    for factor in FACTORS:
        target = 90.0 if factor == "garment" else 95.0
        readings.append(share(f"zero-shot {factor}", judge.choose(seen, factor) == scenes.factors[factor], at_least=target))
    made = judge.see(bench.decoded(bench.codes(images)))
    accepted = judge.choose(made, "garment") == scenes.factors["garment"]
    return [*readings, share("vqgan reconstructions accepted", accepted, at_least=85)]
