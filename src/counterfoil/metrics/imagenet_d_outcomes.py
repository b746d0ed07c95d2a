"""A painted set in the form that comparisons and gates read: one row a picture that shows its object.

What stands for the source image is the picture as it was painted, before anything was chosen; what was made of it counts where
mining kept it and, once they have looked, people accept it. So SA is the accuracy on everything painted, PA that on the set.
"""

from __future__ import annotations

import numpy as np

from counterfoil.errors import BadRun, UsageError
from counterfoil.metrics.columns import ABSENT, NO, YES
from counterfoil.metrics.imagenet_d_columns import chats_of, read_paintings, surrogates_of
from counterfoil.metrics.outcomes import Outcomes, part_name
from counterfoil.store import Run
from counterfoil.store.files import key_of


def tested(run: Run) -> list[str]:
    """The models that a run tests: classifiers that took no part in choosing its set, and vision-language models."""
    surrogates = surrogates_of(run)
    named = [*(part_name(part) for part in run.spec.get("models") or ()), *chats_of(run)]
    return [name for name in named if name not in surrogates]


def outcomes_of_paintings(run: Run, *, model: str | None = None, oracle: str | None = None) -> Outcomes:
    """The outcomes for one model: the one that is named, or the only one that the run tests."""
    names = tested(run)
    if model is None and len(names) != 1:
        known = ", ".join(names) or "none that took no part in choosing the set"
        raise UsageError(f"{run.path}: tests several models or none; name one with --model: {known}")
    asked = model or names[0]
    paintings = read_paintings(run, oracle=oracle)
    if asked not in paintings.models:
        known = ", ".join(sorted(paintings.models)) or "nobody"
        raise BadRun(f"{run.path}: no predictions by model {asked!r}; there are some by {known}")
    said, rows = paintings.models[asked], np.flatnonzero(paintings.base)
    ids = [paintings.ids[row] for row in rows]
    keys = np.array([key_of(name) for name in ids], dtype=np.uint64)
    order = np.argsort(keys)
    rows, keys = rows[order], keys[order]
    right = np.where(said.known, np.where(said.right, YES, NO), ABSENT).astype(np.int8)[rows]
    kept_only = asked in chats_of(run) and run.spec.get("painter")  # nobody asked it about what mining turned away
    absent, nothing = np.full(len(rows), ABSENT, dtype=np.int8), np.zeros(len(rows), dtype=np.int64)
    return Outcomes(
        model=asked,
        oracle=oracle or part_name(run.spec.get("oracle")),
        classes=paintings.classes,
        skipped=sum(paintings.skipped.values()),
        endings={"painted": {"made": len(rows)}},
        keys=keys,
        label=paintings.label[rows],
        clean_correct=absent if kept_only else right,
        reconstruction_correct=absent,
        oracle_clean=absent,
        validated=np.where(paintings.final, YES, NO).astype(np.int8)[rows],
        made_correct=right,
        steps=nothing,
        path_correct=np.zeros((len(rows), 0), dtype=np.int8),
        random_validated=absent,
        random_made_correct=absent,
        random_steps=nothing,
        random_path_correct=np.zeros((len(rows), 0), dtype=np.int8),
        source=paintings.clusters[rows],
        factor=paintings.kind[rows].astype(str),
    )
