"""The search against its control, image by image."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from counterfoil.metrics.significance import mcnemar
from counterfoil.protocols.fmr.results import against_random
from tests.metrics.made import outcomes


def test_it_counts_the_images_that_both_arms_kept() -> None:
    guided = [1] * 6 + [0] * 14  # of 20, the last of which the control's oracle turned away
    random = np.array([1] * 18 + [0, 0], dtype=np.int8)
    kept = np.array([1] * 19 + [0], dtype=np.int8)
    both = replace(outcomes([1] * 20, guided), random_validated=kept, random_made_correct=random)
    found = against_random(both)
    assert found["n"] == 19
    assert found["value"] == pytest.approx(100 * (18 - 6) / 19)
    assert found["low"] > 0
    assert found["p"] == mcnemar(12, 0) < 0.001


def test_paired_answers_show_what_two_intervals_do_not() -> None:
    """Ten of a hundred images lost and none won: a doubt for two intervals, none for the pairs."""
    right = [1] * 60 + [0] * 40
    lost = [0] * 10 + [1] * 50 + [0] * 40
    both = replace(
        outcomes(right, lost), random_validated=np.ones(100, dtype=np.int8), random_made_correct=np.array(right, dtype=np.int8)
    )
    found = against_random(both)
    assert found["low"] > 0 and found["p"] < 0.01


def test_without_a_control_there_is_a_reason_and_no_p_value() -> None:
    found = against_random(outcomes([1, 0], [0, 0]))
    assert (found["value"], found["p"]) == (None, None)
    assert "accepts in both arms" in found["note"]
