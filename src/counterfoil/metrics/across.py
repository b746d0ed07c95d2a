"""The same models under several settings, such as generators or oracles: whether their order holds."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

from counterfoil.core.errors import UsageError
from counterfoil.metrics.comparison import RESAMPLES, Paired
from counterfoil.metrics.estimate import Estimate
from counterfoil.metrics.measures import Measure
from counterfoil.metrics.outcomes import Outcomes
from counterfoil.metrics.ranking import agreement
from counterfoil.metrics.rows import Rows


def order_agreement(
    settings: Mapping[str, Mapping[str, Outcomes | Rows]], measure: Measure, *, seed: int = 0, resamples: int = RESAMPLES
) -> dict[tuple[str, str], Estimate]:
    """Kendall's tau between the orders under each two settings, from `{setting: {model: outcomes}}`.

    A source image is drawn for all models and settings at once, so that a hard image is hard in both orders.
    """
    models = [sorted(each) for each in settings.values()]
    if any(each != models[0] for each in models):
        unlike = sorted({name for some in models for name in some if not all(name in each for each in models)})
        raise UsageError(f"{', '.join(unlike)}: not tested under every setting; orders of other models cannot be compared")
    paired = Paired(
        {f"{setting}, {model}": each for setting, group in settings.items() for model, each in group.items()},
        seed=seed,
        resamples=resamples,
    )
    found = {}
    for one, two in combinations(settings, 2):
        orders = ([paired.of(measure, f"{setting}, {model}") for model in models[0]] for setting in (one, two))
        found[one, two] = agreement(paired.drawn, *orders)
    return found
