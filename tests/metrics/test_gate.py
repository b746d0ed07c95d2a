"""Runs that pass and runs that fail, and why."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest

from counterfoil.core.errors import UsageError
from counterfoil.core.records import Estimate
from counterfoil.metrics.estimate import estimate
from counterfoil.metrics.gate import Bar, Check, junit
from counterfoil.protocols.fmr.results import MEASURES, columns_of
from tests.metrics.made import check_against, check_bars, draw_outcomes, outcomes, parse_bar

RUN = draw_outcomes(200, 0, kept=0.75, label=[number % 3 for number in range(200)])
SA, FMR, DROP = (MEASURES[name] for name in ("SA", "FMR", "drop"))


def test_a_bar_is_cleared_by_the_interval_not_by_the_value() -> None:
    found = estimate(columns_of(RUN), {"FMR": FMR.statistic}, level=0.9)["FMR"]  # one-sided 95 %
    sure, open_, missed = (check_bars(RUN, [Bar("min", FMR, bound)])[0] for bound in (found.low - 0.1, found.low + 0.1, 99))
    assert (sure.passed, open_.passed, missed.passed) == (True, False, False)
    assert "more images may show it" in open_.answer
    assert "more images" not in missed.answer
    assert check_bars(RUN, [Bar("min", FMR, found.low + 0.1)], point=True)[0].passed
    assert check_bars(RUN, [Bar("max", FMR, found.high + 0.1)])[0].passed
    assert not check_bars(RUN, [Bar("max", FMR, found.high - 0.1)])[0].passed


def test_a_stricter_alpha_asks_for_more() -> None:
    found = estimate(columns_of(RUN), {"FMR": FMR.statistic}, level=0.9)["FMR"]
    bars = [Bar("min", FMR, found.low - 0.5)]
    assert check_bars(RUN, bars, alpha=0.05)[0].passed
    assert not check_bars(RUN, bars, alpha=0.001)[0].passed


def test_a_bar_may_be_about_one_class() -> None:
    bee = RUN.take(RUN.label == 1)
    found = check_bars(RUN, [parse_bar("pa.bee=10", "min")])[0]
    value = estimate(columns_of(bee), {"PA": MEASURES["PA"].statistic})["PA"]
    assert found.asked == "PA.bee at least 10 %"
    assert f"{value.value:.1f} % (n {value.n})" in found.answer
    with pytest.raises(UsageError, match=r"no images of a class 'beee'; did you mean 'bee'\?"):
        check_bars(RUN, [parse_bar("pa.beee=10", "min")])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("fmrr=60", "did you mean 'FMR'"),
        ("fmr", "write NAME=NUMBER"),
        ("fmr=much", "'much' is not a number"),
        ("=3", "there are SA"),
    ],
)
def test_a_bar_that_cannot_be_read_is_wrong_use(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse_bar(text, "min")


def test_what_is_undefined_does_not_pass() -> None:
    found = check_bars(outcomes([0, 0], [1, 0]), [Bar("min", FMR, 0)])[0]
    assert (found.asked, found.passed) == ("FMR at least 0 %", False)
    assert found.answer == "undefined: SA is 0: there is no accuracy to keep a share of"
    nothing = outcomes([1, 1], [0, 0], validated=[0, 0])
    assert not check_bars(nothing, [Bar("max", DROP, 100)])[0].passed
    assert not check_against(nothing, nothing, [FMR], margin=None)[0].passed
    assert not check_against(nothing, nothing, [FMR])[0].passed


def test_without_a_margin_a_loss_that_shows_fails_and_the_rest_says_what_would_have_been_found() -> None:
    worse, alike, better = draw_outcomes(200, 1, kept=0.3), draw_outcomes(200, 2, kept=0.74), draw_outcomes(200, 3, kept=0.99)
    assert [each.passed for each in check_against(worse, RUN, [SA, FMR, DROP], margin=None)] == [True, False, False]
    assert all(each.passed for each in check_against(alike, RUN, [SA, FMR, DROP], margin=None))
    answer = check_against(alike, RUN, [FMR], margin=None)[0].answer
    assert "cannot be told apart" in answer and "points would be found 80 times in 100" in answer
    found = check_against(better, RUN, [FMR, DROP], margin=None)
    assert [(each.passed, each.answer.split(":")[0]) for each in found] == [(True, "better"), (True, "better")]
    assert "corrected for 2 measures (Holm)" in found[0].answer


def test_against_a_baseline_it_says_on_how_many_images() -> None:
    fewer = RUN.take(RUN.keys < 150)
    assert ", n 150, p " in check_against(RUN, fewer, [SA], margin=None)[0].answer
    assert ", n 150, at most " in check_against(RUN, fewer, [SA], margin=5)[0].answer


def test_unless_told_otherwise_a_baseline_asks_for_proof_that_little_was_lost() -> None:
    same = check_against(RUN, RUN, [FMR])[0]
    assert same.passed and same.asked == "FMR at most 5 points worse than the baseline"
    alike = draw_outcomes(200, 2, kept=0.74)
    unproven = check_against(alike, RUN, [FMR], margin=3)[0]
    assert not unproven.passed, "few images prove nothing, and nothing is what passed a regression"
    assert "an equal model passes" in unproven.answer
    assert check_against(alike, RUN, [FMR], margin=60)[0].passed


def test_the_power_that_a_gate_states_is_about_the_one_it_has() -> None:
    passed, stated = 0, []
    for seed in range(60):
        one, two = draw_outcomes(300, 2 * seed, kept=0.9), draw_outcomes(300, 2 * seed + 1, kept=0.9)
        found = check_against(one, two, [SA], margin=8)[0]
        passed += found.passed
        if "an equal model" in found.answer:
            stated.append(int(found.answer.split("passes ")[1].split(" ")[0]))
    assert abs(100 * passed / 60 - np.mean(stated)) < 18


def test_junit_has_a_case_a_check() -> None:
    found = Estimate(71, 64, 78, 100)
    checks = [Check("FMR at least 60 %", True, "71.0 %", found), Check("drop at most 10", False, 'a "drop" < 12 & more', found)]
    suite = ElementTree.fromstring(junit(checks, subject="my run")).find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures"), suite.get("name")) == ("2", "1", "counterfoil gate my run")
    good, bad = suite.findall("testcase")
    assert good.find("failure") is None
    assert bad.find("failure").get("message") == 'a "drop" < 12 & more'
