"""A LANCE run in the form that comparisons and gates read: one row a source image, and one an edit of it."""

from __future__ import annotations

import numpy as np

from counterfoil.metrics.lance import columns_of, columns_of_sources, columns_of_verdicts
from counterfoil.metrics.pairs import read_pairs
from counterfoil.metrics.rows import Rows, Undecided
from counterfoil.store import Run
from counterfoil.store.files import key_of


def rows_of_pairs(run: Run, *, model: str | None = None, oracle: str | None = None) -> Rows:
    """The rows for a model and an oracle. Edits pair with edits of the same words alone."""
    sources, pairs = read_pairs(run, model=model, oracle=oracle)
    names = [*sources.ids, *(f"{name}\0{words}" for name, words in zip(pairs.ids, pairs.prompt, strict=True))]
    keys = np.array([key_of(name) for name in names], dtype=np.uint64)
    own = columns_of_sources(sources)
    made = {**columns_of(pairs, rows=pairs.counted), **columns_of_verdicts(pairs)}
    columns = {name: np.concatenate([column, np.zeros(len(pairs), dtype=bool)]) for name, column in own.items()}
    columns |= {name: np.concatenate([np.zeros(len(sources.ids), column.dtype), column]) for name, column in made.items()}
    rows = Rows(
        protocol="lance",
        model=pairs.model,
        classes=pairs.classes,
        keys=keys,
        label=np.concatenate([sources.label, pairs.label]),
        columns=columns,
        source=np.concatenate([np.arange(len(sources.ids)), pairs.image]),
        factor=np.concatenate([np.full(len(sources.ids), ""), pairs.factor]),
        undecided=Undecided(pairs.pending, "edit", pairs.oracle, "in no number"),
    )
    return rows.take(np.argsort(keys))
