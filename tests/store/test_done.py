"""The set of complete images holds what a set holds."""

from __future__ import annotations

import random

import numpy as np

from counterfoil.store.files import key_of
from counterfoil.store.writer import Done


def test_it_holds_what_a_set_holds() -> None:
    luck = random.Random(0)
    before = [f"image {luck.randrange(150)}" for _ in range(90)]
    blocks = [np.array([key_of(each) for each in before[at : at + 7]], dtype=np.uint64) for at in range(0, 90, 7)]
    held, known = Done(blocks), set(before)
    for _ in range(200):
        name = f"image {luck.randrange(200)}"
        assert (name in held) == (name in known)
        held.add(name)
        known.add(name)
        asked = [f"image {luck.randrange(300)}" for _ in range(9)]
        assert held.missing(asked) == [place for place, each in enumerate(asked) if each not in known]


def test_at_first_it_holds_nothing() -> None:
    assert Done().missing(["image 1", "image 2"]) == [0, 1]
    assert len(Done()) == 0 and "image 1" not in Done()
