"""The counter-based numbers: one hash on any device, and what is made of it."""

from __future__ import annotations

import torch

from counterfoil_lab.drawing.canvas import between, bits, bits_in_torch, lattice, line, smooth, uniform

SEEDS = torch.tensor([0, 1, -1, 2**31, 2**40 + 5, -(2**62), 2**63 - 1])


def test_a_cpus_hash_is_that_of_other_devices() -> None:
    for purpose, count in (("one", 1), ("many", 33)):
        assert torch.equal(bits(SEEDS, purpose, count), bits_in_torch(SEEDS, purpose, count))


def test_numbers_are_the_hashs_bits() -> None:
    drawn = bits_in_torch(SEEDS, "numbers", 3)
    assert torch.equal(uniform(SEEDS, "numbers", 3), (drawn >> 8).float() / 2**24)
    pairs = bits_in_torch(SEEDS, "grid", 8)
    halves = torch.cat((pairs & 0xFFFF, pairs >> 16), dim=1)[:, :15]  # an odd count leaves the last half unused
    assert torch.equal(lattice(SEEDS, "grid", 3, 5), (halves.float() / 2**16).view(-1, 3, 5))


def test_between_stays_within_its_bounds() -> None:
    drawn = between(torch.arange(5000), "bounds", -2.0, 3.0)
    assert drawn.shape == (5000, 1, 1)
    assert -2 <= drawn.min() < -1.99
    assert 2.99 < drawn.max() < 3
    assert torch.equal(drawn[:, 0], -2 + 5 * uniform(torch.arange(5000), "bounds"))


def test_smooth_noise_of_a_seed_does_not_depend_on_the_others() -> None:
    seeds = torch.arange(40)
    for draw in (lambda some: smooth(some, "noise", 14, 9), lambda some: line(some, "noise", 7)):
        together = draw(seeds)
        assert torch.equal(together[17:18], draw(seeds[17:18]))
        assert torch.equal(together[5:20], draw(seeds[5:20]))
