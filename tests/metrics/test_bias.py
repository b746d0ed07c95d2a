"""Class-level biases: groups, names, and a test that keeps a source's edits together."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from counterfoil.protocols.lance.bias import _entry, edit_name, group_rows, permutation_test, split_captions
from counterfoil.protocols.lance.results import Pairs


def test_the_test_is_the_share_of_ways_to_deal_out_each_sources_values():
    generator = np.random.default_rng(0)
    values, sources = generator.random(12), np.repeat(np.arange(4), 3)
    inside = np.array([1, 0, 0, 0, 1, 0, 1, 1, 0, 0, 0, 0], dtype=bool)
    ways = []
    for first, second, third in product(range(3), range(3), range(3)):  # the third source gives two of three
        ways.append(values[0:3][first] + values[3:6][second] + values[6:9].sum() - values[6:9][third])
    exact = np.mean(np.array(ways) >= values[inside].sum() - 1e-9)
    assert permutation_test(values, inside, sources) == pytest.approx(exact, abs=0.01)


def test_a_group_that_moves_more_in_every_source_is_no_chance():
    sources = np.repeat(np.arange(8), 5)
    inside = np.tile([True, False, False, False, False], 8)
    values = np.where(inside, 50.0, 1.0) + np.random.default_rng(1).random(40)
    assert permutation_test(values, inside, sources) < 1e-4
    assert permutation_test(values, ~inside, sources) > 0.99


def test_sources_that_are_hard_by_themselves_prove_nothing():
    sources = np.repeat(np.arange(6), 4)
    values = np.where(sources < 3, 90.0, 1.0)  # whatever the edit
    inside = np.zeros(24, dtype=bool)
    inside[[0, 4, 8]] = True
    assert permutation_test(values, inside, sources) == 1.0
    assert permutation_test(values, np.ones(24, dtype=bool), sources) == 1.0


def test_the_test_keeps_its_level():
    generator = np.random.default_rng(3)
    sources, inside = np.repeat(np.arange(10), 5), np.tile([True, False, False, False, False], 10)
    low = [permutation_test(generator.random(50), inside, sources, draws=2000) <= 0.05 for _ in range(200)]
    assert 0.01 <= np.mean(low) <= 0.10


def test_edits_that_move_captions_alike_are_one_group():
    generator = np.random.default_rng(0)
    middles = np.eye(4)[np.repeat(np.arange(4), 8)]
    found = sorted(sorted(rows.tolist()) for rows in group_rows(middles + 0.01 * generator.random((32, 4)), clusters=10))
    assert found == [list(range(start, start + 8)) for start in (0, 8, 16, 24)] or len(found) == 5  # 32 // 6 groups at most
    assert sum(map(len, found)) == 32


def test_equal_directions_are_never_parted():
    assert [rows.tolist() for rows in group_rows(np.ones((5, 3)), clusters=10)] == [[0, 1, 2, 3, 4]]


@pytest.mark.parametrize(
    ("caption", "prompt", "name"),
    [
        ("a boot on a beach", "a boot on a road", "beach → road"),
        ("a boot on a beach", "a boot on a beach in fog", "nothing → in fog"),
        ("a red boot", "a boot", "red → nothing"),
        ("a a a", "a a", "a → nothing"),
        ("one", "two", "one → two"),
    ],
)
def test_an_edit_is_named_by_the_words_that_changed(caption, prompt, name):
    assert edit_name(caption, prompt) == name
    before, removed, added, after = split_captions(caption, prompt)
    assert " ".join(filter(None, (before, removed, after))) == caption
    assert " ".join(filter(None, (before, added, after))) == prompt


def test_a_p_value_can_be_as_small_as_many_groups_need():
    """With 100,000 draws it could not fall below 1e-5, so that among 5,000 groups nothing could be significant."""
    sources = np.repeat(np.arange(12), 5)
    inside = np.tile([True, False, False, False, False], 12)
    values = np.where(inside, 50.0, 1.0) + np.random.default_rng(1).random(60)
    p = permutation_test(values, inside, sources, draws=2000)
    exact = (1 / 5) ** 12
    assert 0.999 * exact <= p < 1e-7


def test_the_bound_of_a_small_p_value_is_never_below_the_exact_one():
    generator = np.random.default_rng(5)
    for _ in range(20):
        values, sources = generator.random(9), np.repeat(np.arange(3), 3)
        inside = np.zeros(9, dtype=bool)
        inside[[int(values[:3].argmax()), 3 + int(values[3:6].argmax()), 6 + int(values[6:].argmax())]] = True
        assert permutation_test(values, inside, sources, draws=1) >= (1 / 3) ** 3 - 1e-12


def test_a_groups_name_factor_and_examples_are_of_one_kind():
    """Its tag was the majority's factor, its name that of the nearest edit, its examples the most sensitive of any."""
    rows = 12
    factor = np.array(["adjective"] * 8 + ["background"] * 4)
    prompts = np.array([f"a boot {each} {at}" for at, each in enumerate(factor)])
    said = np.ones(rows, dtype=np.int8)
    found = Pairs(
        model="m", oracle="o", classes=("boot",), image=np.arange(rows), ids=np.array([f"{at}" for at in range(rows)]),
        label=np.zeros(rows, dtype=int), factor=factor, caption=np.array(["a boot"] * rows), prompt=prompts, value=prompts,
        accepted=said, clean_correct=said, reconstruction_correct=said, made_correct=said,
        clean_truth=np.ones(rows), made_truth=np.where(factor == "background", 0.1, 0.9),
    )  # fmt: skip
    directions = np.where(factor == "background", 0.0, 1e-3)[:, None] + np.zeros((rows, 2))  # those in the middle: background
    entry = _entry(found, np.arange(rows), np.arange(rows), directions, seed=0, at=0)
    assert entry["factor"] == "adjective" and "adjective" in entry["name"] and entry["of_factor"] == 8
    assert all(factor[int(each)] == "adjective" for each in entry["examples"])
    assert entry["sensitivity"]["low"] <= entry["sensitivity"]["value"] <= entry["sensitivity"]["high"]
