"""The numbers that runs are compared and gated by: how they are found, whether more is better, and how people spell them."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from counterfoil.errors import UsageError
from counterfoil.metrics.fmr import STATISTICS
from counterfoil.metrics.statistic import Difference, Statistic
from counterfoil.metrics.table import MEANINGS


@dataclass(frozen=True)
class Measure:
    """One number of a run."""

    name: str
    statistic: Statistic
    meaning: str
    higher_is_better: bool = True

    @property
    def unit(self) -> str:
        """The unit of its values."""
        return "" if self.name.startswith("steps") else " %" if self.higher_is_better else " points"

    @property
    def difference_unit(self) -> str:
        """The unit of a difference of two of its values."""
        return "" if self.name.startswith("steps") else " points"


MEASURES: Mapping[str, Measure] = {
    **{name: Measure(name, each, MEANINGS[name]) for name, each in STATISTICS.items()},
    "accuracy": Measure("accuracy", STATISTICS["PA"], "accuracy on the pictures that were made, kept and accepted"),
    "accuracy_painted": Measure("accuracy_painted", STATISTICS["SA"], "of a painted set: accuracy before anything was chosen"),
    "drop": Measure("drop", Difference(STATISTICS["SA"], STATISTICS["PA"]), "SA less PA", higher_is_better=False),
    "drop_matched": Measure(
        "drop_matched",
        Difference(STATISTICS["SA_matched"], STATISTICS["PA"]),
        "accuracy lost on the images whose made picture the oracle accepts",
        higher_is_better=False,
    ),
}
"""Everything in a run's results, and the accuracy drops, published and matched as FMR is; `accuracy` is PA by the name that the
protocols without an SA give it."""


def measure(name: str) -> Measure:
    """The measure of that name, in whatever case it is written."""
    known = {each.lower(): each for each in MEASURES}
    if name.lower() in known:
        return MEASURES[known[name.lower()]]
    near = difflib.get_close_matches(name.lower(), known, n=1)
    hint = f"did you mean {known[near[0]]!r}?" if near else f"there are {', '.join(MEASURES)}"
    raise UsageError(f"no number called {name!r}; {hint}")
