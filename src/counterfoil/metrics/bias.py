"""Class-level biases: which kinds of edit move a model's answer for a class more than other edits of the same pictures do.

Per class, the edits are grouped by k-means on how they move the caption in the encoder's space, each group is named by the
edit nearest to its middle, and groups are ranked by mean sensitivity. The test asks whether a group's edits move the model
more than the other edits of the same source pictures: under the hypothesis that the kind of edit does not matter, a
source's sensitivities can be dealt out among its edits in any way. Holm's method corrects for the number of groups.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from itertools import combinations
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.metrics.columns import YES
from counterfoil.metrics.pairs import Pairs
from counterfoil.metrics.significance import holm
from counterfoil.store import Run
from counterfoil.store.stages import Blobs, open_table
from counterfoil.store.stages.mapping import FOLDER

CLUSTERS = 10
FEWEST = 6  # edits a group on average: of a class with few edits fewer groups are made than the ten of the paper
DRAWS = 100_000
MOST_WAYS = 5_000  # in which a source's edits can be dealt out; more are drawn at random
EXAMPLES = 6

Floats = NDArray[np.float64]


def biases(run: Run, pairs: Pairs, *, clusters: int = CLUSTERS, seed: int = 0) -> list[dict[str, Any]]:
    """The groups of all classes, most sensitive first, with how surely each differs from the other edits."""
    directions = read_directions(run, pairs)
    if directions is None:
        return []
    found = []
    for label in np.unique(pairs.label).tolist():
        rows = np.flatnonzero(pairs.label == label)
        for group in grouped(directions[rows], clusters=clusters, seed=seed):
            found.append(_entry(pairs, rows, group, directions, seed=seed))
    for entry, adjusted in zip(found, holm([entry["p"] for entry in found]), strict=True):
        entry["p_adjusted"] = adjusted
    return sorted(found, key=lambda entry: (-entry["sensitivity"], entry["class"], entry["name"]))


def read_directions(run: Run, pairs: Pairs) -> Floats | None:
    """How each pair's caption moved, one row a pair; None for a run without that stage.  # (pairs, D)"""
    table, blobs = open_table(run.path / FOLDER, "directions"), Blobs(run.path)
    rows = []
    for name in pairs.ids.tolist():
        row = table.one(name)
        if row is None:
            return None
        rows.append(np.load(io.BytesIO(blobs.read(row["direction"])), allow_pickle=False))
    return np.stack(rows).astype(np.float64) if rows else None


def grouped(directions: Floats, *, clusters: int, seed: int = 0) -> Iterator[NDArray[np.intp]]:
    """The rows of each group; directions that are the same are never parted."""
    from sklearn.cluster import KMeans

    distinct = len(np.unique(np.round(directions, 6), axis=0))
    if distinct <= 1:
        yield np.arange(len(directions))
        return
    wanted = min(clusters, distinct, max(2, len(directions) // FEWEST))
    means = KMeans(n_clusters=wanted, n_init=10, random_state=seed).fit(directions)
    for group in range(means.n_clusters):
        rows = np.flatnonzero(means.labels_ == group)
        if len(rows):
            yield rows


def _entry(pairs: Pairs, rows: NDArray[np.intp], group: NDArray[np.intp], directions: Floats, *, seed: int) -> dict[str, Any]:
    own = rows[group]
    middle = directions[own].mean(axis=0)
    order = own[np.argsort(np.linalg.norm(directions[own] - middle, axis=1), kind="stable")]
    inside = np.zeros(len(rows), dtype=bool)
    inside[group] = True
    sensitivity = pairs.sensitivity
    factors, counts = np.unique(pairs.factor[own], return_counts=True)
    drop = (pairs.clean_correct[own] == YES).mean() - (pairs.made_correct[own] == YES).mean()
    shown = own[np.argsort(-sensitivity[own], kind="stable")][:EXAMPLES]
    return {
        "class": pairs.classes[int(pairs.label[own[0]])],
        "name": named(str(pairs.caption[order[0]]), str(pairs.prompt[order[0]])),
        "factor": str(factors[counts.argmax()]),
        "sensitivity": float(sensitivity[own].mean()),
        "others": float(sensitivity[np.setdiff1d(rows, own)].mean()) if len(own) < len(rows) else None,
        "drop": 100 * float(drop),
        "edits": len(own),
        "sources": len(np.unique(pairs.image[own])),
        "p": dealt_out(sensitivity[rows], inside, pairs.image[rows], seed=seed),
        "examples": [str(name) for name in pairs.ids[shown]],
    }


def named(caption: str, prompt: str) -> str:
    """An edit in a few words: what was taken out and what was put in its place."""
    _, removed, added, _ = parted(caption, prompt)
    return f"{removed or 'nothing'} → {added or 'nothing'}"


def parted(caption: str, prompt: str) -> tuple[str, str, str, str]:
    """What two captions begin with, the words of each in which they differ, and what both end with."""
    before, after = caption.split(), prompt.split()
    start = 0
    while start < min(len(before), len(after)) and before[start] == after[start]:
        start += 1
    end = 0
    while end < min(len(before), len(after)) - start and before[-1 - end] == after[-1 - end]:
        end += 1
    stop = len(before) - end
    pieces = (before[:start], before[start:stop], after[start : len(after) - end], before[stop:])
    first, removed, added, last = (" ".join(piece) for piece in pieces)
    return first, removed, added, last


def dealt_out(values: Floats, inside: NDArray[np.bool_], sources: NDArray[Any], *, seed: int = 0, draws: int = DRAWS) -> float:
    """One-sided p-value that the group's values are no larger than if each source's values were dealt out at random."""
    generator = np.random.default_rng((seed, 20))
    total, observed = np.zeros(draws), 0.0
    spread = False
    for source in np.unique(sources[inside]):
        own = sources == source
        held, taken = values[own], int(inside[own].sum())
        observed += float(held[inside[own]].sum())
        if taken == len(held):
            total += held.sum()
            continue
        spread = True
        if comb(len(held), taken) <= MOST_WAYS:
            ways = np.array([held[list(way)].sum() for way in combinations(range(len(held)), taken)])
            total += ways[generator.integers(len(ways), size=draws)]
        else:
            total += np.array([generator.choice(held, taken, replace=False).sum() for _ in range(draws)])
    if not spread:
        return 1.0
    return (1 + int(np.count_nonzero(total >= observed - 1e-9))) / (draws + 1)
