"""Checks that a proposal changes one factor of a caption, the one asked for, and leaves the class alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from counterfoil.parts.contracts import Edit, Rejection
from counterfoil.parts.language import lexicon as lexicons
from counterfoil.parts.language.difference import Change, Difference, compare
from counterfoil.parts.language.factors import FACTORS, check_factor
from counterfoil.parts.language.grammar import Reading, read
from counterfoil.parts.language.lexicon import Lexicon
from counterfoil.parts.language.limits import TokenLimit, by_words
from counterfoil.parts.language.similarity import THRESHOLD, TextEncoder, TextSimilarity, names_class
from counterfoil.parts.language.soundness import unsound
from counterfoil.parts.language.tokens import tidy, tokenise

LEAST_KEPT = 0.4  # of a caption's words that say something; a proposal that keeps fewer is another caption
FEW_WORDS = 4  # captions of fewer such words may change wholly
MOST_ADDED = 10

Problem = tuple[str, str]  # a reason and a detail


@dataclass(frozen=True)
class Rewritten:
    """What became of the proposals for one request."""

    edits: tuple[Edit, ...] = ()
    rejections: tuple[Rejection, ...] = ()


@dataclass(frozen=True)
class Checker:
    """Turns proposals into edits and rejections. Without `similarity` only the class's own name is looked for."""

    lexicon: Lexicon
    similarity: TextSimilarity | None = None
    limit: TokenLimit = field(default_factory=by_words)

    @classmethod
    def build(
        cls,
        words: str = "english",
        *,
        encoder: TextEncoder | None = None,
        threshold: float = THRESHOLD,
        tokenizer: Any = None,
        most_tokens: int | None = None,
    ) -> Checker:
        """A checker by the name of its word lists, an encoder of texts, and the tokenizer of the editor's text encoder."""
        return cls(
            lexicons.load(words),
            TextSimilarity(encoder, threshold) if encoder is not None else None,
            TokenLimit.of(tokenizer, most_tokens) if tokenizer is not None else by_words(),
        )

    def check(self, caption: str, factor: str, proposals: Sequence[str], class_name: str = "") -> Rewritten:
        """The proposals for one caption and factor, each as an edit or as a rejection with its reason."""
        check_factor(factor)
        before = read(caption, self.lexicon)
        seen = {same_words(caption): "no-op"}
        edits, rejections = [], []
        for proposal in proposals:
            text = tidy(proposal)
            problem = self._first_problem(text, seen)
            difference = None
            if problem is None:
                difference = compare(before, read(text, self.lexicon))
                problem = self._factor_problem(difference, before, factor) or self._class_problem(
                    difference, caption, text, class_name
                )
            seen.setdefault(same_words(text), "duplicate")
            if problem is None and difference is not None:
                edits.append(Edit(factor, text, difference.removed, difference.added))
            elif problem is not None:
                rejections.append(Rejection(factor, proposal[:500], *problem))
        return Rewritten(tuple(edits), tuple(rejections))

    def caption_problem(self, caption: str) -> Problem | None:
        """Why a caption cannot be rewritten at all."""
        if not any(not token.is_mark for token in tokenise(caption[:200])):
            return "caption-empty", ""
        excess = self.limit.excess(caption)
        return ("caption-too-long", excess) if excess else None

    def changed(self, caption: str, edited: str) -> frozenset[str]:
        """The factors that an edit may be said to change; empty if there is no one factor that explains all of it."""
        return _explaining(self.difference(caption, edited).saying)

    def difference(self, caption: str, edited: str) -> Difference:
        """What an edit takes out of a caption and puts in."""
        return compare(read(caption, self.lexicon), read(edited, self.lexicon))

    def _first_problem(self, text: str, seen: dict[str, str]) -> Problem | None:
        """What can be said without reading the proposal word by word."""
        excess = self.limit.excess(text)
        found = unsound(text[:2000]) if text else ("nonsense", "no words")
        if found:
            return found
        if excess:
            return "too-long", excess
        return (seen[same_words(text)], "") if same_words(text) in seen else None

    def _factor_problem(self, difference: Difference, before: Reading, factor: str) -> Problem | None:
        changes = difference.saying
        if not changes:
            return "no-op", "only small words differ"
        said = sum(word.says for word in before.words)
        added = sum(word.says for change in changes for word in change.added)
        if (said >= FEW_WORDS and difference.kept < LEAST_KEPT * said) or added > MOST_ADDED:
            return "rewritten", f"{difference.kept} of {said} words kept, {added} added"
        explaining = _explaining(changes)
        if factor not in explaining:
            return _other_factor(changes, explaining)
        if len(changes) > 1:
            return "several-factors", f"{factor} changed in {len(changes)} places: {_places(changes)}"
        return self._adjective_problem(changes[0]) if factor == "adjective" else None

    def _adjective_problem(self, change: Change) -> Problem | None:
        """Adjectives are many factors in one: of those that stand side by side, only one may change."""
        if not self.lexicon.one_each:
            gone = [word.text for word in change.removed if word.says]
            return ("several-factors", f"{len(gone)} adjectives taken out: {', '.join(gone)}") if len(gone) > 1 else None
        kinds = [
            {self.lexicon.kinds.get(word.text, "") for word in words if word.says} for words in (change.removed, change.added)
        ]
        if len(kinds[0] | kinds[1]) > 1:
            return "several-factors", f"adjectives of several kinds: {', '.join(sorted(kinds[0] | kinds[1]))}"
        return None

    def _class_problem(self, difference: Difference, caption: str, text: str, class_name: str) -> Problem | None:
        if not class_name or not difference.removed:
            return None  # nothing but insertions
        removed = difference.removed
        if names_class(removed, class_name) or (names_class(caption, class_name) and not names_class(text, class_name)):
            return "class-word", f"{removed!r} names {class_name!r}"
        if self.similarity is not None:
            cosine = self.similarity.between(removed, class_name)
            if cosine >= self.similarity.threshold:
                return "class-word", f"{removed!r} is near {class_name!r}: {cosine:.2f}"
        return None


def _explaining(changes: Sequence[Change]) -> frozenset[str]:
    """The factors that every changed word that says something may be about."""
    found = frozenset(FACTORS)
    for change in changes:
        for word in change.saying:
            found &= word.admits
    return found if changes else frozenset()


def _other_factor(changes: Sequence[Change], explaining: frozenset[str]) -> Problem:
    if explaining:
        return "other-factor", f"changes {' or '.join(sorted(explaining))}: {_places(changes)}"
    idle = [word.text for change in changes for word in change.saying if not word.admits]
    if idle:
        return "other-factor", f"changes what is done: {', '.join(idle[:4])}"
    return "several-factors", _places(changes)


def _places(changes: Sequence[Change]) -> str:
    shown = [
        f"{' '.join(word.text for word in change.removed) or '·'} → {' '.join(word.text for word in change.added) or '·'}"
        for change in changes[:3]
    ]
    return "; ".join(shown)


def same_words(text: str) -> str:
    """What two texts share that say the same: their words, without case, marks or the choice between a and an."""
    return " ".join("a" if token.text == "an" else token.text for token in tokenise(text) if not token.is_mark)
