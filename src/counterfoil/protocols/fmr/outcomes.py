"""Outcomes of a search, one per source image, read from a run's records for one model and one oracle.

An oracle accepts an image when it accepts what was made of it. Algorithm 1 keeps only such images, so for the run's own oracle
this is the same as accepting the plain reconstruction. An oracle that was asked later, or a person, has seen only what was
kept and is asked about that; where nothing was made there is nothing to accept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from counterfoil.core.errors import BadRun, UsageError
from counterfoil.core.naming import part_name
from counterfoil.metrics.observations import ABSENT, NO, OPEN, YES, Answers, Codes, class_names, models_of, read_answers
from counterfoil.store import Run
from counterfoil.store.files import key_of

ARMS = ("guided", "random")


@dataclass(frozen=True)
class Outcomes:
    """One row per readable source image of a search, in the order of `keys`, for one model and one oracle."""

    model: str
    oracle: str
    classes: tuple[str, ...]
    skipped: int  # images that could not be read; they have no row
    endings: Mapping[str, Mapping[str, int]]  # number of trials of each arm by how they ended
    keys: NDArray[np.uint64]  # eight bytes that stand for the image id, to pair runs by
    label: NDArray[np.int64]
    clean_correct: Codes
    reconstruction_correct: Codes
    oracle_clean: Codes  # whether the oracle sees the label in the source image itself
    validated: Codes  # whether the oracle accepts; OPEN while it abstains
    made_correct: Codes
    steps: NDArray[np.int64]  # moves kept
    stopped: NDArray[np.bool_]  # whether a step that the run's own oracle rejected ended the climb
    path_correct: Codes  # (n, budget + 1): right after 0, 1, 2, … steps, the last kept image carried forward
    random_validated: Codes  # the same for the control; ABSENT throughout if it was not run
    random_made_correct: Codes
    random_steps: NDArray[np.int64]
    random_path_correct: Codes
    distance: NDArray[np.float64] | None = None  # from the start, in the generator's scale; ABSENT where it is not recorded
    random_distance: NDArray[np.float64] | None = None
    source: NDArray[np.int64] | None = None  # which rows have a source image in common, where one can have several

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def pending(self) -> int:
        """The number of images whose generated image the oracle has not decided on."""
        return int(np.count_nonzero(self.validated == OPEN))

    @property
    def class_names(self) -> dict[int, str]:
        """The names of the classes that have an image, by their number."""
        return class_names(self.classes, self.label)

    def take(self, rows: NDArray[Any]) -> Outcomes:
        """The same for some of the rows."""
        columns = {each.name: getattr(self, each.name) for each in fields(self)}
        return replace(self, **{name: value[rows] for name, value in columns.items() if isinstance(value, np.ndarray)})


def read_outcomes(run: Run, *, model: str | None = None, oracle: str | None = None) -> Outcomes:
    """Read what became of each image for a model and an oracle; by default those the run was made with."""
    if (protocol := run.spec.get("protocol", "fmr")) != "fmr":
        raise UsageError(f"{run.path}: a run of protocol {protocol!r}, in which nothing is searched for; give a run of fmr")
    own_model, own_oracle = part_name(run.spec.get("model")), part_name(run.spec.get("oracle"))
    model, oracle = model or own_model, oracle or own_oracle
    arms, endings, skipped = _read_trials(run)
    guided = arms["guided"].sort_by([("image_id", "ascending")])
    ids = guided["image_id"]
    predictions = read_answers(run, "predictions", model)
    agreement = oracle != own_oracle and run.spec.get("search", {}).get("accept") == "agreement"
    verdicts = read_answers(run, "verdicts", oracle, ("predicted",) if agreement else ())
    if len(ids) and not len(predictions):
        raise BadRun(_nobody(run, "predictions", "model", model))
    if len(ids) and not len(verdicts) and oracle != own_oracle:
        raise BadRun(_nobody(run, "verdicts", "oracle", oracle))
    images = ids.combine_chunks() if len(ids) else pa.array([], pa.string())
    width = _path_width(run, arms)
    columns: dict[str, Any] = {}
    for prefix, name in (("", "guided"), ("random_", "random")):
        trials = arms[name]
        places = np.asarray(pc.fill_null(pc.index_in(images, value_set=trials["image_id"].combine_chunks()), -1), dtype=np.int64)
        made = _in_order(np.asarray(pc.not_equal(trials["ending"], "unvalidated")).astype(np.int8), places)
        keys = pc.binary_join_element_wise(images, name, "#")
        word = _agreeing(verdicts, keys, images) if agreement else verdicts.codes(keys, "made")
        if oracle == own_oracle:  # it saw the reconstruction first, and a climb continues only from what it accepts
            word = np.where(word == ABSENT, verdicts.codes(images, "reconstruction"), word)
            word = np.where(word == ABSENT, YES, word)
        word = np.where(word == ABSENT, OPEN, word)
        columns[f"{prefix}distance"] = _in_order(_distances(trials), places)
        path = _in_order(_paths(trials, width), places)
        columns[f"{prefix}validated"] = np.where(made == YES, word, made).astype(np.int8)
        columns[f"{prefix}made_correct"] = predictions.codes(keys, "made")
        columns[f"{prefix}steps"] = _in_order(np.asarray(trials["steps"], dtype=np.int64), places)
        if name == "guided":
            ended = np.asarray(pc.equal(trials["ending"], "oracle")).astype(np.int8)
            columns["stopped"] = _in_order(ended, places) == YES
        columns[f"{prefix}path_correct"] = path if model == own_model else path[:, :0]  # only the run's model was followed
    return Outcomes(
        model=model,
        oracle=oracle,
        classes=tuple(run.classes),
        skipped=skipped,
        endings=endings,
        keys=np.array([key_of(each) for each in images.to_pylist()], dtype=np.uint64),
        label=np.asarray(guided["label"], dtype=np.int64),
        clean_correct=predictions.codes(images, "clean"),
        reconstruction_correct=predictions.codes(images, "reconstruction"),
        oracle_clean=verdicts.codes(images, "clean"),
        **columns,
    )


def _agreeing(verdicts: Answers, keys: pa.Array, images: pa.Array) -> Codes:
    """Compare what an oracle that was asked later says of generated images with what it says of their sources."""
    made, source = verdicts.codes(keys, "made"), verdicts.codes(images, "clean")
    seen, wanted = (verdicts.numbers(*which, "predicted") for which in ((keys, "made"), (images, "clean")))
    decided = np.where((made >= NO) & (source >= NO), made == source, OPEN)
    agreed = np.where((seen >= 0) & (wanted >= 0), seen == wanted, decided)
    return np.where(made == ABSENT, ABSENT, agreed).astype(np.int8)


def _read_trials(run: Run) -> tuple[dict[str, pa.Table], dict[str, dict[str, int]], int]:
    """The readable trials by arm, how the trials of each arm ended, and the number of images that could not be read."""
    trials = run.table(
        "trials", columns=["image_id", "arm", "label", "ending", "steps", "path_predicted", "path_distance"]
    ).read_all()
    endings = {arm: Counter[str]() for arm in ARMS}
    arms = {}
    for arm in ARMS:
        own = trials.filter(pc.equal(trials["arm"], arm))
        endings[arm] = Counter(own["ending"].to_pylist())
        arms[arm] = own.filter(pc.not_equal(own["ending"], "skipped"))
    return arms, {arm: dict(sorted(each.items())) for arm, each in endings.items()}, endings["guided"]["skipped"]


def _path_width(run: Run, arms: Mapping[str, pa.Table]) -> int:
    """Steps that a path can have, and one for the reconstruction."""
    longest = [pc.max(pc.list_value_length(each["path_predicted"])).as_py() or 0 for each in arms.values()]
    return max(int(run.spec.get("search", {}).get("budget", 0)) + 1, *longest)


def _paths(trials: pa.Table, width: int) -> Codes:
    """Accuracy along each path: right or not after each step, the last answer carried forward; ABSENT where there is none."""
    if not trials.num_rows:
        return np.zeros((0, width), dtype=np.int8)
    paths = trials["path_predicted"].combine_chunks()
    lengths = np.asarray(pc.list_value_length(paths), dtype=np.int64)
    right = np.asarray(pc.list_flatten(paths)) == np.repeat(np.asarray(trials["label"]), lengths)
    right = np.append(right.astype(np.int8), np.int8(ABSENT))
    starts = np.cumsum(lengths) - lengths
    places = starts[:, None] + np.minimum(np.arange(width), lengths[:, None] - 1)
    return np.asarray(np.where(lengths[:, None] > 0, right[places], ABSENT), dtype=np.int8)


def _distances(trials: pa.Table) -> NDArray[np.float64]:
    """The distance of each trial's kept image from where it began; ABSENT where none is recorded."""
    if not trials.num_rows:
        return np.zeros(0)
    paths = trials["path_distance"].combine_chunks()
    lengths = np.asarray(pc.fill_null(pc.list_value_length(paths), 0), dtype=np.int64)
    every = np.append(np.asarray(pc.list_flatten(paths), dtype=np.float64), ABSENT)
    return np.asarray(np.where(lengths > 0, every[np.cumsum(lengths) - 1], ABSENT), dtype=np.float64)


def _in_order(column: NDArray[Any], places: NDArray[np.int64]) -> NDArray[Any]:
    """The column in the order of `places`, ABSENT where one is −1."""
    if not len(column):
        return np.full((len(places), *column.shape[1:]), ABSENT, dtype=column.dtype)
    known = (places >= 0).reshape(-1, *[1] * (column.ndim - 1))
    return np.asarray(np.where(known, column[places], ABSENT), dtype=column.dtype)


def _nobody(run: Run, table: Any, column: str, asked: str) -> str:
    known = ", ".join(models_of(run, table)) or "nobody"
    return f"{run.path}: no {table} by {column} {asked!r}; there are some by {known}"
