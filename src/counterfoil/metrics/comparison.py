"""Models set against each other on the source images they have in common.

Shares (accuracies, acceptance) are compared by McNemar's exact test on the images for which both models have an answer, or,
where several of these are of one source image or prompt, by exchanging the two models' answers for all of them together;
ratios, means and drops by a bootstrap that draws a source image for all models at once. P-values are corrected for the number
of pairs by Holm's method, measure by measure. Intervals are for each difference by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.core.errors import UsageError
from counterfoil.core.records import LEVEL, Estimate
from counterfoil.metrics.estimate import Difference, Resamples, Share, Statistic, estimate, estimate_one
from counterfoil.metrics.measures import CLEAN, Measure
from counterfoil.metrics.outcomes import Outcomes
from counterfoil.metrics.rows import WORDS, Rows, rows_of
from counterfoil.metrics.significance import holm, mcnemar, order_agreement, rank_ranges, sign_flip

RESAMPLES = 10_000
"""More than a single interval needs: corrected for many pairs, small p-values have to be told from smaller ones."""


@dataclass(frozen=True)
class Pair:
    """Two models on one measure."""

    first: str
    second: str
    difference: Estimate  # the first less the second
    p: float | None  # None where the difference is undefined
    adjusted: float | None  # as it may be read when all pairs are looked at
    test: str  # what the p-value comes from
    only_first: int | None = None  # images that only the first gets right, for shares
    only_second: int | None = None

    def told_apart(self, alpha: float) -> bool:
        """Whether the images show that the two differ."""
        return self.adjusted is not None and self.adjusted <= alpha

    @property
    def higher(self) -> str:
        """The one with the higher value."""
        return self.first if (self.difference.value or 0) > 0 else self.second

    @property
    def lower(self) -> str:
        """The other one."""
        return self.second if self.higher == self.first else self.first


@dataclass(frozen=True)
class Ranking:
    """All models on one measure, best first, and all pairs of them."""

    measure: Measure
    values: Mapping[str, Estimate]
    pairs: tuple[Pair, ...]
    ranks: Mapping[str, tuple[int, int]]  # best and worst rank that the pairs told apart leave open
    agreement: Estimate | None  # Kendall's tau with the order by `clean`; None for that itself, and where there is none
    clean: str  # the accuracy without any of it: SA, or of a painted set that before anything was chosen


@dataclass(frozen=True)
class Comparison:
    """What can be said of the models together."""

    names: tuple[str, ...]
    images: int  # in common; of LANCE, sources and edits
    extent: str  # the same in words
    row: str  # what one of them is called
    left_out: Mapping[str, int]  # images of each that another lacks
    alpha: float
    rankings: tuple[Ranking, ...]


def compare(
    contenders: Mapping[str, Outcomes | Rows],
    measures: Sequence[Measure],
    *,
    alpha: float = 0.05,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Comparison:
    """Set two or more models against each other, by name."""
    paired = Paired(contenders, seed=seed, resamples=resamples)
    return Comparison(
        names=tuple(contenders),
        images=len(paired.keys),
        extent=paired.rows[0].extent,
        row=paired.words.row,
        left_out={name: len(each) - len(paired.keys) for name, each in contenders.items()},
        alpha=alpha,
        rankings=tuple(_ranking(paired, each, alpha) for each in measures),
    )


def shared_keys(contenders: Mapping[str, Outcomes | Rows]) -> NDArray[np.uint64]:
    """The source images that all have; UsageError if there are none."""
    keys = reduce(np.intersect1d, [each.keys for each in contenders.values()])
    if not len(keys):
        if empty := [name for name, each in contenders.items() if not len(each)]:
            raise UsageError(f"{', '.join(empty)}: nothing was made that counts, so there is nothing to pair; leave it out")
        raise UsageError(f"{', '.join(contenders)}: no source image in common, so nothing to pair; run them on the same data")
    return keys


class Paired:
    """The images that all contenders have, and resamples of them."""

    def __init__(self, contenders: Mapping[str, Outcomes | Rows], *, seed: int = 0, resamples: int = RESAMPLES) -> None:
        if len(contenders) < 2:
            raise UsageError(f"a comparison needs two models, got {', '.join(contenders) or 'none'}; name another run")
        self.names = list(contenders)
        self.keys = shared_keys(contenders)
        self.rows = [rows_of(each).take(np.isin(each.keys, self.keys)) for each in contenders.values()]
        self.protocol = self.rows[0].protocol
        self.words = WORDS[self.protocol]
        self.columns: dict[str, NDArray[Any]] = {
            self.prefix(name) + column: values
            for name, each in zip(self.names, self.rows, strict=True)
            for column, values in each.columns.items()
        }
        self._seed, self._resamples = seed, resamples
        # Of one set of edits: whichever contender says which of them have a source in common says it for all.
        self.source = next((each.source for each in self.rows if each.source is not None), None)
        self.drawn = self.resample(self.columns)

    def prefix(self, name: str) -> str:
        """What a contender's columns begin with."""
        return f"{self.names.index(name)} "

    def alone(self, measure: Measure, name: str) -> Estimate:
        """One contender's own number, drawn from its columns alone: the same in any company and order."""
        own = self.rows[self.names.index(name)]
        return estimate(own.columns, {"": measure.statistic}, clusters=own.source, seed=own.seed)[""]

    def of(self, measure: Measure, name: str) -> Statistic:
        """The measure of one contender."""
        return measure.statistic.prefixed(self.prefix(name))

    def several(self, share: Share) -> bool:
        """Whether more than one row of a source image counts for the share."""
        if self.source is None:
            return False
        counting = (self.columns[share.prefixed(self.prefix(name)).whole] for name in self.names)
        return any(np.bincount(self.source[rows]).max(initial=0) > 1 for rows in counting)

    def resample(self, columns: Mapping[str, NDArray[Any]]) -> Resamples:
        """Resamples of the shared images with these columns."""
        return Resamples(columns, clusters=self.source, seed=self._seed, resamples=self._resamples)


def agreement_across(
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
        found[one, two] = order_agreement(paired.drawn, *orders)
    return found


def _ranking(paired: Paired, measure: Measure, alpha: float) -> Ranking:
    values = {name: paired.alone(measure, name) for name in paired.names}
    sign = -1 if measure.higher_is_better else 1
    order = sorted(values, key=lambda name: (values[name].value is None, sign * (values[name].value or 0)))
    found = [pair_of(paired, measure, *two) for two in combinations(order, 2)]
    known = [each.p for each in found if each.p is not None]
    corrected = iter(holm(known))
    pairs = tuple(each if each.p is None else replace(each, adjusted=next(corrected)) for each in found)
    apart = [(each.higher, each.lower) for each in pairs if each.told_apart(alpha)]
    beaten = apart if measure.higher_is_better else [(low, high) for high, low in apart]
    return Ranking(
        measure=measure,
        values={name: values[name] for name in order},
        pairs=pairs,
        ranks=rank_ranges(order, beaten),
        agreement=_with_clean_order(paired, measure),
        clean=CLEAN[paired.protocol].name,
    )


def pair_of(paired: Paired, measure: Measure, first: str, second: str, *, level: float = LEVEL) -> Pair:
    """Two of the contenders on one measure, not yet corrected for others."""
    if isinstance(measure.statistic, Share):
        return _paired_shares(paired, measure.statistic, first, second, level)
    difference = Difference(paired.of(measure, first), paired.of(measure, second))
    found = estimate_one(paired.drawn, difference, level=level)
    p = None if found.value is None else paired.drawn.p_value(difference)
    return Pair(first, second, found, p, None, "paired bootstrap")


def _paired_shares(paired: Paired, share: Share, first: str, second: str, level: float) -> Pair:
    """On the images that count for both, where each answer has its counterpart."""
    one, two = (share.prefixed(paired.prefix(name)) for name in (first, second))
    both = paired.columns[one.whole] & paired.columns[two.whole]
    right_one, right_two = both & paired.columns[one.part], both & paired.columns[two.part]
    drawn = paired.resample({"both": both, "first": right_one, "second": right_two})
    row, group = paired.words
    none = f"no {row} that counts for both"
    found = estimate_one(drawn, Difference(Share("first", "both", none), Share("second", "both", none)), level=level)
    only_first, only_second = int(np.count_nonzero(right_one & ~right_two)), int(np.count_nonzero(right_two & ~right_one))
    if paired.source is not None and paired.several(share):
        # Edits of one source are not independent: exchange a source's answers together.
        test = f"exact sign-flip test on {row}s that count for both, those of one {group} together"
        p = sign_flip(np.bincount(paired.source, right_one.astype(float) - right_two.astype(float)).astype(int))
    else:
        test, p = f"McNemar's exact test on {row}s that count for both", mcnemar(only_first, only_second)
    return Pair(first, second, found, None if found.value is None else p, None, test, only_first, only_second)


def _with_clean_order(paired: Paired, measure: Measure) -> Estimate | None:
    accuracy = CLEAN[paired.protocol]
    if measure == accuracy or any(term.whole not in paired.rows[0].columns for term in accuracy.statistic.terms):
        return None
    clean, other = ([paired.of(each, name) for name in paired.names] for each in (accuracy, measure))
    return order_agreement(paired.drawn, clean, other, opposed=not measure.higher_is_better)
