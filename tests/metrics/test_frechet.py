"""The Fréchet distance against independent computations."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg

from counterfoil.metrics.frechet import Moments, frechet


def taken_in(rows):
    moments = Moments()
    for row in rows:
        moments.add(row)
    return moments


def test_moments_are_those_of_numpy():
    rows = np.random.default_rng(0).normal(size=(50, 6)) + 3
    moments = taken_in(rows)
    assert np.allclose(moments.mean(), rows.mean(0))
    assert np.allclose(moments.covariance(), np.cov(rows.T))


def test_distance_is_that_of_the_matrix_square_root():
    generator = np.random.default_rng(1)
    one, two = generator.normal(size=(200, 5)), generator.normal(size=(150, 5)) @ generator.normal(size=(5, 5)) + 1
    root = scipy.linalg.sqrtm(np.cov(one.T) @ np.cov(two.T)).real
    expected = ((one.mean(0) - two.mean(0)) ** 2).sum() + np.trace(np.cov(one.T) + np.cov(two.T) - 2 * root)
    value, note = frechet(taken_in(one), taken_in(two))
    assert value == pytest.approx(expected, rel=1e-6)
    assert note == ""


def test_the_same_set_is_no_distance_away():
    rows = np.random.default_rng(2).normal(size=(40, 4))
    assert frechet(taken_in(rows), taken_in(rows))[0] == pytest.approx(0, abs=1e-8)


def test_too_few_pictures_are_said_to_be_so():
    rows = np.random.default_rng(3).normal(size=(10, 20))
    assert frechet(taken_in(rows), taken_in(rows[:1])) == (None, "too few pictures: 10 and 1")
    assert frechet(taken_in(rows), taken_in(rows))[1] == "10 pictures for 20 features: biased upwards"
