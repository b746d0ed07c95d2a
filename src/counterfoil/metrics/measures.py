"""The numbers that runs are compared and gated by: how they are found, whether more is better, and how people spell them.

Each goes by the name it has in its run's `results.json`, and is the number that stands there.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from counterfoil.core.errors import UsageError
from counterfoil.metrics import imagenet_d_transfer as painted
from counterfoil.metrics import lance
from counterfoil.metrics.estimate import Difference, Share, Statistic
from counterfoil.metrics.fmr import STATISTICS
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
    "drop": Measure("drop", Difference(STATISTICS["SA"], STATISTICS["PA"]), "SA less PA", higher_is_better=False),
    "drop_matched": Measure(
        "drop_matched",
        Difference(STATISTICS["SA_matched"], STATISTICS["PA"]),
        "accuracy lost on the images whose made picture the oracle accepts",
        higher_is_better=False,
    ),
}
"""Of FMR: everything in a run's results, and the accuracy drops, published and matched as FMR is."""

LANCE: Mapping[str, Measure] = {
    name: Measure(name, each, lance.MEANINGS[name], higher_is_better=isinstance(each, Share))
    for name, each in lance.STATISTICS.items()
}
"""Of LANCE: everything in a run's results; drops and sensitivities are the better the smaller they are."""

PAINTED: Mapping[str, Measure] = {
    "accuracy": Measure("accuracy", painted.MINED, "accuracy on the set"),
    "accuracy_painted": Measure("accuracy_painted", painted.PAINTED, "accuracy on what was painted, before anything was chosen"),
    "drop": Measure("drop", painted.DROP, "accuracy_painted less accuracy", higher_is_better=False),
}
"""Of ImageNet-D, for one model. A set that was made before has the first alone."""

CLEAN = {"fmr": MEASURES["SA"], "lance": LANCE["SA"], "imagenet-d": PAINTED["accuracy_painted"]}
"""A model's accuracy without any of it: what orders by other numbers are set against."""


def measure(name: str, known: Mapping[str, Measure] = MEASURES) -> Measure:
    """The measure of that name, in whatever case it is written."""
    spelt = {each.lower(): each for each in known}
    if name.lower() in spelt:
        return known[spelt[name.lower()]]
    near = difflib.get_close_matches(name.lower(), spelt, n=1)
    hint = f"did you mean {spelt[near[0]]!r}?" if near else f"there are {', '.join(known)}"
    raise UsageError(f"no number called {name!r}; {hint}")
