"""The account of what edits change and keep, by hand-made values."""

from __future__ import annotations

from bench.lab import Outcome, outcome, readings

from counterfoil_lab.world import FACTORS

SCENE = dict.fromkeys(FACTORS, 0)
WANTED = {**SCENE, "colour": 1}


def test_an_attribute_that_is_misread_in_the_source_does_not_count():
    found = outcome("colour", wanted=WANTED, source={**SCENE, "texture": 2}, edited={**WANTED, "texture": 2, "material": 3})
    assert found.hit and "texture" not in found.kept and "colour" not in found.kept
    assert not found.kept["material"] and found.kept["garment"]


def test_shares_are_over_all_factors():
    outcomes = [Outcome("colour", True, {"garment": True, "material": False}), Outcome("weather", False, {"garment": True})]
    whole = {one.name: one for one in readings(outcomes)}
    assert whole["asked change found"].value == 50 and whole["asked change found"].n == 2
    assert whole["material kept"].value == 0 and whole["material kept"].n == 1
    assert whole["garment kept"].holds and not whole["asked change found"].holds
    assert readings([]) == []
