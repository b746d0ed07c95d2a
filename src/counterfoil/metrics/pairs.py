"""Pairs of a source picture and an edited one, as columns: the form in which the measures of LANCE read a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.core.errors import BadRun
from counterfoil.core.records import Verdict
from counterfoil.metrics.columns import ABSENT, NO, OPEN, YES, Said
from counterfoil.metrics.outcomes import part_name
from counterfoil.store import Run

TOP = 5
"""The released code takes the probability of a class that is not among a model's first five answers for zero."""


@dataclass(frozen=True)
class Pairs:
    """One row an edited picture that passed quality control, for one model and one oracle."""

    model: str
    oracle: str
    classes: tuple[str, ...]
    image: NDArray[np.int64]  # number of the source image; edits of one source share it
    ids: NDArray[np.str_]  # of the edits: trial ids
    label: NDArray[np.int64]
    factor: NDArray[np.str_]
    caption: NDArray[np.str_]
    prompt: NDArray[np.str_]
    value: NDArray[np.str_]  # the words that were put in
    accepted: Said  # whether the oracle sees the class in the edited picture; OPEN while it abstains
    clean_correct: Said
    reconstruction_correct: Said
    made_correct: Said
    clean_truth: NDArray[np.float64]  # probability of the true class, NaN where the model was not asked
    made_truth: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.image)

    @property
    def counted(self) -> NDArray[np.bool_]:
        """The rows that the measures are taken over: accepted, and with an answer for both pictures."""
        counted: NDArray[np.bool_] = (self.accepted == YES) & (self.clean_correct >= NO) & (self.made_correct >= NO)
        return counted

    @property
    def pending(self) -> int:
        """Edits that the oracle has not decided on."""
        return int(np.count_nonzero(self.accepted < NO))

    @property
    def sensitivity(self) -> NDArray[np.float64]:
        """How far the probability of the true class moved, in points."""
        return np.abs(self.clean_truth - self.made_truth) * 100

    def take(self, rows: NDArray[Any]) -> Pairs:
        """The same for some of the rows."""
        columns = {each.name: getattr(self, each.name) for each in fields(self)}
        return replace(self, **{name: value[rows] for name, value in columns.items() if isinstance(value, np.ndarray)})


@dataclass(frozen=True)
class Sources:
    """One row a readable source picture."""

    ids: list[str]
    label: NDArray[np.int64]
    clean_correct: Said
    oracle_clean: Said
    skipped: int


def read_pairs(run: Run, *, model: str | None = None, oracle: str | None = None) -> tuple[Sources, Pairs]:
    """The sources and pairs of a run for a model and an oracle; by default those it was made with."""
    own_model, own_oracle = part_name(run.spec.get("model")), part_name(run.spec.get("oracle"))
    model, oracle = model or own_model, oracle or own_oracle
    top = TOP if run.spec.get("preset") == "released" else None
    predictions = _predictions(run, model, top)
    verdicts = last_word(each for each in run.verdicts(oracle) if each.picture != "reconstruction")
    sources: dict[str, tuple[int, str]] = {}
    edits, skipped = [], 0
    for trial in run.trials:
        if trial.arm == "source":
            skipped += trial.ending == "skipped"
            if trial.ending != "skipped":
                sources[trial.image_id] = (trial.label, trial.trial_id)
        elif trial.arm == "edited" and trial.image:
            edits.append(trial)
    if edits and not predictions:
        raise BadRun(f"{run.path}: no predictions by model {model!r}; ask it with 'counterfoil score {run.path} --model {model}'")
    if edits and not verdicts and oracle != own_oracle:
        raise BadRun(f"{run.path}: no verdicts by oracle {oracle!r}; ask it with 'counterfoil judge'")
    number = {image_id: index for index, image_id in enumerate(sources)}

    def of_source(image_id: str, picture: str) -> tuple[int, float]:
        return predictions.get((sources[image_id][1], picture), (ABSENT, np.nan))

    clean = [of_source(trial.image_id, "clean") for trial in edits]
    made = [predictions.get((trial.trial_id, "made"), (ABSENT, np.nan)) for trial in edits]
    pairs = Pairs(
        model=model,
        oracle=oracle,
        classes=tuple(run.classes),
        image=np.array([number[trial.image_id] for trial in edits], dtype=np.int64),
        ids=_texts([trial.trial_id for trial in edits]),
        label=np.array([trial.label for trial in edits], dtype=np.int64),
        factor=_texts([trial.factor for trial in edits]),
        caption=_texts([trial.caption for trial in edits]),
        prompt=_texts([trial.prompt for trial in edits]),
        value=_texts([trial.value for trial in edits]),
        accepted=_said([_word(verdicts.get((trial.trial_id, "made"))) for trial in edits]),
        clean_correct=_said([said for said, _ in clean]),
        reconstruction_correct=_said([of_source(trial.image_id, "reconstruction")[0] for trial in edits]),
        made_correct=_said([said for said, _ in made]),
        clean_truth=np.array([truth for _, truth in clean], dtype=np.float64),
        made_truth=np.array([truth for _, truth in made], dtype=np.float64),
    )
    return (
        Sources(
            list(sources),
            np.array([label for label, _ in sources.values()], dtype=np.int64),
            _said([of_source(image_id, "clean")[0] for image_id in sources]),
            _said([_word(verdicts.get((trial_id, "clean"))) for _, trial_id in sources.values()]),
            skipped,
        ),
        pairs,
    )


def last_word(verdicts: Iterable[Verdict]) -> dict[tuple[str, str], Verdict]:
    """What an oracle says of each picture of a trial. A later answer replaces an earlier one; abstaining replaces none."""
    found: dict[tuple[str, str], Verdict] = {}
    for each in verdicts:
        if each.keeps_label is not None or (each.trial_id, each.picture) not in found:
            found[each.trial_id, each.picture] = each
    return found


def _predictions(run: Run, model: str, top: int | None) -> Mapping[tuple[str, str], tuple[int, float]]:
    """Whether each answer is right, and the probability of the true class. Of two answers the later one holds."""
    found: dict[tuple[str, str], tuple[int, float]] = {}
    for each in run.predictions(model):
        truth = 0.0 if top is not None and each.rank > top else each.truth
        found[each.trial_id, each.picture] = (YES if each.correct else NO, truth)
    return found


def _word(verdict: Verdict | None) -> int:
    if verdict is None:
        return ABSENT
    return OPEN if verdict.keeps_label is None else int(verdict.keeps_label)


def _said(values: list[int]) -> Said:
    return np.array(values, dtype=np.int8)


def _texts(values: list[str]) -> NDArray[np.str_]:
    return np.array(values, dtype=str) if values else np.array([], dtype="<U1")
