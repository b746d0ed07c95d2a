"""Agreement between people, held against the worked example of the literature and a slow independent computation."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest
from scipy import stats

from counterfoil.web.tally import agreement

# Krippendorff's reliability data of four observers and twelve units (Computing Krippendorff's Alpha-Reliability, 2011, C).
OBSERVERS = (
    (1, 2, 3, 3, 2, 1, 4, 1, 2, None, None, None),
    (1, 2, 3, 3, 2, 2, 4, 1, 2, 5, None, 3),
    (None, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, None),
    (1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, None),
)
PUBLISHED = 0.743


def units() -> dict[int, list[int]]:
    return {at: [answer for answer in answers if answer is not None] for at, answers in enumerate(zip(*OBSERVERS, strict=True))}


def slow_alpha(votes: dict[int, list[int]]) -> float:
    """The coincidence matrix, pair by pair."""
    coincidences: Counter[tuple[int, int]] = Counter()
    for answers in votes.values():
        for one, other in itertools.permutations(range(len(answers)), 2):
            coincidences[answers[one], answers[other]] += 1 / (len(answers) - 1)
    totals: Counter[int] = Counter()
    for (one, _), weight in coincidences.items():
        totals[one] += weight
    n = sum(totals.values())
    apart = sum(weight for (one, other), weight in coincidences.items() if one != other)
    expected = sum(totals[one] * totals[other] for one, other in itertools.permutations(totals, 2)) / (n - 1)
    return 1 - apart / expected


def test_alpha_is_the_published_one() -> None:
    found = agreement(units())
    assert found.alpha.value == pytest.approx(PUBLISHED, abs=5e-4)
    assert found.alpha.n == 11  # one unit has a single vote
    assert found.alpha.low < found.alpha.value < found.alpha.high


def test_alpha_and_raw_agree_with_a_slow_computation() -> None:
    drawn = random.Random(3)
    votes = {unit: [drawn.choice("yn" if unit % 3 else "y") for _ in range(drawn.randint(1, 5))] for unit in range(60)}
    pairs = [pair for answers in votes.values() for pair in itertools.combinations(answers, 2)]
    # Images with more votes have more pairs, each counted once.
    found = agreement(votes)
    assert found.alpha.value == pytest.approx(slow_alpha(votes))  # type: ignore[arg-type]
    assert found.raw.value == pytest.approx(100 * sum(one == other for one, other in pairs) / len(pairs))


def test_chance_is_zero_and_consent_is_one() -> None:
    drawn = random.Random(0)
    chance = {unit: [drawn.randint(0, 1) for _ in range(3)] for unit in range(2000)}
    assert abs(agreement(chance).alpha.value or 1) < 0.04
    consent = agreement({unit: [unit % 2] * 3 for unit in range(20)})
    assert consent.alpha.value == 1 and consent.raw.value == 100


def test_consent_on_a_few_images_is_not_certain() -> None:
    raw = agreement({unit: ["yes", "yes"] for unit in range(5)}).raw
    assert (raw.value, raw.high) == (100, 100)
    assert raw.low == pytest.approx(100 * stats.binomtest(5, 5).proportion_ci(method="exact").low)


def test_nothing_to_compare_is_said() -> None:
    assert agreement({1: ["yes"], 2: []}).alpha.note == "no image has two votes"
    same = agreement({1: ["yes", "yes"], 2: ["yes", "yes"]})
    assert same.alpha.value is None and "same answer" in same.alpha.note
    assert same.raw.value == 100


def test_one_image_has_no_interval() -> None:
    found = agreement({"a": ["yes", "yes", "no"]})
    for each in (found.alpha, found.raw):
        assert each.value is not None and (each.low, each.high, each.n) == (None, None, 1)
        assert each.note == "no interval from one image alone"
