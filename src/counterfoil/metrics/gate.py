"""Pass or fail a run: bars that its numbers must clear, and a baseline that it must not fall behind.

A bar counts as cleared only if the images show it: for a minimum, the lower bound at confidence 1 − alpha must reach the
bar; for a maximum, the upper bound must not exceed it. With `point` the value alone decides. Against a baseline a measure
passes if the loss is shown to be smaller than a margin (non-inferiority); few images then fail a run, and the answer says how
likely an equal model is to pass. Without a margin only a loss that a paired test shows fails, corrected for the number of
measures, and the answer says which loss would have been found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal
from xml.etree import ElementTree

from scipy.special import ndtr, ndtri

from counterfoil.core.errors import UsageError
from counterfoil.core.records import LEVEL, Estimate
from counterfoil.metrics.comparison import ModelPair, Paired, pair_of
from counterfoil.metrics.estimate import estimate_one, holm
from counterfoil.metrics.observations import Measure, Observations, find_measure
from counterfoil.metrics.tables import amount, estimate_text, minus, p_is

Sense = Literal["min", "max"]

MARGIN = 5.0
"""Points that a run may lose against a baseline, unless another margin is asked for."""

_OURS, _THEIRS = "this run", "the baseline"
_POWER = 0.8  # probability of finding the loss that the gate reports


@dataclass(frozen=True)
class Bar:
    """A bound that a number must reach (`min`) or not exceed (`max`), over all images or those of one class or factor."""

    sense: Sense
    measure: Measure
    bound: float
    group: str = ""

    @property
    def name(self) -> str:
        """The number it is about."""
        return f"{self.measure.name}.{self.group}" if self.group else self.measure.name

    def __str__(self) -> str:
        return f"{self.name} at {'least' if self.sense == 'min' else 'most'} {self.bound:g}{self.measure.unit}"


@dataclass(frozen=True)
class Check:
    """One thing that was asked, and the answer."""

    asked: str
    passed: bool
    answer: str
    found: Estimate  # the number, or its difference from the baseline's

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"asked": self.asked, "passed": self.passed, "answer": self.answer, **self.found.to_dict()}


def parse_bar(text: str, sense: Sense, known: Mapping[str, Measure]) -> Bar:
    """`fmr=60`, or `fmr.dog=40` for the images of one class; `known` are the numbers that there are."""
    name, equals, bound = text.partition("=")
    title, _, group = name.strip().partition(".")
    found = find_measure(title, known)
    try:
        bar = Bar(sense, found, float(bound), group)
    except ValueError:
        given = bound if equals else text
        raise UsageError(f"--{sense} {text}: {given!r} is not a number; write NAME=NUMBER, as in --{sense} fmr=60") from None
    if sense == "min" and found.unit == " %" and 0 < bar.bound < 1:
        meant = f"--min {name}={100 * bar.bound:g}"
        raise UsageError(f"--min {text}: that is less than one per cent; numbers are per cent, as in {meant}")
    return bar


def check_bars(run: Observations, bars: Sequence[Bar], *, alpha: float = 0.05, point: bool = False) -> list[Check]:
    """Check that a run clears each of the bars."""
    return [_check(_group(run, bar), bar, alpha=alpha, point=point) for bar in bars]


def check_against(
    run: Observations,
    baseline: Observations,
    about: Sequence[Bar | Measure],
    *,
    alpha: float = 0.05,
    margin: float | None = MARGIN,
    seed: int = 0,
) -> list[Check]:
    """Check that a run has not fallen behind a baseline, in what each bar is `about` or in a measure over all images.

    With a margin of None, what fails is a loss that is shown, and what cannot be told apart passes.
    """
    level = 1 - alpha if margin is None else 1 - 2 * alpha
    measures, pairs = [], []
    for each in about:
        bar = each if isinstance(each, Bar) else Bar("min", each, 0.0)
        paired = Paired({_OURS: _group(run, bar), _THEIRS: _group(baseline, bar)}, seed=seed)
        measures.append(replace(bar.measure, name=bar.name))
        pairs.append(pair_of(paired, measures[-1], _OURS, _THEIRS, level=level))
    if margin is not None:  # all must pass, so no correction
        return [_close(pair, each, margin, alpha) for pair, each in zip(pairs, measures, strict=True)]
    corrected = iter(holm([pair.p for pair in pairs if pair.p is not None]))
    pairs = [pair if pair.p is None else replace(pair, adjusted=next(corrected)) for pair in pairs]
    tests = sum(pair.p is not None for pair in pairs)
    return [_not_worse(pair, each, alpha, tests) for pair, each in zip(pairs, measures, strict=True)]


def junit(checks: Sequence[Check], *, subject: str, notes: Sequence[str] = ()) -> bytes:
    """An XML file with a test case a check, and what is to be known of all of them."""
    failures = sum(not each.passed for each in checks)
    root = ElementTree.Element("testsuites")
    counts = {"tests": str(len(checks)), "failures": str(failures), "errors": "0", "skipped": "0"}
    suite = ElementTree.SubElement(root, "testsuite", {"name": f"counterfoil gate {subject}", **counts})
    for check in checks:
        case = ElementTree.SubElement(suite, "testcase", classname="counterfoil.gate", name=check.asked)
        if not check.passed:
            ElementTree.SubElement(case, "failure", message=check.answer, type="gate").text = f"{check.asked}: {check.answer}"
        else:
            ElementTree.SubElement(case, "system-out").text = check.answer
    if notes:
        ElementTree.SubElement(suite, "system-out").text = "\n".join(notes)
    ElementTree.indent(root)
    document: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


def _group(run: Observations, bar: Bar) -> Observations:
    """The rows the bar is about."""
    return run.group(bar.group, of=bar.name) if bar.group else run


def _check(rows: Observations, bar: Bar, *, alpha: float, point: bool) -> Check:
    drawn = rows.resamples()
    found = estimate_one(drawn, bar.measure.statistic, level=1 - 2 * alpha)
    if found.value is None:
        return Check(str(bar), False, f"undefined: {found.note}", found)
    unit, minimum = bar.measure.unit, bar.sense == "min"
    clears = found.value >= bar.bound if minimum else found.value <= bar.bound
    value = f"{_with_sign(found.value)}{unit} ({_number(found, bar.measure.statistic.rests_on(drawn.clusters), rows.cluster_of)})"
    if point:
        return Check(str(bar), clears, f"{value}, by its value alone", found)
    if found.low is None or found.high is None:
        return Check(str(bar), False, f"{value}, which shows nothing; {found.note}", found)
    bound = found.low if minimum else found.high
    shown = bound >= bar.bound if minimum else bound <= bar.bound
    sure = f"at {'least' if minimum else 'most'} {_with_sign(bound)}{unit} with {100 * (1 - alpha):g} % confidence"
    if clears and not shown:
        return Check(str(bar), False, f"{value} clears it, but it is only sure to be {sure}; more images may show it", found)
    return Check(str(bar), shown, f"{value}, {sure}", found)


def _number(found: Estimate, clusters: int, noun: str) -> str:
    """The number of rows a value averages over and, where they are fewer, of how many source images or prompts."""
    return f"n {found.n}" if clusters >= found.n else f"n {found.n}, of {amount(clusters, noun)}"


def _with_sign(value: float) -> str:
    """With the minus sign that intervals have."""
    return minus(f"{value:.1f}")


def _difference(pair: ModelPair, measure: Measure) -> str:
    return f"{estimate_text(pair.difference, sign=True, unit=measure.difference_unit)}, n {pair.difference.n}"


def _not_worse(pair: ModelPair, measure: Measure, alpha: float, tests: int) -> Check:
    asked = f"{measure.name} no worse than the baseline"
    if pair.adjusted is None:
        return Check(asked, False, f"undefined: {pair.difference.note}", pair.difference)
    corrected = f", corrected for {tests} measures (Holm)" if tests > 1 else ""
    difference = f"{_difference(pair, measure)}, {p_is(pair.adjusted)}{corrected}"
    if not pair.significant(alpha):
        return Check(
            asked, True, f"cannot be told apart from it: {difference}{_would_find(pair, alpha / tests)}", pair.difference
        )
    better = (pair.higher == _OURS) == measure.higher_is_better
    return Check(asked, better, f"{'better' if better else 'worse'}: {difference}", pair.difference)


def _would_find(pair: ModelPair, alpha: float) -> str:
    """The loss that these images would show most of the time, from the interval's width."""
    if not (error := pair.difference.width / (2 * ndtri((1 + LEVEL) / 2))):
        return ""
    loss = error * (ndtri(1 - alpha / 2) + ndtri(_POWER))
    return f"; a loss of {loss:.1f} points would be found {100 * _POWER:g} times in 100"


def _close(pair: ModelPair, measure: Measure, margin: float, alpha: float) -> Check:
    asked = f"{measure.name} at most {margin:g}{measure.difference_unit} worse than the baseline"
    found, difference = pair.difference, _difference(pair, measure)
    if found.low is None or found.high is None:
        return Check(asked, False, difference, found)
    loss = -found.low if measure.higher_is_better else found.high
    sure = f"at most {max(loss, 0):.1f} worse with {100 * (1 - alpha):g} % confidence"
    passed = loss <= margin
    better = (found.value or 0) if measure.higher_is_better else -(found.value or 0)
    if not passed and better >= -margin and found.width:  # the images are too few to tell
        error = found.width / (2 * ndtri(1 - alpha))
        power = 100 * float(ndtr(margin / error - ndtri(1 - alpha)))
        sure += f"; on so many images an equal model passes {power:.0f} times in 100"
    return Check(asked, passed, f"{difference}, {sure}", found)
