"""Numbers of any run whose images were made in one step: accuracy on them, compared with that on their source images.

Every image that was made is a row, and those of one source image are drawn together. Where the run has an oracle, only
images in which it sees the class count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from counterfoil.core.errors import BadRun
from counterfoil.core.naming import part_name
from counterfoil.core.records import LEVEL, Estimate
from counterfoil.metrics.estimate import RESAMPLES, Difference, Share, estimate_one
from counterfoil.metrics.observations import NO, OPEN, YES, Measure, Observations, Undecided, class_column, read_answers
from counterfoil.metrics.tables import Cell, Column, Table, amount
from counterfoil.store import Run
from counterfoil.store.files import key_of

_NONE, _ALONE = "no image that counts", "no image with a source image"
ACCURACY = Share("right", "counted", _NONE)
SOURCE = Share("source_right", "paired", _ALONE)
MEASURES: Mapping[str, Measure] = {
    "accuracy": Measure("accuracy", ACCURACY, "accuracy on the images"),
    "accuracy_source": Measure("accuracy_source", SOURCE, "accuracy on their source images, once for each image"),
    "drop": Measure(
        "drop",
        Difference(SOURCE, Share("paired_right", "paired", _ALONE)),
        "accuracy_source less accuracy: accuracy lost to what was done",
        higher_is_better=False,
    ),
}


def measures_of(run: Run) -> Mapping[str, Measure]:
    """List the measures of a run; images without a source image have their accuracy alone."""
    paired = any(trial.arm == "source" for trial in run.trials)
    return MEASURES if paired else {"accuracy": MEASURES["accuracy"]}


def observe(run: Run, *, model: str | None = None, oracle: str | None = None) -> Observations:
    """Read a run as one row per image that was made."""
    own = model in (None, part_name(run.spec.get("model"))) and oracle is None
    model, oracle = model or part_name(run.spec.get("model")), oracle or part_name(run.spec.get("oracle"))
    trials = [trial for trial in run.trials if trial.image]
    names, images = [trial.trial_id for trial in trials], [trial.image_id for trial in trials]
    answers = read_answers(run, "predictions", model)
    if trials and not len(answers):
        raise BadRun(f"{run.path}: no predictions by model {model!r}; ask it with 'counterfoil score {run.path} --model {model}'")
    said, before = answers.codes(names, "made"), answers.codes(images, "clean")
    counts, pending = said >= NO, 0
    if oracle:
        sees = read_answers(run, "verdicts", oracle).codes(names, "made")
        counts, pending = counts & (sees == YES), int((sees <= OPEN).sum())
    paired = counts & (before >= NO)
    columns = {
        "counted": counts,
        "right": counts & (said == YES),
        "paired": paired,
        "paired_right": paired & (said == YES),
        "source_right": paired & (before == YES),
    }
    keys = np.array([key_of(name) for name in names], dtype=np.uint64)
    labels = np.array([trial.label for trial in trials], dtype=np.int64)
    order = np.argsort(keys)
    found = Observations(
        model=model,
        oracle=oracle,
        keys=keys,
        columns=columns,
        groups={
            "class": class_column(tuple(run.classes), labels),
            "factor": np.array([f"{trial.factor} {trial.value}".strip() for trial in trials], dtype=object),
        },
        cluster=np.unique(images, return_inverse=True)[1].astype(np.int64),
        undecided=Undecided(pending, "image", oracle, "as if they did not show their class"),
        seed=int(run.spec.get("seed", 0)),
    ).take(order)
    stored = (run.results or {}) if own else {}
    return replace(found, estimates={name: Estimate.from_dict(stored[name]) for name in MEASURES if name in stored})


def results(run: Run, *, model: str | None = None, oracle: str | None = None) -> dict[str, Any]:
    """Compute the content of `results.json`: all images, by what was done to them, and by class."""
    rows = replace(observe(run, model=model, oracle=oracle), estimates={})
    known = measures_of(run)
    skipped = sum(trial.ending == "skipped" for trial in run.trials)
    readable = rows.clusters if len(rows) else 0
    found: dict[str, Any] = {"protocol": run.spec["protocol"], **_numbers(rows, known)}
    for entry, grouping in (("factors", "factor"), ("per_class", "class")):
        column = rows.groups[grouping]
        found[entry] = {name: _numbers(rows.take(column == name), known) for name in sorted(set(column.tolist())) if name}
    counts = {"images": readable + skipped, "readable": readable, "skipped": skipped}
    return {
        **found,
        "counts": {**counts, "made": len(rows), "validated": int(rows.columns["counted"].sum())},
        "model": {"name": rows.model},
        "oracle": {"name": rows.oracle or "none"},
        "interval": {"level": LEVEL, "resamples": RESAMPLES, "seed": rows.seed},
    }


def _numbers(rows: Observations, known: Mapping[str, Measure]) -> dict[str, Any]:
    drawn = rows.resamples()
    return {name: estimate_one(drawn, each.statistic).to_dict() for name, each in known.items()}


def tables(found: Mapping[str, Any]) -> list[Table]:
    """Put results into tables: all numbers, by what was done, and by class."""
    from counterfoil.protocols.pages import estimates, numbers_table

    known = [name for name in MEASURES if name in found]
    counts = found["counts"]
    notes = [f"{counts['validated']:,} of {amount(counts['made'], 'image')} count; {counts['skipped']:,} could not be read"]
    every = [numbers_table(found, {name: MEASURES[name].meaning for name in known}, notes)]
    for entry, title in (("factors", "By what was done"), ("per_class", "By class")):
        lines: list[list[Cell]] = [[name, *estimates(each, known), each["accuracy"]["n"]] for name, each in found[entry].items()]
        heads = [Column("class" if entry == "per_class" else "", "text"), *map(Column, known), Column("n")]
        every += [Table(heads, lines, title=title, filter_rows=True)] if lines else []
    return every
