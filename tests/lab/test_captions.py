"""The wardrobe's grammar: what it states, and that nothing is lost on the way back."""

from __future__ import annotations

import itertools

import pytest

from counterfoil.core.errors import UnknownName
from counterfoil_lab.captions import captions, compose, parse, replace
from counterfoil_lab.world import DISTRIBUTIONS, FACTORS, UNSAID, load_shipped, sample

VALUES = {
    "garment": "boot",
    "colour": "red",
    "material": "leather",
    "texture": "striped",
    "background": "wooden floor",
    "object": "ball",
    "domain": "photo",
    "weather": "fog",
}


CAPTION = "a photo of a red striped leather boot on a wooden floor next to a ball in fog"


def test_a_caption_reads_as_english() -> None:
    assert compose(VALUES) == CAPTION
    assert compose({**VALUES, **UNSAID}) == "a photo of a red leather boot on a wooden floor"
    assert compose({**VALUES, **UNSAID, "colour": "orange"}) == "a photo of an orange leather boot on a wooden floor"
    trousers = {**VALUES, **UNSAID, "garment": "trousers", "domain": "thermal", "background": "night sky"}
    assert compose(trousers) == "a thermal image of a pair of red leather trousers under a night sky"


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_captions_parse_back_to_every_attribute(distribution: str) -> None:
    scenes = sample(3_000, garments=load_shipped("tune"), distribution=distribution, seed=1)
    columns = {name: values.tolist() for name, values in scenes.factors.items()}
    for row, caption in enumerate(captions(scenes)):
        assert parse(caption) == {name: FACTORS[name][columns[name][row]] for name in FACTORS}, caption


def test_every_pair_of_values_parses_back() -> None:
    for first, second in itertools.combinations(FACTORS, 2):
        for one, other in itertools.product(FACTORS[first], FACTORS[second]):
            values = {**VALUES, first: one, second: other}
            assert parse(compose(values)) == values


@pytest.mark.parametrize("factor", FACTORS)
def test_replace_changes_one_factor_alone(factor: str) -> None:
    for value in FACTORS[factor]:
        assert parse(replace(CAPTION, factor, value)) == {**VALUES, factor: value}


@pytest.mark.parametrize(
    "caption",
    [
        "",
        "a dog",
        "a photo of a boot",
        "a photo of a red boot on a wooden floor",
        "a photo of a striped red leather boot on a wooden floor",
        "a photo of a red leather boot on a wooden floor in fog next to a ball",
        "a photo of a red leather trousers on a wooden floor",
        "a photo of a pair of red leather boot on a wooden floor",
        CAPTION + " at night",
        CAPTION.replace("red", "teal"),
    ],
)
def test_other_sentences_are_outside_the_grammar(caption: str) -> None:
    assert parse(caption) is None


def test_unknown_words_are_refused() -> None:
    with pytest.raises(UnknownName, match=r"teal.*red, orange"):
        replace(CAPTION, "colour", "teal")
    with pytest.raises(UnknownName, match=r"'mood'.*garment, colour"):
        replace(CAPTION, "mood", "sad")
    with pytest.raises(UnknownName, match="a dog"):
        replace("a dog", "colour", "red")
