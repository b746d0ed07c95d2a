"""WordNet's nouns, if its files are installed: words of the same kind as a word that no list has.

The files are those of the Debian package wordnet-base, or of any WordNet 3 release: index.noun and data.noun.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from counterfoil.core.errors import BadPart, one_line

FOLDERS = ("/usr/share/wordnet", "/usr/local/share/wordnet", "/usr/share/wordnet-3.0/dict", "/opt/homebrew/opt/wordnet/dict")
_LICENCE_LINES = "  "  # lines of the licence begin with two spaces
_HYPERNYM, _HYPONYM = "@", "~"
_VISIBLE = frozenset({"05", "06", "13", "17", "18", "20"})  # animals, artefacts, food, natural objects, people, plants
MOST = 12


class WordNet:
    """The nouns of a WordNet folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._index = _read_index(folder / "index.noun")
        self._data = (folder / "data.noun").read_bytes()

    def siblings(self, noun: str) -> list[str]:
        """Other things under the same general term as `noun`, those known by one word first.

        Senses that cannot be seen in a picture are passed over, and so are words that usually mean something else.
        """
        for place in self._index.get(noun.replace(" ", "_"), ()):
            kind, words, _ = self._synset(place)
            general = self._related(place, _HYPERNYM)
            if kind in _VISIBLE and general:
                return self._others(place, general[0], kind, words)
        return []

    def _others(self, place: int, general: int, kind: str, words: list[str]) -> list[str]:
        found = []
        for other in self._related(general, _HYPONYM):
            its_kind, names, _ = self._synset(other)
            usual = self._index.get(names[0], (0,))[0] == other
            if other != place and its_kind == kind and names[0].islower() and usual and names[0] not in words:
                found.append(names[0])
        found.sort(key=lambda word: (word.count("_") + word.count("-"), word))
        return [word.replace("_", " ") for word in found[:MOST]]

    def _synset(self, offset: int) -> tuple[str, list[str], list[str]]:
        """The kind and the words at an offset of the data file, and the fields that follow them."""
        line = self._data[offset : self._data.index(b"\n", offset)].decode("utf-8", "replace")
        parts = line.partition(" | ")[0].split()
        count = int(parts[3], 16)
        return parts[1], parts[4 : 4 + 2 * count : 2], parts[4 + 2 * count :]

    def _related(self, offset: int, pointer: str) -> list[int]:
        _, _, rest = self._synset(offset)
        count = int(rest[0])
        rows = [rest[1 + 4 * row : 5 + 4 * row] for row in range(count)]
        return [int(row[1]) for row in rows if row[0] == pointer and row[2] == "n"]


def find(where: str) -> WordNet | None:
    """WordNet in a folder, in one of the usual ones for `auto` if it is there, or None for `off`."""
    if where == "off":
        return None
    if where != "auto":
        return _open(where)
    return next((_open(folder) for folder in FOLDERS if (Path(folder) / "data.noun").is_file()), None)


@lru_cache(maxsize=2)
def _open(folder: str) -> WordNet:
    path = Path(folder).expanduser()
    if not (path / "data.noun").is_file() or not (path / "index.noun").is_file():
        raise BadPart(f"wordnet: {folder} has no data.noun and index.noun; install wordnet-base, or give wordnet: off")
    try:
        return WordNet(path)
    except (OSError, ValueError, IndexError) as error:
        raise BadPart(f"wordnet: {folder} cannot be read ({one_line(error)})") from None


def _read_index(file: Path) -> dict[str, tuple[int, ...]]:
    """Where the senses of each noun are, the commonest first."""
    found = {}
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            if not line.startswith(_LICENCE_LINES):
                parts = line.split()
                senses = int(parts[2])
                found[parts[0]] = tuple(int(offset) for offset in parts[-senses:])
    return found
