"""The Fréchet distance against independent computations."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg

from counterfoil.protocols.lance.realism import frechet


def test_distance_is_that_of_the_matrix_square_root():
    generator = np.random.default_rng(1)
    one, two = generator.normal(size=(200, 5)), generator.normal(size=(150, 5)) @ generator.normal(size=(5, 5)) + 1
    root = scipy.linalg.sqrtm(np.cov(one.T) @ np.cov(two.T)).real
    expected = ((one.mean(0) - two.mean(0)) ** 2).sum() + np.trace(np.cov(one.T) + np.cov(two.T) - 2 * root)
    value, note = frechet(one, two)
    assert value == pytest.approx(expected, rel=1e-6)
    assert note == ""


def test_the_same_set_is_no_distance_away():
    rows = np.random.default_rng(2).normal(size=(40, 4))
    assert frechet(rows, rows)[0] == pytest.approx(0, abs=1e-8)


def test_too_few_images_are_said_to_be_so():
    rows = np.random.default_rng(3).normal(size=(10, 20))
    assert frechet(rows, rows[:1]) == (None, "too few images: 10 and 1")
    assert frechet(rows, rows)[1] == "10 images for 20 features: biased upwards"


def test_the_bias_is_told_of_well_above_as_many_images_as_features():
    rows = np.random.default_rng(4).normal(size=(300, 20))
    value, note = frechet(rows[:150], rows[150:])
    assert value > 0 and note == "150 images for 20 features: biased upwards"  # two halves of one population
    rows = np.random.default_rng(4).normal(size=(1200, 20))
    assert frechet(rows[:600], rows[600:])[1] == ""
