"""What became of each source image, as columns: the form in which metrics read a run.

An oracle accepts an image when it accepts the picture that was made of it. Algorithm 1 keeps only such pictures, so for
the run's own oracle this is the same as accepting the plain reconstruction. An oracle that came later, or a person, has
seen only what was kept and is asked about that; where nothing was made there is nothing to accept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.core.errors import BadRun, UsageError
from counterfoil.metrics.columns import ABSENT, ARMS, OPEN, YES, Said, Saying, read_said, read_trials
from counterfoil.store import Run


@dataclass(frozen=True)
class Outcomes:
    """One row a readable source image of a search, in the order of `keys`, for one model and one oracle."""

    model: str
    oracle: str
    classes: tuple[str, ...]
    skipped: int  # images that could not be read; they have no row
    endings: Mapping[str, Mapping[str, int]]  # how many trials of each arm ended in which way
    keys: NDArray[np.uint64]  # eight bytes that stand for the image id, to pair runs by
    label: NDArray[np.int64]
    clean_correct: Said
    reconstruction_correct: Said
    oracle_clean: Said  # whether the oracle sees the label in the source image itself
    validated: Said  # whether the oracle accepts; OPEN while it abstains
    made_correct: Said
    steps: NDArray[np.int64]  # moves kept
    path_correct: Said  # (n, budget + 1): right after 0, 1, 2, … steps, the last kept picture carried forward
    random_validated: Said  # the same for the control; ABSENT throughout if it was not run
    random_made_correct: Said
    random_steps: NDArray[np.int64]
    random_path_correct: Said
    source: NDArray[np.int64] | None = None  # which rows have a source image in common, where one can have several

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def pending(self) -> int:
        """Images whose made picture the oracle has not decided on."""
        return int(np.count_nonzero(self.validated == OPEN))

    @property
    def class_names(self) -> dict[int, str]:
        """What the classes that have an image go by, by their number."""
        return named_classes(self.classes, self.label)

    def take(self, rows: NDArray[Any]) -> Outcomes:
        """The same for some of the rows."""
        columns = {each.name: getattr(self, each.name) for each in fields(self)}
        return replace(self, **{name: value[rows] for name, value in columns.items() if isinstance(value, np.ndarray)})


def read_outcomes(run: Run, *, model: str | None = None, oracle: str | None = None) -> Outcomes:
    """The outcomes of an FMR run for a model and an oracle; by default those it was made with."""
    if (protocol := run.spec.get("protocol", "fmr")) != "fmr":
        raise UsageError(f"{run.path}: a run of protocol {protocol!r}, in which nothing is searched for; give a run of fmr")
    own_model, own_oracle = part_name(run.spec.get("model")), part_name(run.spec.get("oracle"))
    model, oracle = model or own_model, oracle or own_oracle
    trials = read_trials(run)
    guided, random = (trials.arms[arm] for arm in ARMS)
    keys = np.sort(guided.keys)
    predictions = read_said(run, "predictions", who=model, keys=keys)
    verdicts = read_said(run, "verdicts", who=oracle, keys=keys)
    if len(keys) and not predictions.rows:
        raise BadRun(_nobody(run, "predictions", "model", model))
    if len(keys) and not verdicts.rows and oracle != own_oracle:
        raise BadRun(_nobody(run, "verdicts", "oracle", oracle))

    columns: dict[str, Any] = {}
    for prefix, name, arm in (("", "guided", guided), ("random_", "random", random)):
        made = arm.aligned(arm.made, keys)
        path = arm.aligned(arm.path, keys)
        columns[f"{prefix}steps"] = arm.aligned(arm.steps, keys)
        columns[f"{prefix}path_correct"] = path if model == own_model else path[:, :0]  # only the run's model saw the way
        columns[f"{prefix}made_correct"] = predictions.of[f"made {name}"]
        columns[f"{prefix}validated"] = _accepted(made, verdicts, name, own=oracle == own_oracle)
    return Outcomes(
        model=model,
        oracle=oracle,
        classes=tuple(run.classes),
        skipped=trials.skipped,
        endings={arm: dict(sorted(trials.endings[arm].items())) for arm in ARMS},
        keys=keys,
        label=guided.aligned(guided.label, keys),
        clean_correct=predictions.of["clean"],
        reconstruction_correct=predictions.of["reconstruction"],
        oracle_clean=verdicts.of["clean"],
        **columns,
    )


def named_classes(classes: Sequence[str], label: NDArray[np.int64]) -> dict[int, str]:
    """What the classes among the labels go by, by their number; two of one name are told apart by it."""
    twice = {name for name, times in Counter(classes).items() if times > 1}
    names = {each: classes[each] for each in np.unique(label).tolist()}
    return {each: f"{name} ({each})" if name in twice else name for each, name in names.items()}


def model_names(run: Run) -> list[str]:
    """Name every model that has answered about a run's images, the run's own first."""
    own = part_name(run.spec.get("model"))
    return sorted(_names(run, "predictions", "model"), key=lambda name: (name != own, name))


def _accepted(made: Said, verdicts: Saying, arm: str, *, own: bool) -> Said:
    """The oracle's word on each image: its last one on the made picture or, for the oracle of the run, what led to it."""
    word = verdicts.of[f"made {arm}"]
    if own:
        word = np.where(word == ABSENT, verdicts.of["reconstruction"], word)
        word = np.where(word == ABSENT, YES, word)
    word = np.where(word == ABSENT, OPEN, word)
    return np.where(made == YES, word, made).astype(np.int8)


def part_name(part: Any) -> str:
    """A part's name in a specification: `timm:resnet50`, or under `name` beside its options."""
    return str(part.get("name", "")) if isinstance(part, Mapping) else str(part or "")


def _nobody(run: Run, table: str, column: str, asked: str) -> str:
    known = ", ".join(sorted(_names(run, table, column))) or "nobody"
    return f"{run.path}: no {table} by {column} {asked!r}; there are some by {known}"


def _names(run: Run, table: str, column: str) -> set[str]:
    return {name for batch in run.table(table, columns=[column]) for name in batch.column(0).unique().to_pylist()}
