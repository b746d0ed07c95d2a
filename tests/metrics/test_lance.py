"""LANCE's numbers against sums done by hand, and against what clustering must do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from counterfoil.core.records import Estimate
from counterfoil.metrics.observations import NO, YES
from counterfoil.metrics.tables import text_of
from counterfoil.protocols.lance.page import tables
from counterfoil.protocols.lance.results import MEANINGS, Pairs, by_factor, drop_p_value, largest_drop, per_class


def pairs(image, factor, clean, made, *, before=None, after=None, label=None):
    rows = len(image)
    texts = np.array([f"{index}" for index in range(rows)])
    said = lambda values: np.array(values, dtype=np.int8)  # noqa: E731
    return Pairs(
        model="m", oracle="o", classes=("ant", "bee"), image=np.array(image), ids=texts,
        label=np.array(label or [0] * rows), factor=np.array(factor), caption=texts, prompt=texts, value=texts,
        accepted=said([YES] * rows), clean_correct=said(clean), reconstruction_correct=said(clean), made_correct=said(made),
        clean_truth=np.array(before or [1.0] * rows), made_truth=np.array(after or [0.5] * rows),
    )  # fmt: skip


def test_drop_and_sensitivity_are_means_over_pairs():
    found = by_factor(
        pairs(
            [0, 0, 1, 2], ["background", "background", "background", "domain"], [YES, YES, NO, YES], [NO, YES, NO, YES],
            before=[0.9, 0.9, 0.2, 0.8], after=[0.1, 0.8, 0.4, 0.8],
        )
    )  # fmt: skip
    background = found["background"]
    assert background["accuracy_source"]["value"] == pytest.approx(100 * 2 / 3)
    assert background["accuracy_edited"]["value"] == pytest.approx(100 / 3)
    assert background["drop"]["value"] == pytest.approx(100 / 3)
    assert background["sensitivity"]["value"] == pytest.approx(100 * (0.8 + 0.1 + 0.2) / 3)
    assert (background["edits"], background["sources"]) == (3, 2)
    assert found["domain"]["drop"]["value"] == 0


def test_edits_of_one_source_count_as_one_in_the_test():
    alone = pairs(range(8), ["domain"] * 8, [YES] * 8, [NO] * 8)
    together = pairs([0] * 8, ["domain"] * 8, [YES] * 8, [NO] * 8)
    assert drop_p_value(alone) == pytest.approx(2 / 2**8)
    assert drop_p_value(together) == 1.0


def test_edits_of_one_source_widen_the_interval():
    generator = np.random.default_rng(0)
    made = np.repeat(generator.integers(0, 2, 20), 5).tolist()  # all edits of a source fare alike
    apart = by_factor(pairs(range(100), ["domain"] * 100, [YES] * 100, made))["domain"]["drop"]
    together = by_factor(pairs(np.repeat(np.arange(20), 5), ["domain"] * 100, [YES] * 100, made))["domain"]["drop"]
    assert together["value"] == apart["value"]
    assert together["high"] - together["low"] > 1.5 * (apart["high"] - apart["low"])


def test_the_sensitivity_of_one_source_has_no_interval_and_the_table_says_so():
    factors = by_factor(pairs([0, 0], ["domain"] * 2, [YES] * 2, [NO, YES], after=[0.2, 0.6]))
    found = factors["domain"]["sensitivity"]
    assert found["value"] == pytest.approx(60) and found["low"] is found["high"] is None
    plain = Estimate(50.0, 40.0, 60.0, 9).to_dict()
    said = text_of(tables({**dict.fromkeys(MEANINGS, plain), "sensitivity": found, "factors": factors}))
    row = next(line for line in said.splitlines() if line.startswith("sensitivity"))
    assert "60.0 points (no interval from one source image or prompt alone)" in row


def test_p_values_are_corrected_for_the_number_of_factors():
    rows = [*range(8), *range(8), *range(8)]
    factor = ["background"] * 8 + ["domain"] * 8 + ["weather"] * 8
    found = by_factor(pairs(rows, factor, [YES] * 24, [NO] * 8 + [YES] * 16))
    assert found["background"]["p_adjusted"] == pytest.approx(3 * found["background"]["p"])
    assert found["domain"]["p_adjusted"] == 1.0


def test_the_largest_drop_is_named_with_its_lead():
    rows = [*range(30), *range(30)]
    factor = ["background"] * 30 + ["domain"] * 30
    found = largest_drop(pairs(rows, factor, [YES] * 60, [NO] * 20 + [YES] * 10 + [NO] * 2 + [YES] * 28))
    assert (found["factor"], found["next"]) == ("background", "domain")
    assert found["lead"]["value"] == pytest.approx(60)
    assert found["p"] < 0.001
    same = largest_drop(pairs(rows, factor, [YES] * 60, ([NO] * 3 + [YES] * 27) * 2))
    assert same["p"] > 0.1
    factors = by_factor(pairs(rows, factor, [YES] * 60, [NO] * 60))
    plain = dict.fromkeys(MEANINGS, Estimate(50.0, 40.0, 60.0, 9).to_dict())
    assert "largest drop: background, 60.0 points" in text_of(tables({**plain, "factors": factors, "largest": found}))
    alike = text_of(tables({**plain, "factors": factors, "largest": same}))
    assert f"{same['factor']}, as large as that of {same['next']}" in alike
    none = largest_drop(pairs(rows, factor, [YES] * 60, [YES] * 60))
    assert none is None  # every drop is 0: no factor is the largest
    assert "no factor costs the model accuracy" in text_of(tables({**plain, "factors": factors, "largest": none}))


def test_of_two_equal_factors_chance_rarely_makes_one_lead():
    """The leader is chosen by the same edits that show its lead, so either of the two may turn out to be it."""
    rows, factor, surprising = [*range(40), *range(40)], ["background"] * 40 + ["domain"] * 40, 0
    for seed in range(400):
        made = np.where(np.random.default_rng(seed).random(80) < 0.6, YES, NO)
        surprising += largest_drop(pairs(rows, factor, [YES] * 80, made), seed=seed)["p"] <= 0.1
    assert surprising <= 400 * 0.1 + 3 * np.sqrt(400 * 0.09)


def test_no_pairs_no_factors():
    empty = pairs([], [], [], [])
    assert by_factor(empty) == {}
    assert largest_drop(empty) is None


def test_two_classes_of_one_name_are_two_classes():
    """A crane that lifts and a crane that flies: the one took the other's place."""
    found = pairs([0, 1, 2, 3], ["domain"] * 4, [YES] * 4, [NO, NO, YES, YES], label=[0, 0, 1, 1])
    twins = per_class(replace(found, classes=("crane", "crane")))
    assert {name: entry["edits"] for name, entry in twins.items()} == {"crane (0)": 2, "crane (1)": 2}
    assert [entry["drop"]["value"] for entry in twins.values()] == [100, 0]
