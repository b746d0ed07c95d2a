"""Estimates against computations that share no code with them: loops, scipy's bootstrap, exact binomial bounds."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from counterfoil.core.records import Estimate
from counterfoil.metrics.estimate import Difference, Mean, Ratio, Resamples, Share, estimate, estimate_one

RATIO = Ratio(Share("made_right", "accepted", "none accepted"), Share("clean_right", "all", "none"), "all wrong")


def columns(count: int, seed: int = 0) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(seed)
    clean, accepted = draw.random(count) < 0.8, draw.random(count) < 0.6
    made = clean & (draw.random(count) < 0.5)
    return {
        "all": np.ones(count),
        "clean_right": clean,
        "accepted": accepted,
        "made_right": accepted & made,
        "steps": accepted * draw.integers(0, 11, count),
    }


def test_a_ratios_interval_agrees_with_scipys_paired_bootstrap() -> None:
    data = columns(120)
    found = estimate(data, {"ratio": RATIO}, resamples=8000)["ratio"]

    def ratio(made_right, accepted, clean_right, axis):
        return 100 * (made_right.sum(axis) / accepted.sum(axis)) / clean_right.mean(axis)

    arrays = tuple(np.asarray(data[name], float) for name in ("made_right", "accepted", "clean_right"))
    theirs = stats.bootstrap(
        arrays, ratio, paired=True, vectorized=True, n_resamples=8000, method="percentile", rng=np.random.default_rng(1)
    ).confidence_interval
    assert found.value == pytest.approx(ratio(*arrays, axis=0))
    assert found.n == data["accepted"].sum()
    assert (found.low, found.high) == pytest.approx((theirs.low, theirs.high), abs=1.0)
    assert found.high - found.low > 15  # so that a point of tolerance says something


def test_rows_of_one_image_are_drawn_together() -> None:
    draw = random.Random(0)
    groups = [(number, draw.random() < 0.5) for number in range(60) for _ in range(draw.randrange(1, 6))]
    clusters = np.array([number for number, _ in groups])
    answer = {number: draw.random() < 0.5 for number in range(60)}
    right = np.array([answer[number] for number, _ in groups])  # rows of an image agree: five of them say no more than one
    found = estimate({"right": right, "all": np.ones(len(groups))}, {"share": Share("right", "all")}, clusters=clusters)["share"]

    shares = []
    for _ in range(3000):
        drawn = [draw.randrange(60) for _ in range(60)]
        rows = [right[clusters == number] for number in drawn]
        shares.append(100 * sum(each.sum() for each in rows) / sum(map(len, rows)))
    shares.sort()
    assert (found.low, found.high) == pytest.approx((shares[75], shares[2925]), abs=2.5)
    naive = estimate({"right": right, "all": np.ones(len(groups))}, {"share": Share("right", "all")})["share"]
    assert found.high - found.low > 1.4 * (naive.high - naive.low)
    assert found.n == len(groups)


def test_a_means_interval_agrees_with_scipy() -> None:
    data = columns(300)
    found = estimate(data, {"steps": Mean("steps", "accepted")}, resamples=8000)["steps"]
    kept = data["steps"][data["accepted"]]
    half = stats.t.ppf(0.975, len(kept) - 1) * kept.std(ddof=1) / np.sqrt(len(kept))
    assert found.value == pytest.approx(kept.mean())
    assert (found.low, found.high) == pytest.approx((kept.mean() - half, kept.mean() + half), abs=0.1)
    assert found.n == len(kept)


def test_a_ratios_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    draw = np.random.default_rng(0)
    hits = 0
    for trial in range(400):
        clean, accepted = draw.random(150) < 0.8, draw.random(150) < 0.6
        data = {"all": np.ones(150), "clean_right": clean, "accepted": accepted}
        data["made_right"] = accepted & clean & (draw.random(150) < 0.5)
        found = estimate(data, {"ratio": RATIO}, seed=trial, resamples=400)["ratio"]
        hits += found.low <= 50 <= found.high  # PA = 0.8 × 0.5, SA = 0.8
    assert 0.91 <= hits / 400 <= 0.98


@pytest.mark.parametrize("count", [1, 2, 20, 500])
@pytest.mark.parametrize("right", [0, 1])
def test_a_share_without_variation_gets_exact_bounds(count: int, right: int) -> None:
    data = {"right": np.full(count, right), "all": np.ones(count)}
    found = estimate(data, {"share": Share("right", "all")})["share"]
    exact = stats.binomtest(right * count, count).proportion_ci(0.95, method="exact")
    assert found.value == 100 * right
    assert (found.low, found.high) == pytest.approx((100 * exact.low, 100 * exact.high))


@pytest.mark.parametrize(("right", "count"), [(3, 10), (17, 20), (49, 50), (120, 400)])
def test_a_shares_interval_is_that_of_a_beta_with_one_more_of_each(right: int, count: int) -> None:
    data = {"right": np.arange(count) < right, "all": np.ones(count)}
    found = estimate(data, {"share": Share("right", "all")}, resamples=40_000)["share"]
    wanted = stats.beta(right + 1, count - right + 1).ppf([0.025, 0.975])
    assert (found.low / 100, found.high / 100) == (pytest.approx(wanted[0], abs=0.004), pytest.approx(wanted[1], abs=0.004))


def test_a_ratio_of_shares_without_variation_still_has_a_width() -> None:
    """Twenty of twenty and none of twenty are no proof of certainty: it reaches as far as the share above does by itself."""
    data = {"all": np.ones(20), "clean_right": np.ones(20), "accepted": np.ones(20), "made_right": np.zeros(20)}
    found = estimate(data, {"ratio": RATIO}, resamples=40_000)["ratio"]
    assert (found.value, found.low) == (0, 0)
    assert found.high == pytest.approx(100 * stats.binomtest(0, 20).proportion_ci(0.95, method="exact").high)


def test_a_difference_of_paired_shares_agrees_with_the_paired_t_interval() -> None:
    draw = np.random.default_rng(3)
    one, two = draw.random(800) < 0.7, draw.random(800) < 0.6
    data = {"all": np.ones(800), "one": one, "two": two}
    found = estimate(data, {"difference": Difference(Share("one", "all"), Share("two", "all"))}, resamples=20_000)["difference"]
    wanted = stats.ttest_rel(one.astype(float), two.astype(float)).confidence_interval()
    assert found.value == pytest.approx(100 * (one.mean() - two.mean()))
    assert (found.low, found.high) == (pytest.approx(100 * wanted.low, abs=0.2), pytest.approx(100 * wanted.high, abs=0.2))
    assert found.n == 800


def test_a_prefix_moves_a_statistic_to_other_columns() -> None:
    data = columns(60)
    both = {**{f"A {name}": values for name, values in data.items()}, **{f"B {name}": values for name, values in data.items()}}
    for each in (RATIO, Mean("steps", "accepted"), Difference(RATIO.above, RATIO.below)):
        wanted = estimate(data, {"": each})[""].value
        assert estimate(both, {"": each.with_prefix("B ")})[""].value == wanted
        assert estimate(both, {"": Difference(each.with_prefix("A "), each.with_prefix("B "))})[""].value == 0


def test_a_mean_without_variation_says_so() -> None:
    found = estimate({"steps": np.full(5, 10), "all": np.ones(5)}, {"steps": Mean("steps", "all")})["steps"]
    assert (found.value, found.low, found.high) == (10, 10, 10)
    assert "no width" in found.note


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"accepted": [0, 0], "made_right": [0, 0]}, "none accepted"),
        ({"clean_right": [0, 0]}, "all wrong"),
        ({"all": [0, 0], "clean_right": [0, 0]}, "none"),
    ],
)
def test_what_is_undefined_has_no_value_and_a_reason(changes: dict, note: str) -> None:
    data = {"all": [1, 1], "clean_right": [1, 0], "accepted": [1, 1], "made_right": [1, 0], **changes}
    found = estimate({name: np.array(values) for name, values in data.items()}, {"ratio": RATIO})["ratio"]
    assert found == Estimate(None, None, None, sum(data["accepted"]), note)


def test_no_rows_at_all() -> None:
    empty = {name: np.zeros(0) for name in ("all", "clean_right", "accepted", "made_right")}
    assert estimate(empty, {"ratio": RATIO, "mean": Mean("accepted", "all")}) == {
        "ratio": Estimate(None, None, None, 0, "none accepted"),
        "mean": Estimate(None, None, None, 0, "no images"),
    }


def test_the_same_seed_gives_the_same_interval_and_another_seed_another() -> None:
    data = columns(80)
    one, same, other = (estimate(data, {"ratio": RATIO}, seed=seed)["ratio"] for seed in (1, 1, 2))
    assert one == same
    assert one.value == other.value
    assert (one.low, one.high) != (other.low, other.high)


def test_resampling_in_pieces_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    data = columns(50)
    whole = estimate(data, {"ratio": RATIO}, resamples=300)
    monkeypatch.setattr("counterfoil.metrics.estimate._WEIGHTS", 350)
    assert estimate(data, {"ratio": RATIO}, resamples=300) == whole


ROWS = st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans(), st.integers(0, 10)), max_size=30)


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(rows=ROWS, seed=st.integers(0, 9))
def test_intervals_hold_their_value_and_stay_in_range(rows: list, seed: int) -> None:
    clean, accepted, made, steps = (np.array(column, float) for column in (zip(*rows, strict=True) if rows else [[]] * 4))
    data = {
        "all": np.ones(len(rows)), "clean_right": clean, "accepted": accepted,
        "made_right": accepted * made, "steps": accepted * steps,
    }  # fmt: skip
    found = estimate(
        data,
        {"SA": RATIO.below, "PA": RATIO.above, "FMR": RATIO, "steps": Mean("steps", "accepted")},
        seed=seed,
        resamples=100,
    )
    for name, each in found.items():
        if each.value is None:
            assert (each.low, each.high) == (None, None)
            assert each.note
            continue
        if each.low is None:  # a ratio of few images, or a mean of one
            begins = {"FMR": "too few images for an interval", "steps": "no interval from one source image"}[name]
            assert each.high is None and each.note.startswith(begins)
            continue
        assert 0 <= each.low <= each.value <= each.high < float("inf")
        assert each.high <= {"SA": 100, "PA": 100, "steps": 10}.get(name, float("inf"))
    defined = {name for name, each in found.items() if each.value is not None}
    assert ("SA" in defined) == bool(rows)
    assert ("FMR" in defined) == bool(accepted.any() and clean.any())


@pytest.mark.parametrize("rows", [1, 12])
def test_a_mean_over_one_cluster_has_a_value_and_no_interval(rows: int) -> None:
    values = np.arange(rows, dtype=float)
    data = {"all": np.ones(rows), "sum": values, "some": np.ones(rows)}
    mean = Mean("sum", "all")
    statistics = {"mean": mean, "lead": Difference(mean, Mean("some", "all")), "share": Share("some", "all")}
    found = estimate(data, statistics, clusters=np.zeros(rows))
    for name in ("mean", "lead"):
        assert (found[name].low, found[name].high, found[name].n) == (None, None, rows)
        assert found[name].note == "no interval from one source image or prompt alone"
    assert found["mean"].value == values.mean()
    assert (found["share"].low, found["share"].high) == (pytest.approx(2.5), 100)  # a share knows what it could have been
    two = estimate({name: np.tile(each, 2) for name, each in data.items()}, {"mean": mean}, clusters=np.repeat([0, 1], rows))
    assert two["mean"].low == two["mean"].high == values.mean() and "alike" in two["mean"].note


def test_a_difference_of_means_has_no_interval_where_one_side_rests_on_one_cluster() -> None:
    data = {"all": np.ones(8), "sum": np.arange(8.0), "few": [1, 0, 0, 0, 0, 0, 0, 0], "few_sum": [4, 0, 0, 0, 0, 0, 0, 0]}
    found = estimate(data, {"": Difference(Mean("sum", "all"), Mean("few_sum", "few"))})[""]
    assert (found.value, found.low, found.high) == (-0.5, None, None)


def test_an_estimate_survives_the_way_through_json() -> None:
    for each in (Estimate(1.0, 0.5, 2.0, 3), Estimate(None, None, None, 0, "why")):
        assert Estimate.from_dict(each.to_dict()) == each
    assert Estimate(1.0, 0.5, 2.0, 3).to_dict() == {"value": 1.0, "low": 0.5, "high": 2.0, "n": 3}


def test_a_share_of_all_or_none_has_the_same_bounds_whatever_the_seed() -> None:
    """VR 97 of 97 was 96.1 in one run and 96.3 in another: the exact bound is 96.27 in both."""
    data = {"right": np.ones(97), "all": np.ones(97)}
    found = {estimate(data, {"VR": Share("right", "all")}, seed=seed)["VR"].low for seed in range(20)}
    assert list(found) == [pytest.approx(100 * 0.025 ** (1 / 97))]


@pytest.mark.parametrize("right", [0, 40])
@pytest.mark.parametrize("before", [40, 30])
def test_a_ratio_reaches_at_least_as_far_as_its_upper_share_over_its_lower_one(right: int, before: int) -> None:
    """PA 0 of 40 reaches 8.8: FMR over the same images cannot be surer."""
    data = {"all": np.ones(40), "clean_right": np.arange(40) < before, "made_right": np.arange(40) < right}
    ratio = Ratio(Share("made_right", "all"), Share("clean_right", "all"))
    for seed in range(5):
        found = estimate(data, {"PA": ratio.above, "FMR": ratio}, seed=seed)
        share = 100 * before / 40
        assert found["FMR"].low <= 100 * found["PA"].low / share + 1e-9
        assert found["FMR"].high >= 100 * found["PA"].high / share - 1e-9


def test_an_estimate_reads_as_a_sentence() -> None:
    assert str(Estimate(9.93, 4.96, 19.0, 71)) == "9.9 (95 % interval 5.0 to 19.0, n 71)"
    assert str(Estimate(-1.0, None, None, 1, "one image")) == "−1.0 (one image, n 1)"
    assert str(Estimate(None, None, None, 0, "no images")) == "undefined (n 0): no images"


DIFFERENCE = Difference(Share("one", "all"), Share("two", "all"))


def pair(count: int, seed: int, *, one: float = 0.7, two: float = 0.7) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(seed)
    return {"all": np.ones(count), "one": draw.random(count) < one, "two": draw.random(count) < two}


def test_equal_rows_are_weighted_together_without_a_trace() -> None:
    """Rows that a further column tells apart get weights of their own; the distribution is the same."""
    data = pair(300, 0)
    together = Resamples(data, resamples=20_000).values(DIFFERENCE)
    apart = Resamples({**data, "number": np.arange(300)}, resamples=20_000).values(DIFFERENCE)
    assert stats.ks_2samp(together, apart).pvalue > 0.01
    assert not np.array_equal(together, apart)


def test_their_spread_is_that_of_the_bootstrap() -> None:
    draw = np.random.default_rng(0)
    values = draw.exponential(size=200)
    seen = Resamples({"total": values, "all": np.ones(200)}, resamples=20_000).values(Mean("total", "all"))
    assert seen.mean() == pytest.approx(values.mean(), abs=0.01)
    assert seen.std() == pytest.approx(values.std() / np.sqrt(201), rel=0.03)


def test_the_order_of_rows_changes_nothing() -> None:
    data = pair(100, 1)
    shuffled = np.random.default_rng(0).permutation(100)
    one = Resamples(data, seed=3)
    two = Resamples({name: values[shuffled] for name, values in data.items()}, seed=3)
    assert one.interval(DIFFERENCE, 0.05) == two.interval(DIFFERENCE, 0.05)


@pytest.mark.parametrize("seed", range(8))
def test_a_p_value_is_the_smallest_alpha_that_leaves_zero_out(seed: int) -> None:
    drawn = Resamples(pair(150, seed, two=0.6), seed=seed, resamples=20_000)
    p = drawn.p_value(DIFFERENCE)
    for alpha, excluded in ((min(1.2 * p + 0.004, 1), True), (0.8 * p - 0.002, False)):
        if 0.002 < alpha < 1:
            low, high = drawn.interval(DIFFERENCE, alpha)
            assert (low > 0 or high < 0) == excluded


@pytest.mark.parametrize("seed", range(4))
def test_a_p_value_agrees_with_the_paired_t_test(seed: int) -> None:
    data = pair(1000, seed, two=0.66)
    wanted = stats.ttest_rel(data["one"].astype(float), data["two"].astype(float)).pvalue
    assert Resamples(data, resamples=40_000).p_value(DIFFERENCE) == pytest.approx(wanted, rel=0.1, abs=0.004)


def test_a_p_value_is_never_zero_nor_above_one() -> None:
    apart = {"all": np.ones(50), "one": np.ones(50), "two": np.zeros(50)}
    assert 0 < Resamples(apart).p_value(DIFFERENCE) < 0.005
    same = {"all": np.ones(50), "one": np.ones(50), "two": np.ones(50)}
    assert 0.9 < Resamples(same).p_value(DIFFERENCE) <= 1


def test_an_interval_does_not_depend_on_what_else_is_asked() -> None:
    drawn = Resamples(pair(80, 0))
    alone = estimate_one(Resamples(pair(80, 0)), Share("one", "all"))
    estimate_one(drawn, DIFFERENCE)
    assert estimate_one(drawn, Share("one", "all")) == alone


def test_a_few_large_clusters_widen_the_interval() -> None:
    """Forty source images with one variant each and two with forty: the two decide, and two are few."""
    count = np.array([1] * 40 + [40] * 2)
    draw = np.random.default_rng(0)
    one = np.array([draw.binomial(each, 0.7) for each in count])
    two = np.array([draw.binomial(each, 0.7) for each in count])
    uneven = estimate_one(Resamples({"all": count, "one": one, "two": two}), DIFFERENCE)
    rows = {"all": np.ones(120), "one": np.arange(120) < one.sum(), "two": np.arange(120) < two.sum()}
    even = estimate_one(Resamples(rows), DIFFERENCE)
    assert uneven.value == pytest.approx(even.value)
    assert uneven.high - uneven.low > 1.5 * (even.high - even.low)


@pytest.mark.parametrize("lost", [1, 2, 5])
def test_pictures_of_one_image_do_not_make_an_interval_wider_than_one_picture_each(lost: int) -> None:
    """One source image of forty that lost one of its six variants is nearly all of their spread, but not of the interval's."""

    def drop(pictures: int, losses: int) -> float:
        whole = np.full(40, pictures)
        found = estimate_one(Resamples({"all": whole, "one": whole, "two": whole - (np.arange(40) < losses)}), DIFFERENCE)
        return found.high - found.low

    assert drop(6, lost) < 1.1 * drop(1, 0)
    assert drop(6, lost) > 0.9 * drop(6, 0)
