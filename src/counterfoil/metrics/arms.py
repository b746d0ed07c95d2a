"""The search against its control on the same images: whether guided steps found what random ones of equal length do not."""

from __future__ import annotations

from typing import Any

import numpy as np

from counterfoil.metrics.columns import NO, YES
from counterfoil.metrics.estimate import Difference, Share, estimate
from counterfoil.metrics.outcomes import Outcomes
from counterfoil.metrics.significance import mcnemar

_NONE = "no image that the oracle accepts in both arms"
_FOUND = Difference(Share("random_right", "both", _NONE), Share("guided_right", "both", _NONE))


def against_random(outcomes: Outcomes, *, seed: int = 0) -> dict[str, Any]:
    """Points of accuracy that guided steps take beyond random ones, over the images accepted in both arms, and the p-value.

    Both arms start from the same images, so they are compared image by image (McNemar's exact test). Two intervals taken
    each by itself can overlap though the images leave no doubt.
    """
    both = (outcomes.validated == YES) & (outcomes.random_validated == YES)
    both &= (outcomes.made_correct >= NO) & (outcomes.random_made_correct >= NO)
    guided, random = both & (outcomes.made_correct == YES), both & (outcomes.random_made_correct == YES)
    columns = {"both": both, "guided_right": guided, "random_right": random}
    found = estimate(columns, {"found": _FOUND}, seed=(seed, 3))["found"]
    p = mcnemar(int(np.count_nonzero(random & ~guided)), int(np.count_nonzero(guided & ~random)))
    return {**found.to_dict(), "p": None if found.value is None else p}
