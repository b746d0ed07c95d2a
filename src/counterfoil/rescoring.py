"""Asks another model or another oracle about the pictures a run has stored, without making them again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from counterfoil import images, independence, registry
from counterfoil.evaluation.looking import reading, recorded
from counterfoil.parts import Model
from counterfoil.records import Picture, Prediction, Trial, Verdict
from counterfoil.spec import PartSpec
from counterfoil.store import Run

Stored = tuple[Trial, Picture]
Watch = Callable[[int], None]
Tell = Callable[[str], None]
BATCH = 8


def score(
    run: Run,
    asked: PartSpec,
    *,
    built: Model | None = None,
    device: str = "cpu",
    watch: Watch = lambda pictures: None,
    tell: Tell = lambda line: None,
) -> None:
    """Put a model's predictions beside the run's own. `built` is the model itself where `asked` only names it."""
    model = _part("model", asked, device) if built is None else built
    _warn(run, model, "oracle", f"model {asked.name}", tell)
    # A class of the run may stand for several of a model's; each goes by its own name where the run says nothing else.
    ids = run.provenance.get("class_ids") or {name: [name] for name in run.classes}
    reader = reading(asked.name, model, {name: ids[name] for name in run.classes})

    def predict(stored: list[Stored], pictures: Tensor) -> list[Prediction]:
        looks = reader.looks(pictures, [trial.label for trial, _ in stored])
        return [recorded(trial.trial_id, picture, asked.name, look) for (trial, picture), look in zip(stored, looks, strict=True)]

    with run.appending() as part:
        for stored, pictures in _batches(run):
            part.add(predictions=predict(stored, pictures.to(device)))
            watch(len(stored))


def judge(
    run: Run,
    asked: PartSpec,
    *,
    device: str = "cpu",
    watch: Watch = lambda pictures: None,
    tell: Tell = lambda line: None,
) -> None:
    """Put an oracle's verdicts beside the run's own."""
    oracle = _part("oracle", asked, device).bind(run.classes)
    _warn(run, oracle, "model", f"oracle {asked.name}", tell)

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


def _warn(run: Run, part: Any, role: str, who: str, tell: Tell) -> None:
    """Say so if a part that is asked later has the weights of the run's part in the other `role`."""
    recorded = (run.provenance.get("parts") or {}).get(role) or {}
    if caution := independence.caution_later(part, recorded, role=role):
        tell(f"{who} is {caution}")


def pictures_of(run: Run) -> int:
    """How many pictures there are to be asked about."""
    return sum(1 for _ in _stored(run))


def _part(role: str, asked: PartSpec, device: str) -> Any:
    part = registry.create(role, asked.name, asked.options)
    return part.to(device) if hasattr(part, "to") else part


def _stored(run: Run) -> Iterator[Stored]:
    for trial in run.trials:
        if trial.ending != "skipped" and trial.arm in ("guided", "source"):
            if trial.clean:
                yield trial, "clean"
            if trial.reconstruction:
                yield trial, "reconstruction"
        if trial.image:
            yield trial, "made"


def _batches(run: Run) -> Iterator[tuple[list[Stored], Tensor]]:
    """Always the same number of pictures, the last ones repeated, so that an answer does not depend on its neighbours."""
    stored = _stored(run)
    while batch := list(islice(stored, BATCH)):
        pictures = [images.read(run.picture(trial, picture)) for trial, picture in batch]
        yield batch, torch.stack(pictures + pictures[-1:] * (BATCH - len(pictures)))
