"""The wardrobe's grammar: one English sentence for a scene, and back again without loss.

a photo of a red striped leather boot on a wooden floor next to a ball in fog
└ domain ┘   └ colour, texture, material, garment ┘ └ background ┘ └ object ┘ └ weather ┘
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Final

from counterfoil.core.errors import UnknownName
from counterfoil_lab.world import BACKGROUNDS, DOMAINS, FACTORS, GARMENTS, OBJECTS, UNSAID, WEATHERS

if TYPE_CHECKING:
    from counterfoil_lab.world import Scenes

MEDIUMS: Final = dict(zip(DOMAINS, ("photo", "sketch", "painting", "cartoon", "thermal image", "neon sign"), strict=True))
PLACES: Final = dict(
    zip(
        BACKGROUNDS,
        (
            "in a white studio",
            "in a grey studio",
            "on a wooden floor",
            "on a tiled floor",
            "in front of a brick wall",
            "in front of a bookshelf",
            "on green grass",
            "on a beach",
            "in a desert",
            "in a forest",
            "in the mountains",
            "under a night sky",
            "at sunset",
            "on water",
            "in a city",
            "on a road",
        ),
        strict=True,
    )
)
COMPANIONS: Final = {name: "" if name == UNSAID["object"] else f"next to a {name}" for name in OBJECTS}
SKIES: Final = dict(zip(WEATHERS, ("", "in the rain", "in fog", "in the snow", "in the wind"), strict=True))
PLURAL: Final = frozenset({"trousers"})


def captions(scenes: Scenes) -> list[str]:
    """One caption for each scene."""
    columns = {name: scenes.factors[name].tolist() for name in FACTORS}
    rows = zip(*columns.values(), strict=True)
    return [compose({name: FACTORS[name][i] for name, i in zip(FACTORS, row, strict=True)}) for row in rows]


def compose(values: Mapping[str, str]) -> str:
    """The caption that states these values, one for each factor."""
    for name in FACTORS:
        _check(name, values[name])
    texture = "" if values["texture"] == UNSAID["texture"] else values["texture"]
    noun = " ".join(filter(None, (values["colour"], texture, values["material"], values["garment"])))
    thing = f"a pair of {noun}" if values["garment"] in PLURAL else _with_article(noun)
    parts = (
        f"{_with_article(MEDIUMS[values['domain']])} of {thing}",
        PLACES[values["background"]],
        COMPANIONS[values["object"]],
        SKIES[values["weather"]],
    )
    return " ".join(filter(None, parts))


def parse(caption: str) -> dict[str, str] | None:
    """The value of every factor that a caption states, or None if it is not a sentence of the grammar.

    Capitals, a final full stop, extra spaces and "a" for "an" are forgiven, since rewritten captions often have them.
    """
    text = " ".join(caption.lower().split()).removesuffix(".").rstrip()
    match = _sentence().fullmatch(text)
    if match is None or bool(match["pair"]) != (match["garment"] in PLURAL):
        return None
    said = match.groupdict()
    return {
        "garment": said["garment"],
        "colour": said["colour"],
        "material": said["material"],
        "texture": said["texture"] or UNSAID["texture"],
        "background": _inverse(PLACES)[said["place"]],
        "object": _inverse(COMPANIONS)[said["companion"] or ""],
        "domain": _inverse(MEDIUMS)[said["medium"]],
        "weather": _inverse(SKIES)[said["sky"] or ""],
    }


def replace(caption: str, factor: str, value: str) -> str:
    """The caption with one factor changed and every other word kept."""
    _check(factor, value)
    values = parse(caption)
    if values is None:
        raise UnknownName(f"not a wardrobe caption: {caption!r}; write it as 'a photo of a red wool dress on a beach'")
    return compose({**values, factor: value})


def _check(factor: str, value: str) -> None:
    if factor not in FACTORS:
        raise UnknownName(f"the wardrobe has no factor {factor!r}; its factors are {', '.join(FACTORS)}")
    if value not in FACTORS[factor]:
        raise UnknownName(f"{factor} has no value {value!r}; choose one of {', '.join(FACTORS[factor])}")


def _with_article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def _inverse(table: Mapping[str, str]) -> dict[str, str]:
    return {phrase: name for name, phrase in table.items()}


@cache
def _sentence() -> re.Pattern[str]:
    def one_of(words: tuple[str, ...] | list[str]) -> str:
        return "|".join(re.escape(word) for word in words if word)

    textures = one_of([name for name in FACTORS["texture"] if name != UNSAID["texture"]])
    return re.compile(
        rf"an? (?P<medium>{one_of(list(MEDIUMS.values()))}) of (?:(?P<pair>a pair of)|an?) "
        rf"(?P<colour>{one_of(FACTORS['colour'])}) (?:(?P<texture>{textures}) )?"
        rf"(?P<material>{one_of(FACTORS['material'])}) (?P<garment>{one_of(GARMENTS)}) "
        rf"(?P<place>{one_of(list(PLACES.values()))})"
        rf"(?: (?P<companion>{one_of(list(COMPANIONS.values()))}))?(?: (?P<sky>{one_of(list(SKIES.values()))}))?"
    )


GENERIC: Final = ("an image of", "a picture of")
"""Openings of a caption that does not say its domain."""
THING: Final = "thing"
"""The noun of a caption that does not name the garment."""
SPOKEN: Final = {"texture": "plain", "object": "next to nothing", "weather": "in clear weather"}
"""Words of a caption with gaps for values that full captions leave out."""
ARROW: Final = "=>"


def single(factor: str, value: str) -> str:
    """A caption that states one factor alone, for zero-shot questions: "an image of a red thing"."""
    said = SPOKEN[factor] if UNSAID.get(factor) == value else value
    if factor == "garment":
        return f"{GENERIC[0]} a {said}"
    if factor == "domain":
        return f"a {MEDIUMS[value]} of a {THING}"
    if factor in ("colour", "material", "texture"):
        return f"{GENERIC[0]} {'an' if said[0] in 'aeiou' else 'a'} {said} {THING}"
    phrases = {"background": PLACES, "object": COMPANIONS, "weather": SKIES}[factor]
    return f"{GENERIC[0]} a {THING} {phrases[value] or said}"


def singles(factor: str) -> list[str]:
    """One such caption for each value of a factor, in the vocabulary's order."""
    return [single(factor, value) for value in FACTORS[factor]]


def rewriter_prompt(factor: str, caption: str) -> str:
    """Return what the rewriter is given; it continues with the caption in which that factor has another value."""
    return f"{factor} : {caption} {ARROW}"
