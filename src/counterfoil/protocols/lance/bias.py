"""Class-level biases: which kinds of edit move a model's answer for a class more than other edits of the same images do.

Per class, the edits are grouped by k-means on how they move the caption in the encoder's space. A group's factor is that of
most of its edits; its name is the edit of that factor nearest to the group's middle, and its examples are the most sensitive
ones of that factor. Groups are ranked by mean sensitivity.

The test asks whether a group's edits move the model more than the other edits of the same source images: under the hypothesis
that the kind of edit does not matter, a source's sensitivities can be exchanged among its edits in any way. The p-value is
the share of random exchanges that reach what was seen; where none of them does, Chernoff's bound over all exchanges, which
can be as small as needed however many groups Holm's method corrects for.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from functools import lru_cache
from itertools import combinations, takewhile
from math import comb
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.metrics.estimate import Difference, Floats, Mean, Share, Statistic, estimate, holm, stored_p
from counterfoil.metrics.observations import YES, class_names
from counterfoil.store import Run
from counterfoil.store.stages import FOLDER, Blobs, StageTable

if TYPE_CHECKING:
    from counterfoil.protocols.lance.results import Pairs

CLUSTERS = 10
FEWEST = 6  # edits per group on average: of a class with few edits fewer groups are made than the ten of the paper
DRAWS = 100_000
MOST_WAYS = 5_000  # to choose a group's edits of one source; more are drawn at random
EXAMPLES = 6

_NONE = "no edit"
_BEFORE, _AFTER = Share("before", "group", _NONE), Share("after", "group", _NONE)
_STATISTICS: dict[str, Statistic] = {
    "sensitivity": Mean("moved", "group", _NONE, most=100),
    "drop": Difference(_BEFORE, _AFTER),
    "others": Mean("moved_others", "others", "no other edit of the class", most=100),
}


def edit_groups(run: Run, pairs: Pairs, *, clusters: int = CLUSTERS, seed: int = 0) -> list[dict[str, Any]]:
    """Group the edits of all classes, most sensitive groups first, with how surely each differs from the other edits."""
    directions = read_directions(run, pairs)
    if directions is None:
        return []
    names = class_names(pairs.classes, pairs.label)
    found: list[dict[str, Any]] = []
    for label in names:
        rows = np.flatnonzero(pairs.label == label)
        for group in _groups(directions[rows].tobytes(), directions.shape[1], clusters, seed):
            entry = _entry(pairs, rows, group, directions, seed=seed, at=len(found))
            found.append({"class": names[label], **entry})
    for entry, adjusted in zip(found, holm([entry["p"] for entry in found]), strict=True):
        entry["p"], entry["p_adjusted"] = stored_p(entry["p"]), stored_p(adjusted)
    return sorted(found, key=lambda entry: (-entry["sensitivity"]["value"], entry["class"], entry["name"]))


def read_directions(run: Run, pairs: Pairs) -> Floats | None:
    """Read the change of each pair's caption, one row per pair; None for a run without that stage.  # (pairs, D)"""
    table, blobs = StageTable(run.path / FOLDER, "directions"), Blobs(run.path)
    rows = []
    for name in pairs.ids.tolist():
        row = table.one(name)
        if row is None:
            return None
        rows.append(np.load(io.BytesIO(blobs.read(row["direction"])), allow_pickle=False))
    return np.stack(rows).astype(np.float64) if rows else None


def group_rows(directions: Floats, *, clusters: int, seed: int = 0) -> Iterator[NDArray[np.intp]]:
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


def edit_name(caption: str, prompt: str) -> str:
    """An edit in a few words: what was taken out and what was put in its place."""
    _, removed, added, _ = split_captions(caption, prompt)
    return f"{removed or 'nothing'} → {added or 'nothing'}"


def split_captions(caption: str, prompt: str) -> tuple[str, str, str, str]:
    """Split two captions: the words both begin with, those of each in which they differ, and those both end with."""
    before, after = caption.split(), prompt.split()
    start = _alike(before, after)
    end = _alike(before[start:][::-1], after[start:][::-1])
    stop = len(before) - end
    pieces = (before[:start], before[start:stop], after[start : len(after) - end], before[stop:])
    first, removed, added, last = (" ".join(piece) for piece in pieces)
    return first, removed, added, last


def _alike(one: list[str], two: list[str]) -> int:
    """Number of words that both begin with."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, two, strict=False)))


def permutation_test(
    values: Floats, inside: NDArray[np.bool_], sources: NDArray[Any], *, seed: int = 0, draws: int = DRAWS
) -> float:
    """One-sided p-value that the group's values are no larger than if each source's values were exchanged at random."""
    generator = np.random.default_rng((seed, 20))
    total, observed, whole = np.zeros(draws), 0.0, 0.0  # whole: of sources all of whose edits are in the group
    chosen: list[tuple[Floats, int]] = []
    for source in np.unique(sources[inside]):
        own = sources == source
        held, taken = values[own], int(inside[own].sum())
        observed += float(held[inside[own]].sum())
        if taken == len(held):
            total += held.sum()
            whole += float(held.sum())
            continue
        chosen.append((held, taken))
        if comb(len(held), taken) <= MOST_WAYS:
            ways = np.array([held[list(way)].sum() for way in combinations(range(len(held)), taken)])
            total += ways[generator.integers(len(ways), size=draws)]
        else:
            total += np.array([generator.choice(held, taken, replace=False).sum() for _ in range(draws)])
    if not chosen:
        return 1.0
    reached = int(np.count_nonzero(total >= observed - 1e-9))
    if reached:
        return (1 + reached) / (draws + 1)
    return min(1 / (draws + 1), _chernoff(chosen, observed - whole))


def _chernoff(chosen: list[tuple[Floats, int]], observed: float) -> float:
    """An upper bound of the chance that sums of so many random values of each source reach `observed`."""
    largest = max(float(np.abs(held).max()) for held, _ in chosen) or 1.0
    best = 0.0
    for tilt in np.geomspace(1e-3, 1e3, 60) / largest:
        log_mean = sum(_log_mean_exp(held, taken, float(tilt)) for held, taken in chosen)
        best = min(best, log_mean - float(tilt) * observed)
    return float(np.exp(best))


def _log_mean_exp(held: Floats, taken: int, tilt: float) -> float:
    """The log of the mean of exp(tilt × sum) over all ways to take so many: an elementary symmetric polynomial."""
    top = float(held.max())
    powers = np.exp(tilt * (held - top))
    sums = np.zeros(taken + 1)
    sums[0] = 1.0
    for power in powers:
        sums[1:] += power * sums[:-1].copy()
    return float(np.log(sums[taken])) - float(np.log(comb(len(held), taken))) + tilt * top * taken


@lru_cache(maxsize=4096)
def _groups(directions: bytes, width: int, clusters: int, seed: int) -> list[NDArray[np.intp]]:
    """The groups of one class, which are the same for every model that is asked about the edits."""
    return list(group_rows(np.frombuffer(directions).reshape(-1, width), clusters=clusters, seed=seed))


def _entry(
    pairs: Pairs, rows: NDArray[np.intp], group: NDArray[np.intp], directions: Floats, *, seed: int, at: int
) -> dict[str, Any]:
    own = rows[group]
    factors, counts = np.unique(pairs.factor[own], return_counts=True)
    factor = str(factors[counts.argmax()])
    of_factor = own[pairs.factor[own] == factor]
    middle = directions[own].mean(axis=0)
    nearest = of_factor[np.argmin(np.linalg.norm(directions[of_factor] - middle, axis=1))]
    inside = np.zeros(len(rows), dtype=bool)
    inside[group] = True
    sensitivity = pairs.sensitivity
    moved = np.nan_to_num(sensitivity[rows])
    columns = {
        "group": inside,
        "moved": np.where(inside, moved, 0.0),
        "before": inside & (pairs.clean_correct[rows] == YES),
        "after": inside & (pairs.made_correct[rows] == YES),
        "others": ~inside,
        "moved_others": np.where(inside, 0.0, moved),
    }
    found = estimate(columns, _STATISTICS, clusters=pairs.image[rows], seed=(seed, 21, at))
    shown = of_factor[np.argsort(-sensitivity[of_factor], kind="stable")][:EXAMPLES]
    return {
        "name": edit_name(str(pairs.caption[nearest]), str(pairs.prompt[nearest])),
        "factor": factor,
        "of_factor": len(of_factor),
        **{name: each.to_dict() for name, each in found.items()},
        "edits": len(own),
        "sources": len(np.unique(pairs.image[own])),
        "p": permutation_test(sensitivity[rows], inside, pairs.image[rows], seed=seed),
        "examples": [str(name) for name in pairs.ids[shown]],
    }
