"""The images that are complete, in little memory however many they are."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from counterfoil.store.files import key_of

_FRESH = 1 << 17  # keys gathered before they are sorted in


class Done:
    """A set of image ids, held as eight bytes each; two ids share them once in some ten billion runs."""

    def __init__(self) -> None:
        self._sorted = array("Q")  # searched by halves, an eighth of what a set of numbers takes
        self._fresh: set[int] = set()
        self._blocks: list[NDArray[np.uint64]] = []  # read from parts, not sorted in yet

    def __contains__(self, image_id: str) -> bool:
        if self._blocks:
            self._settle()
        key = key_of(image_id)
        if key in self._fresh:
            return True
        at = bisect_left(self._sorted, key)
        return at < len(self._sorted) and self._sorted[at] == key

    def lacking(self, image_ids: Sequence[str]) -> list[int]:
        """Which of many ids, by their places, are not complete: quicker than asking for each."""
        if self._blocks:
            self._settle()
        keys = list(map(key_of, image_ids))
        places: Sequence[int] = range(len(keys))
        if self._sorted:
            held, asked = np.frombuffer(self._sorted, dtype=np.uint64), np.array(keys, dtype=np.uint64)
            order = np.argsort(asked)  # one after the other through memory, instead of here and there
            asked = asked[order]
            at = np.minimum(np.searchsorted(held, asked), len(held) - 1)
            places = np.sort(order[held[at] != asked]).tolist()
        return [place for place in places if keys[place] not in self._fresh]

    def __len__(self) -> int:
        self._settle()
        return len(self._sorted)

    def add(self, image_id: str) -> None:
        """Count an image as complete."""
        self._fresh.add(key_of(image_id))
        if len(self._fresh) >= _FRESH:
            self._settle()

    def add_keys(self, keys: NDArray[np.uint64]) -> None:
        """Count the images of these keys as complete."""
        self._blocks.append(keys)

    def _settle(self) -> None:
        """Sort everything into one array, each key once."""
        if not self._fresh and not self._blocks:
            return
        fresh = np.fromiter(self._fresh, dtype=np.uint64, count=len(self._fresh))
        held = np.frombuffer(self._sorted, dtype=np.uint64) if self._sorted else np.empty(0, dtype=np.uint64)
        merged = np.concatenate([held, np.sort(np.concatenate([fresh, *self._blocks]))])
        merged.sort(kind="stable")  # two runs that are sorted already are merged in one pass
        merged = merged[np.concatenate([[True], merged[1:] != merged[:-1]])]
        del held
        self._sorted = array("Q")
        self._sorted.frombytes(merged.tobytes())
        self._fresh, self._blocks = set(), []
