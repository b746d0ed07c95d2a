"""LANCE's stages over answers, the oracle's and the tested models'; then the run's records."""

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

from counterfoil.core.records import Estimate, Picture, Trial, Verdict
from counterfoil.metrics.estimate import Mean, estimate
from counterfoil.parts import images, registry
from counterfoil.parts.contracts import to_device
from counterfoil.protocols.base import Outcome
from counterfoil.protocols.lance.captions import check_edits, embed_images, image_of
from counterfoil.protocols.stages import Looks, Stage, Tables
from counterfoil.protocols.workspace import Workspace, prediction_of
from counterfoil.store.files import sha256_of
from counterfoil.store.stages import Item, Made, Row, turned_away
from counterfoil.store.stages import image_of as stored_image

ENOUGH = 25
"""Images per feature from which the distance's bias is small; the 50,000 of FID are 24 for each of Inception's features."""


class _Shown(Stage):
    """Asks about every readable source image, the reconstruction of those that were edited, and every edit that passed."""

    def items(self) -> Iterator[Item]:
        labels = {}
        for row in self.tables["sources"].passing():
            labels[row.id] = row["label"]
            yield self._item(f"{row.id}#clean", "clean", row["picture"], row["label"])
        last = None
        for row in self.tables["pictures"].passing():
            image_id = image_of(row.id)
            if image_id != last:
                last = image_id
                yield self._item(f"{image_id}#reconstruction", "reconstruction", row["reconstruction"], labels[image_id])
        for row in self.tables["quality"].passing():
            yield self._item(row.id, "made", row["image"], labels[image_of(row.id)])

    def _item(self, name: str, kind: Picture, file: str, label: int) -> Item:
        return Item(name, {"picture": self.tables.files.hash_of(file), "label": label}, {"kind": kind, "name": file})


class Verdicts(_Shown):
    """The oracle on every image; an edited image that has lost its class is rejected."""

    name, uses = "oracle", ("oracle",)

    def decided_by(self) -> Mapping[str, Any]:
        return {"classes": self.space.names}

    def work(self, items: Sequence[Item]) -> list[Made]:
        answers = self.space.judge(
            self.images(items, "name"), [item.inputs["label"] for item in items], [image_of(item.id) for item in items]
        )
        return [self._verdict(item, *answer) for item, answer in zip(items, answers, strict=True)]

    def _verdict(self, item: Item, keeps: bool | None, score: float, seen: int) -> Made:
        values: dict[str, Any] = {"keeps_label": keeps, "score": score, "predicted": seen}
        if item.about["kind"] != "made" or keeps:
            return Made(values)
        if keeps is None:
            return turned_away("undecided", "the oracle has not decided yet", **values)
        sees = self.space.names[seen] if 0 <= seen < len(self.space.names) else "another class"
        return turned_away("class lost", f"the oracle sees {sees}", **values)


class Predictions(_Shown, Looks):
    """The predictions of one model for every image."""

    shows = "name"

    def __init__(self, space: Workspace[Any], tables: Tables, at: int) -> None:
        super().__init__(space, tables, at, predictions_table(space, at))


class Realism(Stage):
    """One row about the whole set; what could not be measured has a note instead of a number."""

    name = "set"

    def __init__(self, space: Workspace[Any], tables: Tables) -> None:
        super().__init__(space, tables)
        self.uses = ("encoder",) if space.spec.realism.features is None else ()

    def items(self) -> Iterator[Item]:
        content = hashlib.sha256()
        for source, made in self._pairs():
            content.update(f"{source} {made}\n".encode())
        yield Item("set", {"pictures": content.hexdigest(), "edits": sha256_of(self.tables["edits"].path)})

    def decided_by(self) -> Mapping[str, Any]:
        return {"encoder": self.space.settings("encoder"), **self.space.spec.realism.model_dump(mode="json")}

    def work(self, items: Sequence[Item]) -> list[Made]:
        return [Made({**self._distance(), **self._perplexity()}) for _ in items]

    def _pairs(self) -> Iterator[tuple[str, str]]:
        """Source image and edited image of every edit that the oracle accepts."""
        for row in self.tables["quality"].passing():
            verdict, source = self.tables["oracle"].one(row.id), self.tables["sources"].one(image_of(row.id))
            if verdict is not None and verdict.goes_on and source is not None:
                yield source["picture"], row["image"]

    def _distance(self) -> dict[str, Any]:
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
        named, device = self.space.spec.realism.features, self.space.device
        if named is None:
            return lambda pictures: embed_images(self.space, pictures).double().numpy()
        encoder = to_device(registry.create("encoder", named.name, named.options), device)

        @torch.no_grad()
        def extract(pictures: Sequence[Tensor]) -> Any:
            return encoder.embed_images(torch.stack(list(pictures)).to(device)).double().cpu().numpy()

        return extract

    def _perplexity(self) -> dict[str, Any]:
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


def predictions_table(space: Workspace[Any], at: int) -> str:
    """The stage of a model; the last one's has the plain name, so that stopping after `predictions` means after all of them."""
    return "predictions" if at == len(space.readers) - 1 else f"predictions-{at + 1}"


def outcome(space: Workspace[Any], tables: Tables, source: Row, edits: Sequence[Row]) -> Outcome:
    """The records of one source image: a trial for itself and one per edit, and the answers about them."""
    trials = [_source(space, tables, source), *(_edited_trial(space, tables, edit, source) for edit in edits)]
    asked = [(trial, question, kind) for trial in trials for question, kind in _images_to_ask(trial)]
    predictions, verdicts = [], []
    for trial, question, kind in asked:
        for at, (named, _) in enumerate(space.readers):
            if (row := tables[predictions_table(space, at)].one(question)) is not None:
                predictions.append(prediction_of(trial.trial_id, kind, named.name, {"said": "", **row.values}))
        if (row := tables["oracle"].one(question)) is not None:
            name = space.spec.oracle.name
            verdicts.append(Verdict(trial.trial_id, kind, name, row["keeps_label"], row["score"], row["predicted"]))
    return Outcome(tuple(trials), tuple(predictions), tuple(verdicts))


def _source(space: Workspace[Any], tables: Tables, row: Row) -> Trial:
    common = {"image_id": row.id, "label": row["label"], "seed": space.seed(row.id), "source": row["source"]}
    if not row.goes_on:
        return Trial(**common, arm="source", ending="skipped", steps=0, queries=0, reason=row.reason)
    caption = tables["captions"].one(row.id)
    redrawn = (tables["pictures"].one(edit.id) for edit in tables["edits"].of(row.id))
    first = next((each for each in redrawn if each is not None and each.goes_on), None)
    return Trial(
        **common,
        arm="source",
        ending="made",
        steps=0,
        queries=0,
        source_sha256=images.digest(tables.image(row["picture"])),
        clean=stored_image(row["picture"]),
        reconstruction=stored_image(first["reconstruction"]) if first is not None else "",
        caption=str(caption.values.get("caption", "")) if caption is not None else "",
        reason=f"{caption.check}: {caption.reason}" if caption is not None and not caption.goes_on else "",
    )


def _edited_trial(space: Workspace[Any], tables: Tables, edit: Row, source: Row) -> Trial:
    redrawn, quality = tables["pictures"].one(edit.id), tables["quality"].one(edit.id)
    checks = (tables["inversions"].one(edit.of), redrawn, quality)
    stopped = next((row for row in checks if row is not None and not row.goes_on), None)
    made = quality if quality is not None and stopped is None else None
    return Trial(
        image_id=edit.of,
        arm="edited",
        label=source["label"],
        seed=space.seed(edit.of),
        ending="made" if made is not None else "rejected",
        steps=0,
        queries=0,
        source=source["source"],
        clean=stored_image(source["picture"]),
        reconstruction=stored_image(redrawn["reconstruction"]) if redrawn is not None and redrawn.goes_on else "",
        image=stored_image(made["image"]) if made is not None else "",
        reason=f"{stopped.check}: {stopped.reason}" if stopped is not None else "",
        variant=edit.id.rpartition("#")[2],
        factor=edit["factor"],
        value=str(edit.values.get("added", "")),
        caption=edit["caption"],
        prompt=edit["edited"],
        quality=float(quality.values.get("directional", 0.0)) if quality is not None else 0.0,
    )


def _images_to_ask(trial: Trial) -> list[tuple[str, Picture]]:
    """The images of a trial that models and oracle are asked about, by the id of the question."""
    if trial.arm == "edited":
        return [(trial.trial_id, "made")] if trial.image else []
    asked: list[tuple[str, Picture]] = [(f"{trial.image_id}#clean", "clean")] if trial.clean else []
    return asked + ([(f"{trial.image_id}#reconstruction", "reconstruction")] if trial.reconstruction else [])


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
