from __future__ import annotations

import pytest
import torch

from counterfoil.parts.generators import draws

SEEDS = torch.tensor([0, 1, 2, 7, 2**31, 2**40 + 3, 2**62, 2**63 - 1])


def test_a_row_depends_on_its_seed_alone() -> None:
    together = draws.normal(SEEDS, "test", 3, 9, 9)
    for row, seed in enumerate(SEEDS):
        assert torch.equal(draws.normal(seed[None], "test", 3, 9, 9)[0], together[row])


def test_the_global_generator_is_left_alone() -> None:
    before = torch.get_rng_state()
    draws.plasma(SEEDS, "test", size=(16, 16))
    assert torch.equal(torch.get_rng_state(), before)


def test_seeds_and_purposes_give_unrelated_patterns() -> None:
    rows = torch.cat([draws.uniform(SEEDS, purpose, 4096) for purpose in ("one", "two")])
    correlation = torch.corrcoef(rows) - torch.eye(len(rows))
    assert correlation.abs().max() < 5 / 4096**0.5


def test_uniform_and_normal_have_the_moments_of_their_laws() -> None:
    flat, bell = (draw(torch.arange(16), "moments", 128, 128) for draw in (draws.uniform, draws.normal))
    assert flat.min() > 0
    assert flat.max() < 1
    assert flat.mean() == pytest.approx(1 / 2, abs=0.003)
    assert flat.var() == pytest.approx(1 / 12, rel=0.01)
    assert bell.mean() == pytest.approx(0, abs=0.01)
    assert bell.std() == pytest.approx(1, rel=0.01)
    assert (bell**4).mean() == pytest.approx(3, rel=0.03)


def test_neighbouring_seeds_fall_on_both_sides_evenly() -> None:
    side = draws.sign(torch.arange(10_000), "side").flatten()
    assert side.mean().abs() < 0.04
    assert (side[1:] * side[:-1]).mean().abs() < 0.04


def test_plasma_fills_the_range_of_every_row() -> None:
    clouds = draws.plasma(SEEDS, "clouds", size=(24, 40))
    assert clouds.shape == (len(SEEDS), 1, 24, 40)
    assert torch.equal(clouds.amin((1, 2, 3)), torch.zeros(len(SEEDS)))
    assert torch.equal(clouds.amax((1, 2, 3)), torch.ones(len(SEEDS)))


def test_no_word_of_the_hash_becomes_zero_or_one() -> None:
    made = draws.fractions(torch.tensor([0, 1, 255, 256, 2**31, 2**32 - 256, 2**32 - 1]))
    assert made.min() > 0
    assert made.max() < 1
    assert torch.erfinv(made * 2 - 1).isfinite().all()


def test_every_bit_of_a_seed_counts() -> None:
    together = draws.uniform(torch.tensor([5 + 2**bit for bit in range(62) if bit not in (0, 2)]), "bits", 16)
    assert len({tuple(row.tolist()) for row in together}) == 60


def test_no_two_of_a_million_seeds_share_their_numbers() -> None:
    """With keys of 32 bits more than a hundred pairs would."""
    seeds = torch.arange(2**20) * 2_654_435_761
    weights = torch.tensor([1.0, 2.0**-7, 2.0**-15, 2.0**-23], dtype=torch.float64)
    assert len((draws.uniform(seeds, "pairs", 4).double() @ weights).unique()) == len(seeds)
