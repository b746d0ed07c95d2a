"""Compare models with paired tests, and order them as far as the images they have in common allow.

Shares (accuracies, acceptance) are compared by McNemar's exact test on the images for which both models have an answer, or,
where several of these are of one source image or prompt, by exchanging the two models' answers for all of them together;
ratios, means and drops by a bootstrap that draws a source image for all models at once. P-values are corrected for the number
of pairs by Holm's method, measure by measure. Each model's value is that of its own run; differences are drawn jointly.

Models that cannot be told apart have no order, so a tau between two lists of measured values is only one of many that the
images allow. Its interval is made of what the images do show: every two models are compared in both orders, corrected for
the number of pairs; those told apart in both orders count as agreeing or not, and the others as open, once for and once
against. That is cautious: it holds the true value in more than 95 of 100 cases. (Tau over resamples of the images leaves out
the true value one time in five between models of about equal strength, since each resample shuffles both orders again.)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.core.errors import UsageError
from counterfoil.core.records import LEVEL, Estimate
from counterfoil.metrics.estimate import Difference, Floats, Resamples, Share, Statistic, estimate_one, holm, mcnemar, sign_flip
from counterfoil.metrics.observations import Measure, Observations
from counterfoil.metrics.tables import Cell, Column, Table, Value, amount, as_text, join_names, tau_text

RESAMPLES = 10_000
"""More than a single interval needs: corrected for many pairs, small p-values have to be told from smaller ones."""

PAIRS = 15
"""Pairs listed at most; of more, those of neighbours in the order."""


@dataclass(frozen=True)
class ModelPair:
    """Two models on one measure."""

    first: str
    second: str
    difference: Estimate  # the first less the second
    p: float | None  # None where the difference is undefined
    adjusted: float | None  # as it may be read when all pairs are looked at
    test: str  # what the p-value comes from
    only_first: int | None = None  # images that only the first gets right, for shares
    only_second: int | None = None

    def significant(self, alpha: float) -> bool:
        """Tell whether the images show that the two differ."""
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
    pairs: tuple[ModelPair, ...]
    ranks: Mapping[str, tuple[int, int]]  # best and worst rank that the significant pairs leave open
    agreement: Estimate | None  # Kendall's tau with the order by the clean measure, where there is another
    clean: str

    def rank(self, name: str) -> str:
        """A model's place for people: `2`, or `2–4` where that is open."""
        return rank_text(self.ranks[name])


@dataclass(frozen=True)
class Comparison:
    """All models, their rankings and pairs."""

    names: tuple[str, ...]
    images: int  # rows in common
    extent: str  # the same in words
    row: str  # what one of them is called
    left_out: Mapping[str, int]  # rows of each that another lacks
    alpha: float
    rankings: tuple[Ranking, ...]


def compare(
    contenders: Mapping[str, Observations],
    measures: Sequence[Measure],
    *,
    clean: Measure | None = None,
    alpha: float = 0.05,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Comparison:
    """Compare two or more models by name; `clean` is the measure whose order others are set against."""
    paired = Paired(contenders, seed=seed, resamples=resamples)
    first = paired.rows[0]
    return Comparison(
        names=tuple(contenders),
        images=len(paired.keys),
        extent=first.extent,
        row=first.row,
        left_out={name: len(each) - len(paired.keys) for name, each in contenders.items()},
        alpha=alpha,
        rankings=tuple(_ranking(paired, each, clean, alpha) for each in measures),
    )


def agreement_across(
    settings: Mapping[str, Mapping[str, Observations]], measure: Measure, *, seed: int = 0, resamples: int = RESAMPLES
) -> dict[tuple[str, str], Estimate]:
    """Kendall's tau between the models' orders under each two settings, from `{setting: {model: observations}}`.

    A source image is drawn for all models and settings at once, so that a hard image is hard in both orders.
    """
    models = [sorted(each) for each in settings.values()]
    if any(each != models[0] for each in models):
        unlike = sorted({name for some in models for name in some if not all(name in each for each in models)})
        raise UsageError(f"{', '.join(unlike)}: not tested under every setting; orders of other models cannot be compared")
    named = {f"{setting}, {model}": each for setting, group in settings.items() for model, each in group.items()}
    paired = Paired(named, seed=seed, resamples=resamples)
    found = {}
    for one, two in combinations(settings, 2):
        orders = ([paired.of(measure, f"{setting}, {model}") for model in models[0]] for setting in (one, two))
        found[one, two] = order_agreement(paired.drawn, *orders)
    return found


def shared_keys(contenders: Mapping[str, Observations]) -> NDArray[np.uint64]:
    """The rows that all have, by their keys; UsageError if there are none."""
    keys = reduce(np.intersect1d, [each.keys for each in contenders.values()])
    if not len(keys):
        if empty := [name for name, each in contenders.items() if not len(each)]:
            raise UsageError(f"{', '.join(empty)}: nothing was made that counts, so there is nothing to pair; leave it out")
        raise UsageError(f"{', '.join(contenders)}: no source image in common, so nothing to pair; run them on the same data")
    return keys


class Paired:
    """The rows that all contenders have, and resamples of them."""

    def __init__(self, contenders: Mapping[str, Observations], *, seed: int = 0, resamples: int = RESAMPLES) -> None:
        if len(contenders) < 2:
            raise UsageError(f"a comparison needs two models, got {', '.join(contenders) or 'none'}; name another run")
        self.names = list(contenders)
        self.keys = shared_keys(contenders)
        self.rows = [each.take(np.isin(each.keys, self.keys)) for each in contenders.values()]
        self.columns: dict[str, NDArray[Any]] = {
            self.prefix(name) + column: values
            for name, each in zip(self.names, self.rows, strict=True)
            for column, values in each.columns.items()
        }
        self._seed, self._resamples = seed, resamples
        # Of one set of edits: whichever contender says which of them have a source in common says it for all.
        self.cluster = next((each.cluster for each in self.rows if each.cluster is not None), None)
        self.drawn = self.resample(self.columns)

    def prefix(self, name: str) -> str:
        """The prefix of a contender's columns."""
        return f"{self.names.index(name)} "

    def own(self, name: str) -> Observations:
        """One contender's shared rows."""
        return self.rows[self.names.index(name)]

    def of(self, measure: Measure, name: str) -> Statistic:
        """The measure of one contender."""
        return measure.statistic.with_prefix(self.prefix(name))

    def several(self, share: Share) -> bool:
        """Tell whether more than one row of a source image counts for the share."""
        if self.cluster is None:
            return False
        counting = (self.columns[share.with_prefix(self.prefix(name)).whole] for name in self.names)
        return any(np.bincount(self.cluster[rows]).max(initial=0) > 1 for rows in counting)

    def resample(self, columns: Mapping[str, NDArray[Any]]) -> Resamples:
        """Resamples of the shared rows with these columns."""
        return Resamples(columns, clusters=self.cluster, seed=self._seed, resamples=self._resamples)


def pair_of(paired: Paired, measure: Measure, first: str, second: str, *, level: float = LEVEL) -> ModelPair:
    """Compare two of the contenders on one measure, not yet corrected for others."""
    if isinstance(measure.statistic, Share):
        return _paired_shares(paired, measure.statistic, first, second, level)
    difference = Difference(paired.of(measure, first), paired.of(measure, second))
    found = estimate_one(paired.drawn, difference, level=level)
    p = None if found.value is None else paired.drawn.p_value(difference)
    return ModelPair(first, second, found, p, None, "paired bootstrap")


def conclusion(pair: ModelPair, measure: Measure, *, alpha: float, row: str = "image") -> str:
    """A verdict on two models in plain words."""
    if pair.adjusted is None:
        return "nothing to compare"
    if pair.significant(alpha):
        return f"{pair.higher} is higher" if measure.higher_is_better else f"{pair.lower} is lower"
    if pair.only_first == pair.only_second == 0:
        return "cannot tell apart: the same answer on every " + row
    return "cannot tell apart"


def rank_text(rank: tuple[int, int]) -> str:
    """A place for people: `2`, or `2–4` where that is open."""
    best, worst = rank
    return str(best) if best == worst else f"{best}–{worst}"


def lines(comparison: Comparison) -> list[str]:
    """The whole comparison for the terminal."""
    found = [f"{len(comparison.names)} models, paired by {comparison.extent}"]
    found += [f"  {line}" for line in left_out_lines(comparison)]
    for values, pairs in tables_of(comparison):
        found += ["", *as_text(values), *as_text(pairs, indent="  ")]
    return found


def comparison_tables(comparison: Comparison) -> list[Table]:
    """The whole comparison as tables."""
    return [table for values, pairs in tables_of(comparison) for table in (values, pairs)]


def left_out_lines(comparison: Comparison) -> list[str]:
    """The models of which rows are left out."""
    return [
        f"{count} more {comparison.row}s of {name} are left out, as another has no answer for them"
        for name, count in comparison.left_out.items()
        if count
    ]


def tables_of(comparison: Comparison) -> list[tuple[Table, Table]]:
    """For each measure the models in their order, and their differences."""
    return [(_values_table(each), _pairs_table(each, comparison)) for each in comparison.rankings]


def _values_table(ranking: Ranking) -> Table:
    measure = ranking.measure
    direction = "" if measure.higher_is_better else "; less is better"
    columns = [
        Column("rank", "rank"), Column("model", "text"),
        Column("value (95 % interval)", unit=measure.unit), Column("n"),
    ]  # fmt: skip
    rows: list[list[Cell]] = [[ranking.rank(name), name, found, str(found.n)] for name, found in ranking.values.items()]
    return Table(columns, rows, title=f"{measure.name}: {measure.meaning}{direction}")


def _pairs_table(ranking: Ranking, comparison: Comparison) -> Table:
    measure, shown = ranking.measure, _near(ranking)
    corrected = f", corrected for {len(ranking.pairs)} pairs" if len(ranking.pairs) > 1 else ""
    counted_pairs = any(each.only_first is not None for each in ranking.pairs)
    columns = [
        Column("pair", "text"), Column("difference (95 % interval)", unit=measure.difference_unit, sign=True),
        *([Column("only one : only other", "text")] if counted_pairs else []), Column("p", "p"), Column("conclusion", "text"),
    ]  # fmt: skip
    rows: list[list[Cell]] = []
    for pair in shown:
        counts: list[Cell] = ["" if pair.only_first is None else f"{pair.only_first} : {pair.only_second}"]
        p: Cell = "" if pair.adjusted is None else pair.adjusted
        end = conclusion(pair, measure, alpha=comparison.alpha, row=comparison.row)
        rows.append([f"{pair.first} − {pair.second}", pair.difference, *(counts if counted_pairs else []), p, end])
    hidden = len(ranking.pairs) - len(shown)
    notes = [f"({amount(hidden, 'pair')} that are not neighbours are not listed)"] if hidden else []
    if ranking.agreement is not None:
        notes.append(f"Kendall's tau with the order by {ranking.clean}: {tau_text(ranking.agreement)}")
    return Table(columns, rows, title=f"differences ({ranking.pairs[0].test}{corrected}):", notes=notes)


def _near(ranking: Ranking) -> Sequence[ModelPair]:
    if len(ranking.pairs) <= PAIRS:
        return ranking.pairs
    order = list(ranking.values)
    return [each for each in ranking.pairs if order.index(each.second) - order.index(each.first) == 1]


def _ranking(paired: Paired, measure: Measure, clean: Measure | None, alpha: float) -> Ranking:
    values = {name: paired.own(name).estimate(measure) for name in paired.names}
    sign = -1 if measure.higher_is_better else 1
    order = sorted(values, key=lambda name: (values[name].value is None, sign * (values[name].value or 0)))
    found = [pair_of(paired, measure, *two) for two in combinations(order, 2)]
    corrected = iter(holm([each.p for each in found if each.p is not None]))
    pairs = tuple(each if each.p is None else replace(each, adjusted=next(corrected)) for each in found)
    apart = [(each.higher, each.lower) for each in pairs if each.significant(alpha)]
    beaten = apart if measure.higher_is_better else [(low, high) for high, low in apart]
    return Ranking(
        measure=measure,
        values={name: values[name] for name in order},
        pairs=pairs,
        ranks=rank_ranges(order, beaten),
        agreement=_with_clean_order(paired, measure, clean),
        clean=clean.name if clean else "",
    )


def _paired_shares(paired: Paired, share: Share, first: str, second: str, level: float) -> ModelPair:
    """On the rows that count for both, where each answer has its counterpart."""
    one, two = (share.with_prefix(paired.prefix(name)) for name in (first, second))
    both = paired.columns[one.whole] & paired.columns[two.whole]
    right_one, right_two = both & paired.columns[one.part], both & paired.columns[two.part]
    drawn = paired.resample({"both": both, "first": right_one, "second": right_two})
    row, group = paired.rows[0].row, paired.rows[0].cluster_of
    none = f"no {row} that counts for both"
    found = estimate_one(drawn, Difference(Share("first", "both", none), Share("second", "both", none)), level=level)
    only_first, only_second = int(np.count_nonzero(right_one & ~right_two)), int(np.count_nonzero(right_two & ~right_one))
    if paired.cluster is not None and paired.several(share):
        # Edits of one source are not independent: exchange a source's answers together.
        test = f"exact sign-flip test on {row}s that count for both, those of one {group} together"
        p = sign_flip(np.bincount(paired.cluster, right_one.astype(float) - right_two.astype(float)).astype(int))
    else:
        test, p = f"McNemar's exact test on {row}s that count for both", mcnemar(only_first, only_second)
    return ModelPair(first, second, found, None if found.value is None else p, None, test, only_first, only_second)


def _with_clean_order(paired: Paired, measure: Measure, clean: Measure | None) -> Estimate | None:
    if clean is None or measure == clean or not paired.rows[0].has(clean):
        return None
    orders = ([paired.of(each, name) for name in paired.names] for each in (clean, measure))
    return order_agreement(paired.drawn, *orders, opposed=not measure.higher_is_better)


def kendall(one: Sequence[float] | Floats, two: Sequence[float] | Floats) -> float:
    """Kendall's tau-b of two score lists; NaN where one of them holds a single value throughout."""
    signs = [(np.sign(one[i] - one[j]), np.sign(two[i] - two[j])) for i, j in combinations(range(len(one)), 2)]
    spread = math.sqrt(sum(first != 0 for first, _ in signs) * sum(second != 0 for _, second in signs))
    return float(sum(first * second for first, second in signs)) / spread if spread else math.nan


def order_agreement(
    drawn: Resamples, one: Sequence[Statistic], two: Sequence[Statistic], *, opposed: bool = False, level: float = LEVEL
) -> Estimate:
    """Tau between two orders of the same models, one statistic per model in each; `opposed` if less is better in just one.

    It is undefined where no two models can be told apart in both of them.
    """
    reasons = [each.reason(drawn.observed) for each in (*one, *two)]
    if len(one) < 2:
        return Estimate(None, None, None, len(one), "an order needs two models")
    if any(reasons):
        return Estimate(None, None, None, len(one), next(filter(None, reasons)))
    sign = -1 if opposed else 1
    values = ([float(each.of(drawn.observed)[0]) for each in side] for side in (one, two))
    tau = sign * kendall(*values)
    if math.isnan(tau):
        return Estimate(None, None, None, len(one), "all models have the same value, so there is no order")
    signs = _significance(drawn, [one, two], 1 - level)  # (2, pairs)
    agreeing = sign * signs[0] * signs[1]
    sure, undecided = int(agreeing.sum()), int(np.count_nonzero(agreeing == 0))
    if undecided == len(agreeing):
        return Estimate(None, None, None, len(one), "no two models can be told apart, so there is no order to compare")
    low, high = (sure - undecided) / len(agreeing), (sure + undecided) / len(agreeing)
    return Estimate(tau, min(low, tau), max(high, tau), len(one))


def rank_ranges(names: Sequence[str], beaten: Iterable[tuple[str, str]]) -> dict[str, tuple[int, int]]:
    """Best and worst rank of each model, from the pairs (better, worse) that could be told apart."""
    best, worst = dict.fromkeys(names, 1), dict.fromkeys(names, len(names))
    for better, worse in beaten:
        best[worse] += 1
        worst[better] -= 1
    return {name: (best[name], worst[name]) for name in names}


def _significance(drawn: Resamples, orders: Sequence[Sequence[Statistic]], alpha: float) -> NDArray[np.int64]:
    """For each two models in each order: 1 or -1 as the first is shown to be higher or lower, 0 if neither is."""
    differences = [[Difference(*pair) for pair in combinations(models, 2)] for models in orders]
    # Only the wrong way round is an error, which is half of a two-sided p-value; the tests are those of all orders.
    enough = 2 * alpha / (len(orders) * len(differences[0]))
    shown = [
        [int(np.sign(each.of(drawn.observed)[0])) if drawn.p_value(each) <= enough else 0 for each in order]
        for order in differences
    ]
    return np.array(shown, dtype=np.int64)


@dataclass(frozen=True)
class BoardTest:
    """One thing that models were put to: the same protocol, data and parts, whatever the model; and one number of it."""

    identity: str
    title: str  # as in "FMR, lab:kl"
    measure: Measure = field(compare=False)


@dataclass(frozen=True)
class Scoreboard:
    """The result of each model in each test that it took. There is no mean over tests, which measure different things."""

    tests: Mapping[BoardTest, Mapping[str, Observations]]
    ranks: Mapping[BoardTest, Mapping[str, tuple[int, int]]]
    notes: tuple[str, ...] = ()

    @property
    def models(self) -> list[str]:
        """The models, in the order of the tests."""
        return list(dict.fromkeys(name for each in self.tests.values() for name in each))

    def table(self) -> Table:
        """A row per model, a column per test; what a model did not take is not run."""
        columns = [Column("model", "text"), *(Column(test.title) for test in self.tests)]
        rows = [[name, *(self._cell(test, name) for test in self.tests)] for name in self.models]
        notes = ["Each value with its 95 % interval and the rank, or ranks, that paired tests within the column leave open."]
        if less := [test.title for test in self.tests if not test.measure.higher_is_better]:
            notes.append(f"Less is better: {'; '.join(less)}.")
        return Table(columns, rows, title="Models by tests", notes=[*notes, *self.notes])

    def headline(self) -> str:
        """Name the model that is first in most of the tests that two models or more took."""
        ranked = [test for test in self.tests if self.ranks.get(test)]
        first = {name: sum(self.ranks[test].get(name, (0, 0))[0] == 1 for test in ranked) for name in self.models}
        most = max(first.values(), default=0)
        if not most:
            return f"{amount(len(self.models), 'model')} in {amount(len(self.tests), 'test')}; no two took the same one."
        best = join_names([name for name, times in first.items() if times == most])
        verb = "is" if sum(times == most for times in first.values()) == 1 else "are"
        return f"{best} {verb} first, or not told apart from the first, in {most} of {amount(len(ranked), 'test')}."

    def _cell(self, test: BoardTest, name: str) -> Cell:
        if name not in self.tests[test]:
            return "not run"
        found = self.tests[test][name].estimate(test.measure)
        ranks = self.ranks.get(test, {})
        return Value(found, test.measure.unit, rank_text(ranks[name]) if name in ranks and found.value is not None else "")


def scoreboard(found: Iterable[tuple[BoardTest, str, Observations]], *, alpha: float = 0.05) -> Scoreboard:
    """Put what each model did into one table, with ranks by paired tests in every test that two models took."""
    tests: dict[BoardTest, dict[str, Observations]] = {}
    for test, name, observed in found:
        tests.setdefault(test, {})[name] = observed
    ranks: dict[BoardTest, Mapping[str, tuple[int, int]]] = {}
    notes = []
    for test, models in tests.items():
        if len(models) > 1:
            try:
                ranks[test] = compare(models, [test.measure], alpha=alpha).rankings[0].ranks
            except UsageError as error:
                notes.append(f"{test.title}: no ranks ({error})")
    return Scoreboard(tests, ranks, tuple(notes))
