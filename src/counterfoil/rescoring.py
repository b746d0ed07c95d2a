"""Asks another model or another oracle about the pictures a run has stored, without making them again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import torch

from counterfoil import images, labels, registry
from counterfoil.records import Picture, Prediction, Trial, Verdict
from counterfoil.store import Run

Stored = tuple[Trial, Picture, torch.Tensor]
BATCH = 8


def score(
    run: Run,
    model_name: str,
    *,
    options: dict[str, Any] | None = None,
    device: str = "cpu",
    watch: Callable[[int], None] = lambda n: None,
) -> int:
    """Put a model's predictions beside the run's own; returns how many."""
    model = _place(registry.create("model", model_name, options), device)
    columns = torch.tensor(
        labels.match(run.classes, model.classes, what=f"model {model_name}", aliases=getattr(model, "aliases", None))
    )
    told = 0
    for batch in _batches(_pictures(run)):
        with torch.no_grad():
            chance = model.logits(_stack(batch).to(device)).float().softmax(1).cpu()
        rows = []
        for (trial, picture, _), row in zip(batch, chance, strict=False):
            top = int(row.argmax())
            inside = (columns == top).nonzero()
            truth = int(columns[trial.label])
            predicted = int(inside[0]) if len(inside) else -1
            rows.append(
                Prediction(trial.trial_id, picture, model_name, predicted, top == truth, float(row[top]), float(row[truth]))
            )
        run.append(predictions=rows)
        told += len(rows)
        watch(told)
    return told


def judge(
    run: Run,
    oracle_name: str,
    *,
    options: dict[str, Any] | None = None,
    device: str = "cpu",
    watch: Callable[[int], None] = lambda n: None,
) -> int:
    """Put an oracle's verdicts beside the run's own; returns how many."""
    oracle = _place(registry.create("oracle", oracle_name, options), device).bind(run.classes)
    told = 0
    for batch in _batches(_pictures(run)):
        truth = torch.tensor([trial.label for trial, _, _ in _padded(batch)], device=device)
        verdicts = oracle.judge(_stack(batch).to(device), truth)
        answers = zip(batch, verdicts.keeps_label.tolist(), verdicts.scores.tolist(), verdicts.predicted.tolist(), strict=False)
        rows = [
            Verdict(trial.trial_id, picture, oracle_name, None if keeps < 0 else bool(keeps), score, seen)
            for (trial, picture, _), keeps, score, seen in answers
        ]
        run.append(verdicts=rows)
        told += len(rows)
        watch(told)
    return told


def _place(part: Any, device: str) -> Any:
    return part.to(device) if hasattr(part, "to") else part


def _pictures(run: Run) -> Iterator[Stored]:
    for trial in run.trials():
        if trial.ending == "skipped":
            continue
        if trial.arm == "guided":
            yield trial, "clean", images.read(run.path / trial.clean)
            yield trial, "reconstruction", images.read(run.path / trial.reconstruction)
        if trial.image:
            yield trial, "made", images.read(run.path / trial.image)


def _batches(stored: Iterator[Stored]) -> Iterator[list[Stored]]:
    while batch := list(islice(stored, BATCH)):
        yield batch


def _padded(batch: list[Stored]) -> list[Stored]:
    """Always the same number of rows, so that a picture's score does not depend on its neighbours."""
    return batch + [batch[-1]] * (BATCH - len(batch))


def _stack(batch: list[Stored]) -> torch.Tensor:
    return torch.stack([picture for _, _, picture in _padded(batch)])
