"""Reads a run into what the report shows of it. Trials are streamed; only those of the gallery are held."""

from __future__ import annotations

import hashlib
import heapq
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from counterfoil.core.records import Picture, Prediction, Trial, Verdict
from counterfoil.report.outcomes import Outcome, outcome
from counterfoil.store import Run

PICTURES: tuple[Picture, ...] = get_args(Picture)
SKIPPED_LISTED = 500  # skipped pictures named on the page; all of them are in the downloads


@dataclass(frozen=True)
class Said:
    """What the run's own model and oracle said of a trial's pictures."""

    model: Mapping[Picture, Prediction]
    oracle: Mapping[Picture, Verdict]

    def outcome(self, trial: Trial) -> Outcome:
        """What became of the trial."""
        said = self.model
        return outcome(
            trial,
            clean=said.get("clean"),
            reconstruction=said.get("reconstruction"),
            made=said.get("made"),
            verdict=self.oracle.get("made"),
        )


class Answers:
    """Everything the run's own model and oracle said, by trial. The control arm shares the first pictures with the guided one."""

    def __init__(self, run: Run) -> None:
        model, oracle = part_name(run, "model"), part_name(run, "oracle")
        self._model: dict[tuple[str, Picture], Prediction] = {}
        self._oracle: dict[tuple[str, Picture], Verdict] = {}
        self.other_models: set[str] = set()
        self.other_oracles: set[str] = set()
        for prediction in run.predictions():
            if prediction.model == model:
                self._model[_key(prediction.trial_id, prediction.picture)] = prediction
            else:
                self.other_models.add(prediction.model)
        for verdict in run.verdicts():
            if verdict.oracle == oracle:
                key = _key(verdict.trial_id, verdict.picture)
                self._oracle[key] = verdict if verdict.keeps_label is not None else self._oracle.get(key, verdict)
            else:
                self.other_oracles.add(verdict.oracle)

    def of(self, trial: Trial) -> Said:
        """What was said of one trial's pictures."""
        keys: dict[Picture, tuple[str, Picture]] = {picture: _key(trial.trial_id, picture) for picture in PICTURES}
        return Said(
            {picture: self._model[key] for picture, key in keys.items() if key in self._model},
            {picture: self._oracle[key] for picture, key in keys.items() if key in self._oracle},
        )


@dataclass(frozen=True)
class Shown:
    """One trial of the gallery with all that is known of it."""

    key: str  # unique in the report, and part of an address
    trial: Trial
    said: Said
    outcome: Outcome
    others: tuple[Prediction | Verdict, ...] = ()  # what models and oracles that were asked later said, their last word

    def scored(self) -> dict[str, dict[Picture, Prediction]]:
        """What each other model said, by its name and by picture."""
        found: dict[str, dict[Picture, Prediction]] = {}
        for each in self.others:
            if isinstance(each, Prediction):
                found.setdefault(each.model, {})[each.picture] = each
        return found


@dataclass(frozen=True)
class Collected:
    """A run as the report shows it."""

    run: Run
    number: int  # 1, 2, … in the report
    label: str
    results: Mapping[str, Any] | None
    answers: Answers
    shown: tuple[Shown, ...]
    images: int  # complete by now, skipped ones included
    expected: int | None  # how many there will be when the run is finished
    tally: Mapping[str, Mapping[str, int]]  # arm → outcome → trials
    endings: Mapping[str, int]  # of the guided arm
    skipped: Sequence[Trial] = field(default_factory=tuple)
    skipped_count: int = 0

    @property
    def validated(self) -> int:
        """Images whose picture the oracle accepts; while the run is not finished, those with a picture."""
        accepted = self.count("validated")
        return accepted if accepted is not None else self.made

    @property
    def made(self) -> int:
        """Images with a picture that the oracle has not rejected."""
        return sum(count for name, count in self.tally.get("guided", {}).items() if name not in ("unvalidated", "skipped"))

    def count(self, name: str) -> int | None:
        """One of the counts in the results; None where there is none."""
        counts = (self.results or {}).get("counts")
        found = counts.get(name) if isinstance(counts, Mapping) else None
        return found if isinstance(found, int) else None

    @property
    def sampled(self) -> bool:
        """Whether the gallery shows some of the images only."""
        return len({each.trial.image_id for each in self.shown}) < self.images - self.skipped_count

    def class_name(self, index: int, said: str = "") -> str:
        """The name of a class; for one outside the run's, that of what the model `said`, where it is known."""
        return answer_name(self.run, index, said)


def answer_name(run: Run, index: int, said: str = "") -> str:
    """What an answer is called: by the run's class or, beyond these, by what the model itself calls it."""
    return run.classes[index] if 0 <= index < len(run.classes) else said or "another class"


def path_answers(trial: Trial) -> list[tuple[int, str]]:
    """The model's answers along a search, each as a class of the run or -1, and what it calls one outside them."""
    return list(zip(trial.path_predicted, trial.path_said or [""] * len(trial.path_predicted), strict=True))


def part_name(run: Run, role: str) -> str:
    """The name of one of the run's parts, as its specification gives it."""
    part = run.spec.get(role)
    return str(part.get("name", "")) if isinstance(part, Mapping) else str(part or "")


def collect(run: Run, *, number: int, label: str, pictures: int) -> Collected:
    """Read a run; the gallery gets `pictures` of its images."""
    answers = Answers(run)
    tally: dict[str, Counter[str]] = {}
    endings: Counter[str] = Counter()
    skipped: list[Trial] = []
    ids: set[str] = set()
    images: set[str] = set()
    for trial in run.trials:
        images.add(trial.image_id)
        tally.setdefault(trial.arm, Counter())[answers.of(trial).outcome(trial)] += 1
        if trial.arm == "guided":
            endings[trial.ending] += 1
        if trial.ending != "skipped":
            ids.add(trial.image_id)
        elif len(skipped) < SKIPPED_LISTED:
            skipped.append(trial)
    total = run.provenance.get("images")
    return Collected(
        run=run,
        number=number,
        label=label,
        results=run.results,
        answers=answers,
        shown=_shown(run, answers, chosen=_choose(ids, pictures), number=number),
        images=len(images),
        expected=total if isinstance(total, int) else None,
        tally=tally,
        endings=endings,
        skipped=sorted(skipped, key=lambda each: _natural(each.image_id)),
        skipped_count=len(images) - len(ids),
    )


def mark(image_id: str) -> str:
    """A short stand-in for an image's id in addresses."""
    return hashlib.sha256(image_id.encode("utf-8", "replace")).hexdigest()[:12]


def _choose(ids: set[str], pictures: int) -> set[str]:
    """A random choice that depends on the ids alone, so that runs over the same data show the same images."""
    return set(heapq.nsmallest(pictures, ids, key=lambda image_id: (mark(image_id), image_id)))


def _shown(run: Run, answers: Answers, *, chosen: set[str], number: int) -> tuple[Shown, ...]:
    others = _others(run, answers, chosen)
    shown = []
    for trial in run.trials:
        if trial.image_id in chosen and trial.ending != "skipped" and trial.arm != "source":
            said = answers.of(trial)
            key = f"{number}-{mark(trial.image_id)}-{mark(trial.variant)[:6] if trial.variant else trial.arm}"
            later = tuple(each for picture in PICTURES for each in others.get(_key(trial.trial_id, picture), {}).values())
            shown.append(Shown(key, trial, said, said.outcome(trial), later))
    return tuple(sorted(shown, key=lambda each: (_natural(each.trial.image_id), each.trial.arm, _natural(each.trial.variant))))


def _others(
    run: Run, answers: Answers, chosen: set[str]
) -> dict[tuple[str, Picture], dict[tuple[str, str], Prediction | Verdict]]:
    """What was said later of the chosen images: by picture, then by role and name."""
    found: dict[tuple[str, Picture], dict[tuple[str, str], Prediction | Verdict]] = {}
    if answers.other_models:
        for prediction in run.predictions():
            if prediction.model in answers.other_models and _image_of(prediction.trial_id) in chosen:
                key = _key(prediction.trial_id, prediction.picture)
                found.setdefault(key, {})["model", prediction.model] = prediction
    if answers.other_oracles:
        for verdict in run.verdicts():
            if verdict.oracle in answers.other_oracles and _image_of(verdict.trial_id) in chosen:
                found.setdefault(_key(verdict.trial_id, verdict.picture), {})["oracle", verdict.oracle] = verdict
    return found


def _image_of(trial_id: str) -> str:
    return trial_id.rpartition("#")[0]


def _key(trial_id: str, picture: Picture) -> tuple[str, Picture]:
    """Where an answer is kept: by trial for what was made, by image for the pictures that all arms share."""
    return (trial_id if picture == "made" else _image_of(trial_id), picture)


def _natural(text: str) -> list[tuple[int, int, str]]:
    """A key that puts `img 2` before `img 10`."""
    return [(0, int(piece), "") if piece.isdecimal() else (1, 0, piece) for piece in re.split(r"(\d+)", text) if piece]
