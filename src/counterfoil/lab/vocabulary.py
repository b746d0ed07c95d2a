"""The words of the wardrobe world: eight factors and the values each of them can take."""

from __future__ import annotations

from typing import Final

GARMENTS: Final = ("t-shirt", "trousers", "pullover", "dress", "sandal", "sneaker", "bag", "boot")
COLOURS: Final = ("red", "orange", "yellow", "green", "blue", "purple", "pink", "brown", "black", "white")
MATERIALS: Final = ("cotton", "denim", "leather", "silk", "wool", "metal")
TEXTURES: Final = ("plain", "striped", "dotted", "checkered", "zigzag", "camouflage")
BACKGROUNDS: Final = (
    "white studio",
    "grey studio",
    "wooden floor",
    "tiled floor",
    "brick wall",
    "bookshelf",
    "grass",
    "beach",
    "desert",
    "forest",
    "mountains",
    "night sky",
    "sunset",
    "water",
    "city",
    "road",
)
OBJECTS: Final = ("nothing", "ball", "cup", "cone", "lamp", "cube", "cactus")
DOMAINS: Final = ("photo", "sketch", "painting", "cartoon", "thermal", "neon")
WEATHERS: Final = ("clear", "rain", "fog", "snow", "wind")

FACTORS: Final[dict[str, tuple[str, ...]]] = {
    "garment": GARMENTS,
    "colour": COLOURS,
    "material": MATERIALS,
    "texture": TEXTURES,
    "background": BACKGROUNDS,
    "object": OBJECTS,
    "domain": DOMAINS,
    "weather": WEATHERS,
}

# These values leave no word in a caption: a caption that is silent about the factor states them.
UNSAID: Final[dict[str, str]] = {"texture": "plain", "object": "nothing", "weather": "clear"}

STUDIOS: Final = ("white studio", "grey studio")
