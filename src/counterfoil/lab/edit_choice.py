"""Which candidates of a sweep, and which bars of quality control, serve the lab's edits best, by what is demanded of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np
from numpy.typing import NDArray

from counterfoil.core.spec.lance import QualitySpec
from counterfoil.lab.edit_faithfulness import ASKED, CLASS, UNTOUCHED, Edit
from counterfoil.lab.vocabulary import FACTORS

ENOUGH = 3.0  # points above every demand, after which more accepted edits are worth more than more points
_DEMANDS = np.array([CLASS if name == "garment" else UNTOUCHED for name in FACTORS])


@dataclass(frozen=True)
class Choice:
    """Candidates to make of every edit, bars to hold them to, and what that comes to on the edits it was chosen on."""

    sweep: tuple[str, ...]
    bars: QualitySpec
    margin: float  # points by which the tightest demand is met
    accepted: int

    @property
    def worth(self) -> tuple[float, int]:
        """Points first, as long as there are not enough; then accepted edits."""
        return min(self.margin, ENOUGH), self.accepted if self.margin >= ENOUGH else 0


def best_choice(edits: Sequence[Edit], bars: Sequence[QualitySpec], *, candidates: int = 2) -> Choice:
    """The best choice of at most so many candidates and of one of these bars. Edits without candidates count as refused."""
    table = _Table([edit for edit in edits if edit.candidates])
    size = len(table.names)
    places = [several for count in range(1, candidates + 1) for several in combinations(range(size), count)]
    found = [table.choice(several, one) for one, several in product(bars, places)]
    return max(found, key=lambda choice: choice.worth)


class _Table:
    """Edits as arrays of E edits, S candidates and F factors, since there are many choices to go through."""

    def __init__(self, edits: Sequence[Edit]) -> None:
        self.edits = edits
        self.names = [one.name for one in edits[0].candidates]
        every = [list(edit.candidates) for edit in edits]
        self.directional = np.array([[one.similarities.directional for one in row] for row in every])  # (E, S)
        self.keeps = np.array([[one.keeps_label for one in row] for row in every])  # (E, S)
        outcomes = [[edit.outcome(one.read) for one in row] for edit, row in zip(edits, every, strict=True)]
        self.hit = np.array([[one.hit for one in row] for row in outcomes])  # (E, S)
        kept = [[[one.kept.get(name, np.nan) for name in FACTORS] for one in row] for row in outcomes]
        self.kept = np.array(kept, dtype=float)  # (E, S, F), not a number where it says nothing
        self._passing: dict[str, NDArray[np.bool_]] = {}

    def passing(self, bars: QualitySpec) -> NDArray[np.bool_]:
        """Which candidates pass.  # (E, S)"""
        key = bars.model_dump_json()
        if key not in self._passing:
            self._passing[key] = np.array(
                [[one.similarities.failed(bars) is None for one in edit.candidates] for edit in self.edits]
            )
        return self._passing[key]

    def choice(self, several: tuple[int, ...], bars: QualitySpec) -> Choice:
        """What comes of these candidates under these bars: of those that pass, the one of best directional similarity is kept."""
        columns = list(several)
        passing = self.passing(bars)[:, columns]
        first = np.where(passing, self.directional[:, columns], -np.inf).argmax(1)
        chosen = np.array(columns)[first]
        rows = np.flatnonzero(passing.any(1) & self.keeps[np.arange(len(chosen)), chosen])
        names = tuple(self.names[column] for column in columns)
        if not len(rows):
            return Choice(names, bars, -100.0, 0)
        kept = self.kept[rows, chosen[rows]]  # (accepted, F)
        counts = (~np.isnan(kept)).sum(0)
        shares = 100 * np.nansum(kept, 0) / np.maximum(counts, 1)
        margins = np.where(counts > 0, shares - _DEMANDS, np.inf)
        asked = 100 * self.hit[rows, chosen[rows]].mean() - ASKED
        return Choice(names, bars, float(min(margins.min(), asked)), len(rows))
