"""A painted set in the form that comparisons and gates read: one row a picture that shows its object."""

from __future__ import annotations

import numpy as np

from counterfoil.core.errors import BadRun, UsageError
from counterfoil.metrics.imagenet_d_columns import UNKNOWN, Paintings, chats_of, read_paintings, surrogates_of
from counterfoil.metrics.imagenet_d_transfer import columns_of
from counterfoil.metrics.outcomes import part_name
from counterfoil.metrics.rows import Rows, Undecided
from counterfoil.store import Run
from counterfoil.store.files import key_of


def tested(run: Run) -> list[str]:
    """The models that a run tests: classifiers that took no part in choosing its set, and vision-language models."""
    surrogates = surrogates_of(run)
    named = [*(part_name(part) for part in run.spec.get("models") or ()), *chats_of(run)]
    return [name for name in named if name not in surrogates]


def rows_of_paintings(run: Run, *, model: str | None = None, oracle: str | None = None) -> Rows:
    """The rows for one model: the one that is named, or the only one that the run tests."""
    names = tested(run)
    if model is None and len(names) != 1:
        known = ", ".join(names) or "none that took no part in choosing the set"
        raise UsageError(f"{run.path}: tests several models or none; name one with --model: {known}")
    asked = model or names[0]
    paintings = read_paintings(run, oracle=oracle)
    if asked not in paintings.models:
        known = ", ".join(sorted(paintings.models)) or "nobody"
        raise BadRun(f"{run.path}: no predictions by model {asked!r}; there are some by {known}")
    columns = {name: column.astype(bool) for name, column in columns_of(paintings, [asked], paintings.final).items()}
    before = {"painted", "painted_right"}
    if not run.spec.get("painter"):  # a set that was made before
        columns = {name: column for name, column in columns.items() if name not in before}
    elif asked in chats_of(run):  # nobody asked it about what mining turned away
        columns |= dict.fromkeys(before, np.zeros(len(paintings), dtype=bool))
    keys = np.array([key_of(name) for name in paintings.ids], dtype=np.uint64)
    every = Rows(
        protocol="imagenet-d",
        model=asked,
        classes=paintings.classes,
        keys=keys,
        label=paintings.label,
        columns=columns,
        source=paintings.clusters,
        factor=paintings.kind.astype(str),
        undecided=_undecided(paintings, oracle or part_name(run.spec.get("oracle"))),
    )
    order = np.argsort(keys)
    return every.take(order[paintings.base[order]])


def _undecided(paintings: Paintings, oracle: str) -> Undecided:
    """Of the kept pictures: once people have looked at any, what they have not come to; else what the oracle leaves open."""
    people, sees = paintings.people[paintings.kept], paintings.sees[paintings.kept]
    if (paintings.people != UNKNOWN).any():
        return Undecided(int((people == UNKNOWN).sum()), "picture", "people", "in accuracy_painted alone")
    return Undecided(int((sees == UNKNOWN).sum()) if oracle else 0, "picture", oracle, "as if they showed their object")
