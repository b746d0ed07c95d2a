"""Word lists of the lab's world, so that what is proposed is what its painter knows."""

from __future__ import annotations

from functools import lru_cache

from counterfoil.parts.language.lexicon import Lexicon
from counterfoil_lab.captions import GENERIC, MEDIUMS, PLACES, SKIES
from counterfoil_lab.world import FACTORS, UNSAID


@lru_cache(maxsize=1)
def lexicon() -> Lexicon:
    """The wardrobe's vocabulary as a lexicon."""
    said = {name: tuple(value for value in values if value != UNSAID.get(name)) for name, values in FACTORS.items()}
    return Lexicon(
        name="wardrobe",
        domain=tuple(MEDIUMS.values()),
        domain_words=tuple(opening.split()[1] for opening in GENERIC),
        subject={"garments": said["garment"]},
        object={"companions": said["object"]},
        background=tuple(PLACES.values()),
        adjective={kind: said[kind] for kind in ("colour", "texture", "material")},
        weather=tuple(phrase for phrase in SKIES.values() if phrase),
        insert=("texture",),
        leave_out=("texture", "object", "weather"),
        one_each=True,
    )
