"""A comparison in words: who can be told apart from whom, and who cannot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from counterfoil.core.records import Estimate
from counterfoil.metrics.comparison import Comparison, Pair, Ranking
from counterfoil.metrics.measures import Measure
from counterfoil.metrics.p_values import p_text

PAIRS = 15
"""Pairs listed at most; of more, those of neighbours in the order."""


def lines(comparison: Comparison) -> Iterator[str]:
    """The whole comparison, line by line."""
    yield f"{len(comparison.names)} models, paired by {comparison.extent}"
    for name, count in comparison.left_out.items():
        if count:
            yield f"  {count} more {comparison.row}s of {name} are left out, as another has no answer for them"
    for ranking in comparison.rankings:
        yield ""
        yield from _ranking(ranking, comparison)


def interval_text(found: Estimate, *, sign: bool = False, unit: str = "") -> str:
    """A value with its interval, or why the one or the other is missing or says nothing."""
    if found.value is None:
        return f"undefined: {found.note}"
    form = "+.1f" if sign else ".1f"
    value = f"{found.value:{form}}{unit}".replace("-", "−")
    if found.low is None or found.high is None or found.low == found.high:
        return f"{value} ({found.note})"
    return f"{value} ({found.low:{form}} to {found.high:{form}})".replace("-", "−")


def tau_text(found: Estimate) -> str:
    """Kendall's tau with its interval, or why there is none."""
    if found.value is None:
        return f"undefined: {found.note}"
    return f"{found.value:.2f} ({found.low:.2f} to {found.high:.2f})".replace("-", "−")


def pair_verdict(pair: Pair, measure: Measure, *, alpha: float, row: str = "image") -> str:
    """What the images show of two models, in plain words."""
    if pair.adjusted is None:
        return "nothing to compare"
    if pair.told_apart(alpha):
        return f"{pair.higher} is higher" if measure.higher_is_better else f"{pair.lower} is lower"
    if pair.only_first == pair.only_second == 0:
        return "cannot tell apart: the same answer on every " + row
    return "cannot tell apart"


def _ranking(ranking: Ranking, comparison: Comparison) -> Iterator[str]:
    measure = ranking.measure
    direction = "" if measure.higher_is_better else "; less is better"
    yield f"{measure.name}: {measure.meaning}{direction}"
    rows = [("rank", "model", "value (95 % interval)", "n")]
    for name, found in ranking.values.items():
        best, worst = ranking.ranks[name]
        rank = str(best) if best == worst else f"{best}–{worst}"
        rows.append((rank, name, interval_text(found, unit=measure.unit), str(found.n)))
    yield from _aligned(rows)
    shown, hidden = _shown(ranking)
    corrected = f", corrected for {len(ranking.pairs)} pairs" if len(ranking.pairs) > 1 else ""
    counted = any(each.only_first is not None for each in ranking.pairs)
    yield f"  differences ({ranking.pairs[0].test}{corrected}):"
    head = ("pair", "difference (95 % interval)", "only one : only other" if counted else "", "p", "verdict")
    yield from _aligned([head, *(_pair(each, measure, comparison) for each in shown)])
    if hidden:
        yield f"  ({hidden} pairs that are not neighbours are not listed)"
    if ranking.agreement is not None:
        yield f"  Kendall's tau with the order by {ranking.clean}: {tau_text(ranking.agreement)}"


def _shown(ranking: Ranking) -> tuple[Sequence[Pair], int]:
    if len(ranking.pairs) <= PAIRS:
        return ranking.pairs, 0
    order = list(ranking.values)
    near = [each for each in ranking.pairs if order.index(each.second) - order.index(each.first) == 1]
    return near, len(ranking.pairs) - len(near)


def _pair(pair: Pair, measure: Measure, comparison: Comparison) -> tuple[str, ...]:
    counts = "" if pair.only_first is None else f"{pair.only_first} : {pair.only_second}"
    p = "" if pair.adjusted is None else p_text(pair.adjusted)
    difference = interval_text(pair.difference, sign=True, unit=measure.difference_unit)
    verdict = pair_verdict(pair, measure, alpha=comparison.alpha, row=comparison.row)
    return (f"{pair.first} − {pair.second}", difference, counts, p, verdict)


def _aligned(rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    rows = list(rows)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = (f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True) if width)
        yield ("  " + "  ".join(cells)).rstrip()
