"""Models against each other: by hand, against scipy, and where there is nothing to compare."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from counterfoil.core.errors import UsageError
from counterfoil.metrics.comparison import Comparison, lines
from counterfoil.metrics.observations import find_measure
from counterfoil.protocols.fmr.results import MEASURES, fmr_results
from tests.metrics.made import agreement_across, compare, draw_outcomes, outcomes

ALL = [MEASURES[name] for name in ("SA", "PA", "FMR", "FMR_matched", "drop", "drop_matched")]


def compare_all(**contenders: object) -> Comparison:
    return compare(contenders, ALL, resamples=1000)  # type: ignore[arg-type]


def text(found: Comparison) -> str:
    return "\n".join(lines(found))


def test_accuracies_are_compared_image_by_image() -> None:
    one = outcomes([1] * 30 + [0] * 10, [1] * 40)
    two = outcomes([1] * 20 + [0] * 15 + [1] * 5, [1] * 40)
    ranking = compare_all(one=one, two=two).rankings[0]
    pair = ranking.pairs[0]
    assert (pair.first, pair.only_first, pair.only_second) == ("one", 10, 5)
    assert pair.p == pytest.approx(stats.binomtest(5, 15).pvalue)
    assert pair.difference.value == pytest.approx(100 * 5 / 40)
    assert ranking.ranks == {"one": (1, 2), "two": (1, 2)}


def test_made_pictures_are_paired_where_both_are_accepted() -> None:
    one = outcomes([1] * 6, [1, 1, 0, 1, 1, 0], validated=[1, 1, 1, 0, 1, 1])
    two = outcomes([1] * 6, [0, 1, 1, 1, 0, 0], validated=[1, 1, 1, 1, 1, 0])
    pair = compare_all(one=one, two=two).rankings[1].pairs[0]
    assert pair.difference.n == 4
    assert {pair.first: pair.only_first, pair.second: pair.only_second} == {"one": 2, "two": 1}


def test_differences_of_ratios_agree_with_scipys_paired_bootstrap() -> None:
    one, two = draw_outcomes(2000, 0, kept=0.7), draw_outcomes(2000, 1, kept=0.6)

    def fmr(clean, accepted, right, axis):
        return 100 * (right.sum(axis) / accepted.sum(axis)) / clean.mean(axis)

    def difference(a, b, c, d, e, f, axis):
        return fmr(a, b, c, axis) - fmr(d, e, f, axis)

    arrays = [np.asarray(column, float) for each in (one, two)
              for column in (each.clean_correct, each.validated == 1, each.made_correct == 1)]  # fmt: skip
    theirs = stats.bootstrap(arrays, difference, paired=True, n_resamples=4000, method="percentile", rng=np.random.default_rng(1))
    pair = compare({"one": one, "two": two}, [MEASURES["FMR"]]).rankings[0].pairs[0]
    assert pair.difference.value == pytest.approx(difference(*arrays, axis=0))
    wanted = theirs.confidence_interval
    assert (pair.difference.low, pair.difference.high) == (
        pytest.approx(wanted.low, abs=0.6),
        pytest.approx(wanted.high, abs=0.6),
    )
    assert wanted.high - wanted.low > 6
    assert pair.significant(0.05)


def test_pairing_narrows_what_chance_can_explain() -> None:
    """The same images are hard for both: a small difference shows although the intervals of the two overlap."""
    hard = np.arange(400) < 120
    one = outcomes((~hard).astype(int).tolist(), (~hard).astype(int).tolist())
    two = outcomes((~hard).astype(int).tolist(), [int(not each and place % 20 > 0) for place, each in enumerate(hard)])
    ranking = compare_all(one=one, two=two).rankings[1]
    first, second = ranking.values["one"], ranking.values["two"]
    assert first.low < second.high
    assert ranking.pairs[0].significant(0.05)


def test_holm_corrects_over_the_pairs_of_a_measure() -> None:
    found = compare_all(a=draw_outcomes(100, 0), b=draw_outcomes(100, 1), c=draw_outcomes(100, 2))
    for ranking in found.rankings:
        assert len(ranking.pairs) == 3
        smallest = min(ranking.pairs, key=lambda each: each.p)
        assert smallest.adjusted == pytest.approx(min(1, 3 * smallest.p))
        assert all(each.adjusted >= each.p for each in ranking.pairs)


def test_a_drop_ranks_the_smaller_first() -> None:
    found = compare_all(frail=draw_outcomes(400, 0, kept=0.2), firm=draw_outcomes(400, 1, kept=0.9)).rankings[4]
    assert list(found.values) == ["firm", "frail"]
    assert found.ranks == {"firm": (1, 1), "frail": (2, 2)}
    assert "firm is lower" in text(
        compare({"frail": draw_outcomes(400, 0, kept=0.2), "firm": draw_outcomes(400, 1, kept=0.9)}, [MEASURES["drop"]])
    )


def test_identical_models_cannot_be_significant() -> None:
    one = draw_outcomes(60, 0)
    found = compare_all(one=one, two=one)
    for ranking in found.rankings:
        pair = ranking.pairs[0]
        assert pair.difference.value == 0
        assert pair.difference.low < 0 < pair.difference.high
        assert pair.adjusted > 0.9
        assert set(ranking.ranks.values()) == {(1, 2)}
    assert "the same answer on every image" in text(found)
    assert found.rankings[2].agreement.note == "all models have the same value, so there is no order"


@pytest.mark.parametrize(
    ("one", "two", "said"),
    [
        (outcomes([0, 0], [0, 1]), outcomes([1, 0], [1, 0]), "undefined: SA is 0"),
        (outcomes([1, 1], [0, 0], validated=[0, 0]), outcomes([1, 0], [1, 0]), "undefined: the oracle accepted no image"),
        (outcomes([1, 1], [0, 0], validated=[0, 1]), outcomes([1, 0], [1, 0], validated=[1, 0]), "no image that counts for both"),
        (outcomes([1], [1]), outcomes([0], [0]), "undefined: SA is 0"),
    ],
)
def test_where_there_is_nothing_to_compare_it_says_why(one: object, two: object, said: str) -> None:
    found = text(compare_all(one=one, two=two))
    assert said in found
    assert "nothing to compare" in found
    assert "nan" not in found.lower()


def test_one_image_is_compared_and_cannot_show_anything() -> None:
    found = compare_all(one=outcomes([1], [1]), two=outcomes([1], [0]))
    assert not any(pair.significant(0.05) for ranking in found.rankings for pair in ranking.pairs)
    assert "nan" not in text(found).lower()


def test_images_that_only_one_has_are_left_out_and_counted() -> None:
    one, two = draw_outcomes(50, 0, keys=range(50)), draw_outcomes(50, 1, keys=range(20, 70))
    found = compare_all(one=one, two=two)
    assert (found.images, found.left_out) == (30, {"one": 20, "two": 20})
    assert found.rankings[0].values["one"].n == 30
    assert "20 more images of one are left out" in text(found)
    with pytest.raises(UsageError, match="no source image in common"):
        compare_all(one=one, two=draw_outcomes(10, 1, keys=range(100, 110)))
    with pytest.raises(UsageError, match="two: nothing was made that counts"):
        compare_all(one=one, two=draw_outcomes(0, 1, keys=range(0)))
    with pytest.raises(UsageError, match="needs two models"):
        compare_all(one=one)


def test_many_pairs_are_shortened_to_neighbours() -> None:
    found = text(compare({f"m{place}": draw_outcomes(40, place) for place in range(7)}, [MEASURES["SA"]], resamples=200))
    assert found.count(" − ") == 6
    assert "15 pairs that are not neighbours" in found


def test_orders_under_two_settings_agree_where_the_models_are_far_apart() -> None:
    one = {"a": draw_outcomes(300, 0, kept=0.9), "b": draw_outcomes(300, 1, kept=0.5), "c": draw_outcomes(300, 2, kept=0.1)}
    two = {"a": draw_outcomes(300, 3, kept=0.8), "b": draw_outcomes(300, 4, kept=0.4), "c": draw_outcomes(300, 5, kept=0.1)}
    found = agreement_across({"vqgan": one, "ddpm": two}, MEASURES["FMR"], resamples=500)
    assert found["vqgan", "ddpm"].value == found["vqgan", "ddpm"].low == 1
    with pytest.raises(UsageError, match="c: not tested under every setting"):
        agreement_across({"vqgan": one, "ddpm": {"a": two["a"], "b": two["b"]}}, MEASURES["FMR"])


def test_measures_are_found_in_any_case_and_near_misses_named() -> None:
    assert find_measure("fmr_MATCHED", MEASURES).name == "FMR_matched"
    with pytest.raises(UsageError, match=r"no number called 'dorp'; did you mean 'drop'\?"):
        find_measure("dorp", MEASURES)


def test_a_models_value_is_that_of_its_own_run_in_any_company_and_order() -> None:
    """FMR_matched of one run was 4.63–18.60 in its results, 4.5–18.6 in `compare A B` and 4.5–18.7 in `compare B A`."""
    one, two, three = draw_outcomes(80, 0), draw_outcomes(80, 1), draw_outcomes(80, 2)
    own = fmr_results(one)["FMR_matched"]
    for company in ({"one": one, "two": two}, {"two": two, "one": one}, {"three": three, "two": two, "one": one}):
        found = compare(company, [MEASURES["FMR_matched"]], resamples=300).rankings[0].values["one"]
        assert found.to_dict() == own


def test_tied_models_have_no_tau() -> None:
    """A tau of −1.00 (−1.00 to 1.00) for two models that cannot be told apart says nothing."""
    found = compare({"one": draw_outcomes(60, 0), "two": draw_outcomes(60, 1)}, [MEASURES["PA"]], resamples=500)
    assert found.rankings[0].agreement.value is None
    assert "undefined: no two models can be told apart" in text(found)
