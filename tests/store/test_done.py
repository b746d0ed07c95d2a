from __future__ import annotations

import random

import numpy as np

from counterfoil.store import done as module
from counterfoil.store.done import Done
from counterfoil.store.files import key_of


def test_it_holds_what_a_set_holds(monkeypatch) -> None:
    monkeypatch.setattr(module, "_FRESH", 7)
    luck, held, known = random.Random(0), Done(), set()
    for number in range(400):
        name = f"image {luck.randrange(150)}"
        assert (name in held) == (name in known)
        if number % 5 == 0:
            several = [f"image {luck.randrange(150)}" for _ in range(luck.randrange(4))]
            held.add_keys(np.array([key_of(each) for each in several], dtype=np.uint64))
            known.update(several)
        held.add(name)
        known.add(name)
        assert len(held) == len(known)
        asked = [f"image {luck.randrange(200)}" for _ in range(9)]
        assert held.lacking(asked) == [place for place, each in enumerate(asked) if each not in known]


def test_at_first_it_holds_nothing() -> None:
    assert Done().lacking(["image 1", "image 2"]) == [0, 1]
    assert len(Done()) == 0 and "image 1" not in Done()
