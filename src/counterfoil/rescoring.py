"""Asks another model or another oracle about the pictures a run has stored, without making them again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from counterfoil import images, labels, registry
from counterfoil.records import Picture, Prediction, Trial, Verdict
from counterfoil.spec import PartSpec
from counterfoil.store import Run

Stored = tuple[Trial, Picture]
Watch = Callable[[int], None]
BATCH = 8


def score(run: Run, asked: PartSpec, *, device: str = "cpu", watch: Watch = lambda pictures: None) -> None:
    """Put a model's predictions beside the run's own."""
    model = _part("model", asked, device)
    aliases = getattr(model, "aliases", None)
    columns = labels.match(run.classes, model.classes, what=f"model {asked.name}", aliases=aliases)

    def predict(stored: list[Stored], pictures: Tensor) -> list[Prediction]:
        with torch.no_grad():
            chance = model.logits(pictures).float().softmax(1).cpu()  # (N, K)
        rows = []
        for (trial, picture), row in zip(stored, chance, strict=False):
            top, truth = int(row.argmax()), columns[trial.label]
            predicted = columns.index(top) if top in columns else -1
            said = (predicted, top == truth, float(row[top]), float(row[truth]))
            rows.append(Prediction(trial.trial_id, picture, asked.name, *said))
        return rows

    with run.appending() as part:
        for stored, pictures in _batches(run):
            part.add(predictions=predict(stored, pictures.to(device)))
            watch(len(stored))


def judge(run: Run, asked: PartSpec, *, device: str = "cpu", watch: Watch = lambda pictures: None) -> None:
    """Put an oracle's verdicts beside the run's own."""
    oracle = _part("oracle", asked, device).bind(run.classes)

    def decide(stored: list[Stored], pictures: Tensor) -> list[Verdict]:
        truth = [trial.label for trial, _ in stored]
        truth += truth[-1:] * (len(pictures) - len(truth))
        said = oracle.judge(pictures, torch.tensor(truth, device=pictures.device))
        answers = zip(stored, said.keeps_label.tolist(), said.scores.tolist(), said.predicted.tolist(), strict=False)
        return [
            Verdict(trial.trial_id, picture, asked.name, None if keeps < 0 else bool(keeps), score, seen)
            for (trial, picture), keeps, score, seen in answers
        ]

    with run.appending() as part:
        for stored, pictures in _batches(run):
            part.add(verdicts=decide(stored, pictures.to(device)))
            watch(len(stored))


def pictures_of(run: Run) -> int:
    """How many pictures there are to be asked about."""
    return sum(1 for _ in _stored(run))


def _part(role: str, asked: PartSpec, device: str) -> Any:
    part = registry.create(role, asked.name, asked.options)
    return part.to(device) if hasattr(part, "to") else part


def _stored(run: Run) -> Iterator[Stored]:
    for trial in run.trials:
        if trial.ending != "skipped" and trial.arm == "guided":
            yield trial, "clean"
            yield trial, "reconstruction"
        if trial.image:
            yield trial, "made"


def _batches(run: Run) -> Iterator[tuple[list[Stored], Tensor]]:
    """Always the same number of pictures, the last ones repeated, so that an answer does not depend on its neighbours."""
    stored = _stored(run)
    while batch := list(islice(stored, BATCH)):
        pictures = [images.read(run.picture(trial, picture)) for trial, picture in batch]
        yield batch, torch.stack(pictures + pictures[-1:] * (BATCH - len(pictures)))
