"""Realism of the generated set: the Fréchet distance of its images, and the perplexity of its captions."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from counterfoil.core.records import Estimate
from counterfoil.metrics.estimate import Mean, estimate
from counterfoil.parts import registry
from counterfoil.parts.contracts import to_device
from counterfoil.protocols.lance.captions import check_edits, image_of
from counterfoil.protocols.lance.quality import EmbeddingBatches
from counterfoil.protocols.stages import Stage, Tables
from counterfoil.protocols.workspace import Workspace
from counterfoil.store.files import sha256_of
from counterfoil.store.stages import Item, Made

ENOUGH = 25
"""Images per feature from which the distance's bias is small; the 50,000 of FID are 24 for each of Inception's features."""


class Realism(Stage):
    """One row about the whole set; what could not be measured has a note instead of a number."""

    name = "set"

    def __init__(self, space: Workspace[Any], tables: Tables) -> None:
        super().__init__(space, tables)
        self.uses = ("encoder",) if space.spec.realism.features is None else ()

    def items(self) -> Iterator[Item]:
        """The set, known by its accepted images and its edits."""
        content = hashlib.sha256()
        for source, made in self._pairs():
            content.update(f"{source} {made}\n".encode())
        yield Item("set", {"pictures": content.hexdigest(), "edits": sha256_of(self.tables["edits"].path)})

    def decided_by(self) -> Mapping[str, Any]:
        """The networks that measure it."""
        return {"encoder": self.space.settings("encoder"), **self.space.spec.realism.model_dump(mode="json")}

    def work(self, items: Sequence[Item]) -> list[Made]:
        """Measure the set."""
        return [Made({**self._distance(), **self._perplexity()}) for _ in items]

    def _pairs(self) -> Iterator[tuple[str, str]]:
        """Source image and edited image of every edit that the oracle accepts."""
        for row in self.tables["quality"].passing():
            verdict, source = self.tables["oracle"].one(row.id), self.tables["sources"].one(image_of(row.id))
            if verdict is not None and verdict.goes_on and source is not None:
                yield source["picture"], row["image"]

    def _distance(self) -> dict[str, Any]:
        """Fréchet distance between the source images that have an accepted edit and the accepted edits."""
        named = self.space.spec.realism.features
        extract = self._features()
        pairs = list(self._pairs())  # names alone
        features = []
        for names in (dict.fromkeys(name for name, _ in pairs), [name for _, name in pairs]):
            left, rows = iter(names), []
            while some := list(islice(left, self.space.batch)):
                rows += list(extract([self.tables.image(name) for name in some]))
            features.append(np.array(rows, dtype=np.float64))
        sources, made = features
        value, note = frechet(sources, made)
        return {
            "frechet": value,
            "frechet_note": note,
            "frechet_features": named.name if named is not None else f"{self.space.spec.encoder.name} (stands in for Inception)",
            "frechet_pictures": [len(sources), len(made)],
        }

    def _features(self) -> Any:
        """A function from a few images to their features."""
        named, device = self.space.spec.realism.features, self.space.device
        if named is None:
            batches = EmbeddingBatches(self.space.encoder, batch=self.space.batch, device=device)
            return lambda pictures: batches.images(pictures).double().numpy()
        encoder = to_device(registry.create("encoder", named.name, named.options), device)

        @torch.no_grad()
        def extract(pictures: Sequence[Tensor]) -> Any:
            return encoder.embed_images(torch.stack(list(pictures)).to(device)).double().cpu().numpy()

        return extract

    def _perplexity(self) -> dict[str, Any]:
        """Perplexity of the captions and of the edited captions under a language model."""
        name = self.space.spec.realism.language
        if name is None:
            return {"perplexity_note": "no language model given; name one under realism.language"}
        from counterfoil.parts.language.text_models import Perplexity

        model = Perplexity(name).to(self.space.device)
        rows = list(check_edits(self.tables["edits"]))
        captions = list(dict.fromkeys(row["caption"] for row in rows))
        found = {"captions": model.of(captions), "edits": model.of([row["edited"] for row in rows])}
        means = {key: _geometric([each for each in values if each > 0 and math.isfinite(each)]) for key, values in found.items()}
        return {
            "perplexity_captions": means["captions"].to_dict(),
            "perplexity_edits": means["edits"].to_dict(),
            "perplexity_model": name,
        }


def frechet(one: NDArray[np.float64], two: NDArray[np.float64]) -> tuple[float | None, str]:
    """|m₁ − m₂|² + tr(C₁ + C₂ − 2 (C₁ C₂)^½) of two sets of features, and what to know about it.  # (N, D), (M, D)

    It has no interval: what few images do to it is no spread but a bias upwards, so only sets of equal size compare.
    """
    fewest = min(len(one), len(two))
    if fewest < 2:
        return None, f"too few images: {len(one)} and {len(two)}"
    first, second = (np.atleast_2d(np.cov(each, rowvar=False)) for each in (one, two))
    # The root's trace is the sum of the roots of C₁ C₂'s eigenvalues, which are those of C₁^½ C₂ C₁^½.
    values, vectors = np.linalg.eigh(first)
    half = (vectors * np.sqrt(np.clip(values, 0, None))) @ vectors.T
    shared = np.sqrt(np.clip(np.linalg.eigvalsh(half @ second @ half), 0, None)).sum()
    apart = one.mean(axis=0) - two.mean(axis=0)
    distance = float(apart @ apart + np.trace(first) + np.trace(second) - 2 * shared)
    dimensions = one.shape[1]
    note = f"{fewest} images for {dimensions} features: biased upwards" if fewest < ENOUGH * dimensions else ""
    return max(distance, 0.0), note


def _geometric(values: Sequence[float]) -> Estimate:
    """The geometric mean, with an interval over texts: the perplexity of a text as a whole is one too."""
    columns = {"log": np.log(values), "texts": np.ones(len(values))} if values else {"log": np.zeros(0), "texts": np.zeros(0)}
    found = estimate(columns, {"": Mean("log", "texts", "no text with a perplexity")})[""]
    low, high = (None if bound is None else math.exp(bound) for bound in (found.low, found.high))
    return Estimate(None if found.value is None else math.exp(found.value), low, high, found.n, found.note)
