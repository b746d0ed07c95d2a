"""Mining: which painted images are hard, show what they should, and are not alike.

The same rules that mine a run's set also answer what would have been kept without one of the surrogates.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy.fft import dctn

from counterfoil.core.errors import BadSpec
from counterfoil.core.naming import stable_hash
from counterfoil.core.spec import MiningSpec

BITS = 64
KEPT = ""
_SIDE, _LOW = 32, 8


@dataclass(frozen=True, slots=True)
class Look:
    """One model's answer about an image."""

    right: bool
    confidence: float  # probability of its answer
    truth: float  # probability of the right one
    predicted: int = -1  # in the set's classes; -1 for any other


@dataclass(frozen=True, slots=True)
class Candidate:
    """One painted image, with the answers of every surrogate and the oracle."""

    image_id: str
    label: int
    kind: str  # of nuisance
    nuisance: str
    looks: Mapping[str, Look]  # by surrogate
    accepted: bool | None = None  # whether the oracle sees the object; None where it leaves that open
    picture_hash: int | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """The fate of an image: kept, or the check that rejected it, and why."""

    check: str = KEPT
    reason: str = ""

    @property
    def kept(self) -> bool:
        """Tell whether no check rejected it."""
        return self.check == KEPT


class Miner:
    """The rules over one set of candidates, to be asked about any choice of surrogates.

    Which of several alike, and which of too many, is drawn by the seed and the image's id, never by how hard it is.
    """

    def __init__(
        self, candidates: Iterable[Candidate], settings: MiningSpec, *, surrogates: Sequence[str], seed: int = 0
    ) -> None:
        self._candidates = list(candidates)
        self._settings = settings
        self._names = list(surrogates)
        self._order = sorted(range(len(self._candidates)), key=lambda at: stable_hash(seed, self._candidates[at].image_id))
        shape = (len(self._candidates), len(self._names))
        self._known, self._missed = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool)
        for row, candidate in enumerate(self._candidates):
            for column, name in enumerate(self._names):
                if (look := candidate.looks.get(name)) is not None:
                    self._known[row, column], self._missed[row, column] = True, counts_as_miss(look, settings)
        self._object_lost = np.array([each.accepted is False for each in self._candidates], dtype=bool) & settings.object_check

    def keep(self, surrogates: Sequence[str]) -> NDArray[np.bool_]:
        """The images that these surrogates alone would have kept.  # (candidates,)"""
        misses, needed = self._misses(surrogates)
        kept: NDArray[np.bool_] = (misses >= needed) & ~self._object_lost
        for at in self._reject(kept):
            kept[at] = False
        return kept

    def decide(self, surrogates: Sequence[str]) -> dict[str, Decision]:
        """Decide about each candidate by these surrogates, by its id.

        Without surrogates every image counts as hard, so that what is left are the other checks alone.
        """
        misses, needed = self._misses(surrogates)
        decided = {}
        for at, candidate in enumerate(self._candidates):
            if misses[at] < needed:
                reason = f"missed by {misses[at]} of {len(surrogates)} surrogates, {needed} are needed"
                decided[candidate.image_id] = Decision("not hard", reason)
            elif self._object_lost[at]:
                decided[candidate.image_id] = Decision("object", "the oracle does not see the object in it")
            else:
                decided[candidate.image_id] = Decision()
        left = np.array([decided[each.image_id].kept for each in self._candidates], dtype=bool)
        return decided | {self._candidates[at].image_id: each for at, each in self._reject(left).items()}

    def _misses(self, surrogates: Sequence[str]) -> tuple[NDArray[np.int64], int]:
        """The number of misses of each image, and how many are needed."""
        columns = [self._names.index(name) for name in surrogates]
        if (unknown := np.argwhere(~self._known[:, columns])).size:
            at, column = unknown[0]
            name, image = self._names[columns[column]], self._candidates[at].image_id
            raise BadSpec(f"mining: surrogate {name} has no answer for {image}; run it on all painted images")
        needed = len(columns) if self._settings.misses == "all" else min(self._settings.misses, len(columns))
        return self._missed[:, columns].sum(axis=1), needed

    def _reject(self, left: NDArray[np.bool_]) -> dict[int, Decision]:
        """The images among those left that are duplicates, or more than were asked for."""
        if self._settings.duplicates is None and self._settings.per_class is None and self._settings.per_nuisance is None:
            return {}
        order = [at for at in self._order if left[at]]
        found = dict(self._duplicates(order))
        return found | dict(self._beyond_quotas([at for at in order if at not in found]))

    def _duplicates(self, order: Sequence[int]) -> Iterable[tuple[int, Decision]]:
        """Of images of one object that look alike, only the first is kept."""
        bits = self._settings.duplicates
        if bits is None:
            return
        kept: dict[int, list[tuple[int, str]]] = defaultdict(list)
        for at in order:
            candidate = self._candidates[at]
            if candidate.picture_hash is None:
                continue
            same = kept[candidate.label]
            like = next((name for other, name in same if distance(other, candidate.picture_hash) <= bits), None)
            if like is None:
                same.append((candidate.picture_hash, candidate.image_id))
            else:
                yield at, Decision("duplicate", f"looks like {like}")

    def _beyond_quotas(self, order: Sequence[int]) -> Iterable[tuple[int, Decision]]:
        """No more of an object, nor of an object and a kind of nuisance, than asked for.

        Kinds take turns, so that a full quota for the object is shared between them as evenly as there are images.
        """
        per_class, per_nuisance = self._settings.per_class, self._settings.per_nuisance
        if per_class is None and per_nuisance is None:
            return
        turn: Counter[tuple[int, str]] = Counter()
        ordered: list[tuple[int, int, int]] = []
        for at in order:
            key = self._candidates[at].label, self._candidates[at].kind
            ordered.append((turn[key], len(ordered), at))
            turn[key] += 1
        of_class: Counter[int] = Counter()
        for place, _, at in sorted(ordered):
            candidate = self._candidates[at]
            if per_nuisance is not None and place >= per_nuisance:
                yield at, Decision("quota", f"{per_nuisance} of this object and {candidate.kind} are kept already")
            elif per_class is not None and of_class[candidate.label] >= per_class:
                yield at, Decision("quota", f"{per_class} of this object are kept already")
            else:
                of_class[candidate.label] += 1


def select(
    candidates: Iterable[Candidate], settings: MiningSpec, *, surrogates: Sequence[str], seed: int = 0
) -> dict[str, Decision]:
    """Decide about each candidate by the answers of these surrogates."""
    return Miner(candidates, settings, surrogates=surrogates, seed=seed).decide(surrogates)


def counts_as_miss(look: Look, settings: MiningSpec) -> bool:
    """Tell whether a surrogate's answer is a miss that counts."""
    return not look.right and look.confidence >= settings.confidence and look.truth <= settings.truth


def perceptual_hash(pixels: NDArray[np.uint8]) -> int:
    """Sixty-four bits of an image: the signs of its lowest frequencies against their median.  # (H, W, 3)

    The grey image at 32 × 32, its cosine transform, the 8 × 8 lowest frequencies. A little noise, brightness or scale
    changes few bits; another image changes about half of them.
    """
    grey = Image.fromarray(pixels).convert("L").resize((_SIDE, _SIDE), Image.Resampling.BOX)
    frequencies = dctn(np.asarray(grey, dtype=np.float64), norm="ortho")[:_LOW, :_LOW].reshape(-1)
    # The first is the mean brightness, which says nothing of what is shown: it takes no part in the median.
    return _pack(frequencies > np.median(frequencies[1:]))


def embedding_hash(embedding: NDArray[np.floating], *, bits: int = BITS) -> int:
    """The sides of fixed random planes that an embedding lies on: the share that differs is the angle over π.  # (D,)"""
    planes = np.random.default_rng(len(embedding)).standard_normal((bits, len(embedding)))
    return _pack(planes @ np.asarray(embedding, dtype=np.float64) > 0)


def distance(first: int, second: int) -> int:
    """The number of bits in which two hashes differ."""
    return (first ^ second).bit_count()


def _pack(bits: NDArray[np.bool_]) -> int:
    return int.from_bytes(np.packbits(bits).tobytes(), "big")
