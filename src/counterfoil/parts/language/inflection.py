"""The little of English inflection that an edit needs: articles and plurals."""

from __future__ import annotations

from counterfoil.parts.language.closed import closed

_IRREGULAR = {
    "man": "men", "woman": "women", "child": "children", "person": "people", "mouse": "mice", "goose": "geese",
    "foot": "feet", "tooth": "teeth", "leaf": "leaves", "knife": "knives", "shelf": "shelves", "bookshelf": "bookshelves",
    "loaf": "loaves", "wolf": "wolves", "calf": "calves", "scarf": "scarves", "half": "halves", "thief": "thieves",
    "cactus": "cacti", "policeman": "policemen", "fireman": "firemen", "snowman": "snowmen", "fisherman": "fishermen",
}  # fmt: skip
_SAME = closed("unchanging")
_SINGULAR = {plural: singular for singular, plural in _IRREGULAR.items()}
# Words that sound otherwise than they are spelt.
_AN = ("hour", "honest", "heir", "x-ray", "mri", "suv")
_A = ("uni", "use", "usu", "euro", "one", "once", "ukulele", "ute")


def with_article(noun: str) -> str:
    """The noun with "a" or "an" before it."""
    return f"{article(noun)} {noun}"


def article(word: str) -> str:
    """ "a" or "an", whichever goes before the word."""
    word = word.lower()
    if word.startswith(_AN):
        return "an"
    return "an" if word[:1] in "aeiou" and not word.startswith(_A) else "a"


def plural(noun: str) -> str:
    """The plural of a noun; of a phrase, that of its last word."""
    first, space, last = noun.rpartition(" ")
    if last in _SAME:
        return noun
    if last in _IRREGULAR:
        return first + space + _IRREGULAR[last]
    if last.endswith(("s", "x", "z", "ch", "sh")):
        return f"{noun}es"
    if last.endswith("y") and last[-2:-1] not in tuple("aeiou"):
        return f"{noun[:-1]}ies"
    if last in ("potato", "tomato", "mango", "buffalo", "volcano"):
        return f"{noun}es"
    return f"{noun}s"


def singulars(noun: str) -> list[str]:
    """What a noun may be the plural of, the likeliest first; empty if it has no plural's ending."""
    first, space, last = noun.rpartition(" ")
    found = [_SINGULAR[last]] if last in _SINGULAR else []
    if last.endswith("ies") and len(last) > 4:
        found.append(f"{last[:-3]}y")
    if last.endswith("es") and len(last) > 3:
        found.append(last[:-2])
    if last.endswith("s") and not last.endswith("ss") and len(last) > 2:
        found.append(last[:-1])
    return [first + space + word for word in found]


def always_plural(noun: str) -> bool:
    """Whether a noun is used without "a", as in "a pair of trousers"."""
    last = noun.rpartition(" ")[2]
    return last in _SAME and last not in ("sheep", "deer", "fish", "bison", "moose", "salmon", "trout", "shrimp", "aircraft")
