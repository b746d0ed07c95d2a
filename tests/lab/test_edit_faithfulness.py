"""The account of what edits keep, by hand-made readings."""

from __future__ import annotations

from dataclasses import replace

from lab.training.edit_faithfulness import Candidate, Edit, Outcome, by_factor, margin, readings

from counterfoil.protocols.lance.quality import Similarities
from counterfoil.protocols.lance.spec import QualitySpec
from counterfoil_lab.world import FACTORS

BARS = QualitySpec(image_image=0.5, image_text=0.1, directional=0.4)
SCENE = dict.fromkeys(FACTORS, 0)


def candidate(name: str, *, directional: float = 0.6, keeps: bool = True, **read: int) -> Candidate:
    similarities = Similarities(image_image=0.8, source_text=0.3, edited_text=0.3, old_text=0.2, directional=directional)
    return Candidate(name, similarities, keeps, {**SCENE, "colour": 1, **read})


def edit(*candidates: Candidate, source: dict[str, int] | None = None) -> Edit:
    return Edit("colour", 1, SCENE, source or SCENE, candidates)


def test_the_best_that_passes_is_judged():
    found = edit(candidate("a", directional=0.5), candidate("b", directional=0.7, material=3)).judged(BARS)
    assert isinstance(found, Outcome)
    assert found.hit and not found.kept["material"] and all(kept for name, kept in found.kept.items() if name != "material")
    assert "colour" not in found.kept


def test_why_an_edit_is_not_accepted():
    assert edit(candidate("a", directional=0.1)).judged(BARS) == "wrong direction"
    assert edit(candidate("a", keeps=False)).judged(BARS) == "the oracle does not see the class"
    assert replace(edit(), refused="not finite").judged(BARS) == "not finite"


def test_an_attribute_that_is_misread_in_the_source_says_nothing():
    found = edit(candidate("a", texture=2), source={**SCENE, "texture": 2}).judged(BARS)
    assert isinstance(found, Outcome) and "texture" not in found.kept


def test_shares_are_over_all_factors_and_for_each():
    outcomes = [Outcome("colour", True, {"garment": True, "material": False}), Outcome("weather", False, {"garment": True})]
    whole = {one.name: one for one in readings(outcomes)}
    assert whole["asked change found"].value == 50 and whole["asked change found"].n == 2
    assert whole["material kept"].value == 0 and whole["material kept"].n == 1
    assert whole["garment kept"].holds and not whole["asked change found"].holds
    assert margin(list(whole.values())) == -85
    assert {one.name for one in by_factor(outcomes)} >= {"colour: material kept", "weather: asked change found"}


def test_no_edit_no_reading():
    assert readings([]) == [] and margin([]) < 0
