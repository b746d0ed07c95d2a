"""Runs that came to nothing, through every number there is: an answer or a reason, never a NaN, never a traceback."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pytest

from counterfoil.metrics.comparison import lines
from counterfoil.protocols.fmr.outcomes import Outcomes
from counterfoil.protocols.fmr.results import MEASURES, against_random, audit, fmr_results, observations_of
from counterfoil.protocols.fmr.transfer import EVERY, transfer
from counterfoil.studies.models import mine, pool
from counterfoil.studies.oracles import by_class_weights, rejection_bias
from tests.metrics.made import agreement_across, check_against, check_bars, compare, outcomes, parse_bar

CASES: dict[str, Outcomes] = {
    "SA of zero": outcomes([0] * 6, [0] * 6, label=[0, 0, 1, 1, 2, 2]),
    "no accepted image": outcomes([1] * 6, [0] * 6, validated=[0] * 6, label=[0, 0, 1, 1, 2, 2]),
    "one class": outcomes([1, 1, 0, 1, 1, 0], [1, 0, 0, 0, 1, 0]),
    "one image": outcomes([1], [0]),
    "all right throughout": outcomes([1] * 6, [1] * 6, label=[0, 0, 1, 1, 2, 2]),
    "no image": outcomes([], []),
}
WITH_IMAGES = [name for name in CASES if name != "no image"]


def numbers(content: Any) -> Iterator[dict[str, Any]]:
    """Every estimate in some results, however deep."""
    if isinstance(content, dict):
        if {"value", "low", "high", "n"} <= set(content):
            yield content
        for each in content.values():
            yield from numbers(each)
    elif isinstance(content, list | tuple):
        for each in content:
            yield from numbers(each)


def check_estimates(content: Any, *, some: bool = True) -> list[dict[str, Any]]:
    """The estimates, each of which has a value within its interval or a reason why the one or the other is missing."""
    json.dumps(content, allow_nan=False, default=str)
    found = list(numbers(content))
    assert found or not some
    for each in found:
        if each["value"] is None or each["low"] is None:
            assert each["note"] and each["low"] is each["high"] is None
        else:
            assert all(math.isfinite(each[name]) for name in ("value", "low", "high"))
            assert each["low"] <= each["value"] <= each["high"]
    return found


@pytest.mark.parametrize("name", CASES)
def test_a_runs_own_numbers(name: str) -> None:
    case = CASES[name]
    seen, fmr, stopped = observations_of(case), MEASURES["FMR"], EVERY["stopped"]
    check_estimates([fmr_results(case), audit(case), against_random(case)])
    further = (seen.estimate(stopped), seen.estimate(EVERY["FMR_unstopped"]), seen.estimate(EVERY["harm"]))
    check_estimates([asdict(each) for each in (by_class_weights(seen, fmr), rejection_bias(seen, stopped, fmr), *further)])


def test_reasons_name_what_is_missing() -> None:
    notes = {name: fmr_results(case)["FMR"].get("note", "") for name, case in CASES.items()}
    assert notes["SA of zero"].startswith("SA is 0")
    assert notes["no accepted image"] == "the oracle accepted no image"
    assert notes["no image"]
    assert notes["one class"] == "too few images for an interval, 4 right ones to divide by where 5 are needed"
    assert notes["one image"] == "too few images for an interval, 1 where 5 are needed"
    assert notes["all right throughout"] == ""
    alone = observations_of(CASES["one class"])
    assert rejection_bias(alone, EVERY["stopped"], MEASURES["FMR"]).note == "one class has nothing to be compared with"
    one = fmr_results(CASES["one image"])["SA"]
    assert (one["value"], one["low"]) == (100, pytest.approx(2.5))  # a single success shows next to nothing


@pytest.mark.parametrize("name", WITH_IMAGES)
def test_identical_models_cannot_be_told_apart_and_say_so(name: str) -> None:
    found = compare({"one": CASES[name], "two": CASES[name]}, list(MEASURES.values()), resamples=200)
    for ranking in found.rankings:
        check_estimates([asdict(each) for each in ranking.values.values()])
        for pair in ranking.pairs:
            check_estimates(asdict(pair))
            assert pair.difference.value in (0, None)
            assert pair.p is None or pair.p > 0.5
            assert not pair.significant(0.05)
        if ranking.agreement is not None:
            check_estimates(asdict(ranking.agreement))
    text = "\n".join(lines(found))
    assert "nan" not in text.lower()
    assert "cannot be told apart" in text or "cannot tell" in text or "undefined" in text


@pytest.mark.parametrize("name", WITH_IMAGES)
def test_models_against_others(name: str) -> None:
    case = CASES[name]
    seen = {"one": dict.fromkeys(("one", "two", "three"), observations_of(case))}
    check_estimates([asdict(each) for row in transfer(seen).values() for cell in row.values() for each in cell.values()])
    check_estimates([asdict(each) for each in pool(seen, EVERY["harm"]).values()])
    check_estimates([asdict(each) for row in mine(seen, most=2) for each in row.values()])
    orders = {"first": {"one": case, "two": case}, "second": {"one": case, "two": case}}
    check_estimates([asdict(each) for each in agreement_across(orders, MEASURES["FMR"], resamples=200).values()])


@pytest.mark.parametrize("name", WITH_IMAGES)
def test_a_gate_answers_and_does_not_pass_what_is_undefined_or_not_shown(name: str) -> None:
    case = CASES[name]
    bars = [parse_bar("fmr=0", "min"), parse_bar("drop=100", "max")]
    for check, measure in zip(check_bars(case, bars), ("FMR", "drop"), strict=True):
        found = fmr_results(case)["FMR" if measure == "FMR" else "PA"]
        assert check.passed is (found["low"] is not None)
        assert ("undefined" in check.answer) is (found["value"] is None)
        assert found["note"] in check.answer if found["low"] is None else "confidence" in check.answer
    against = check_against(case, case, [MEASURES["FMR"]], margin=None)[0]
    assert against.passed is not ("undefined" in against.answer)
