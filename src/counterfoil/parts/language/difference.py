"""What an edit took out of a caption and what it put in, word by word."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import SequenceMatcher

from counterfoil.parts.language.grammar import Reading, Word
from counterfoil.parts.language.tokens import content


@dataclass(frozen=True)
class Change:
    """One place in which two captions differ."""

    removed: tuple[Word, ...]
    added: tuple[Word, ...]

    @property
    def saying(self) -> list[Word]:
        """The changed words that say something by themselves."""
        return [word for word in (*self.removed, *self.added) if word.says]


@dataclass(frozen=True)
class Difference:
    """All places in which an edited caption differs from the caption."""

    changes: tuple[Change, ...]
    kept: int  # words that say something and stand in both

    @property
    def saying(self) -> list[Change]:
        """The changes that say something: not those of articles, prepositions or marks alone."""
        return [change for change in self.changes if change.saying]

    @property
    def removed(self) -> str:
        """The words that were taken out."""
        return _phrase([change.removed for change in self.changes])

    @property
    def added(self) -> str:
        """The words that were put in."""
        return _phrase([change.added for change in self.changes])


def compare(before: Reading, after: Reading) -> Difference:
    """The changes that lead from one caption to the other."""
    old, new = [word.text for word in before.words], [word.text for word in after.words]
    changes, kept = [], 0
    for step, i, j, k, m in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if step == "equal":
            kept += sum(word.says for word in before.words[i:j])
        else:
            changes.append(Change(before.words[i:j], after.words[k:m]))
    return Difference(tuple(_merged(changes, before)), kept)


def _merged(changes: list[Change], before: Reading) -> list[Change]:
    """A change of small words made one with its neighbour: "on a beach" for "in front of a castle" is one change."""
    result: list[Change] = []
    places = {id(word): at for at, word in enumerate(before.words)}
    ends: list[int] = []
    for change in changes:
        start = places[id(change.removed[0])] if change.removed else None
        gap = before.words[ends[-1] : start] if ends and start is not None and ends[-1] >= 0 else None
        near = gap is not None and len(gap) <= 2 and not any(word.says for word in gap)
        if gap is not None and near and not (result[-1].saying and change.saying):
            last = result.pop()
            result.append(Change((*last.removed, *gap, *change.removed), (*last.added, *gap, *change.added)))
        else:
            result.append(change)
        ends.append(places[id(change.removed[-1])] + 1 if change.removed else -1)
    return result


def _phrase(parts: list[tuple[Word, ...]]) -> str:
    said = [part for part in parts if any(word.says for word in part)]
    phrases = [content(word.text for word in part if not word.token.is_mark) for part in said]
    return ", ".join(phrase for phrase in phrases if phrase)
