"""Compare a proposal with its caption, and accept edits that change one factor and leave the class alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any, Final

from counterfoil.core.errors import BadSpec
from counterfoil.parts import calls
from counterfoil.parts.contracts import Edit, Embedder, Rejection, Rewriter, RewriteRequest
from counterfoil.parts.language import lexicon as lexicons
from counterfoil.parts.language.caption_checks import (
    ClassSimilarity,
    Fault,
    TokenLimit,
    caption_fault,
    names_class,
)
from counterfoil.parts.language.english import strip_articles, tidy, tokenise
from counterfoil.parts.language.grammar import FACTORS, ParsedCaption, Word, parse
from counterfoil.parts.language.lexicon import Lexicon

MIN_KEPT: Final = 0.4  # of a caption's words with a meaning; a proposal that keeps fewer is another caption
FEW_WORDS: Final = 4  # captions of fewer such words may change wholly
MAX_ADDED: Final = 10


@dataclass(frozen=True)
class Change:
    """One place in which two captions differ."""

    removed: tuple[Word, ...]
    added: tuple[Word, ...]

    @property
    def with_meaning(self) -> list[Word]:
        """The changed words that have a meaning by themselves."""
        return [word for word in (*self.removed, *self.added) if word.has_meaning]


@dataclass(frozen=True)
class Difference:
    """All places in which an edited caption differs from the caption."""

    changes: tuple[Change, ...]
    words_kept: int  # with a meaning, in both captions

    @classmethod
    def between(cls, before: ParsedCaption, after: ParsedCaption) -> Difference:
        """The changes that lead from one caption to the other."""
        old, new = [word.text for word in before.words], [word.text for word in after.words]
        changes, kept = [], 0
        for step, i, j, k, m in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
            if step == "equal":
                kept += sum(word.has_meaning for word in before.words[i:j])
            else:
                changes.append((i, Change(before.words[i:j], after.words[k:m])))
        return cls(tuple(_merge(changes, before)), kept)

    @property
    def with_meaning(self) -> list[Change]:
        """The changes of more than articles, prepositions and marks."""
        return [change for change in self.changes if change.with_meaning]

    @property
    def removed(self) -> str:
        """The words that were taken out."""
        return _phrases([change.removed for change in self.changes])

    @property
    def added(self) -> str:
        """The words that were put in."""
        return _phrases([change.added for change in self.changes])


def _merge(changes: list[tuple[int, Change]], before: ParsedCaption) -> list[Change]:
    """Join a change of small words with its neighbour: "on a beach" for "in front of a castle" is one change."""
    result: list[Change] = []
    end: int | None = None  # of the change before, in the caption's words; None after an insertion
    for start, change in changes:
        gap = before.words[end:start] if end is not None and change.removed else None
        near = gap is not None and len(gap) <= 2 and not any(word.has_meaning for word in gap)
        if gap is not None and near and not (result[-1].with_meaning and change.with_meaning):
            last = result.pop()
            result.append(Change((*last.removed, *gap, *change.removed), (*last.added, *gap, *change.added)))
        else:
            result.append(change)
        end = start + len(change.removed) if change.removed else None
    return result


def _phrases(parts: list[tuple[Word, ...]]) -> str:
    spoken = [part for part in parts if any(word.has_meaning for word in part)]
    phrases = [strip_articles(word.text for word in part if not word.token.is_mark) for part in spoken]
    return ", ".join(phrase for phrase in phrases if phrase)


@dataclass(frozen=True)
class CheckedProposals:
    """The edits and rejections that proposals for one request became."""

    edits: tuple[Edit, ...] = ()
    rejections: tuple[Rejection, ...] = ()


@dataclass(frozen=True)
class EditChecker:
    """Turns proposals into edits and rejections. Without `similarity` only the class's own name is looked for."""

    lexicon: Lexicon
    similarity: ClassSimilarity | None = None
    limit: TokenLimit = field(default_factory=TokenLimit)

    @classmethod
    def build(
        cls,
        words: str = "english",
        *,
        encoder: Embedder | None = None,
        threshold: float = ClassSimilarity.PAPER_THRESHOLD,
        tokenizer: Any = None,
        max_tokens: int | None = None,
    ) -> EditChecker:
        """A checker by the name of its word lists, an encoder of texts, and the tokenizer of the editor's text encoder."""
        return cls(
            lexicons.load(words),
            ClassSimilarity(encoder, threshold) if encoder is not None else None,
            TokenLimit.of(tokenizer, max_tokens) if tokenizer is not None else TokenLimit(),
        )

    def check(self, caption: str, factor: str, proposals: Sequence[str], class_name: str = "") -> CheckedProposals:
        """Each proposal for one caption and factor as an edit, or as a rejection with its reason."""
        check_factor(factor)
        before = parse(caption, self.lexicon)
        seen = {same_words(caption): "no-op"}
        edits, rejections = [], []
        for proposal in proposals:
            text = tidy(proposal)
            fault, difference = self._text_fault(text, seen), None
            if fault is None:
                difference = Difference.between(before, parse(text, self.lexicon))
                fault = self._factor_fault(difference, before, factor) or self._class_fault(difference, caption, text, class_name)
            seen.setdefault(same_words(text), "duplicate")
            if fault is None and difference is not None:
                edits.append(Edit(factor, text, difference.removed, difference.added))
            elif fault is not None:
                rejections.append(Rejection(factor, proposal[:500], *fault))
        return CheckedProposals(tuple(edits), tuple(rejections))

    def length_fault(self, caption: str) -> Fault | None:
        """The fault of a caption that cannot be rewritten at all: it is empty or too long."""
        if not any(not token.is_mark for token in tokenise(caption[:200])):
            return "caption-empty", ""
        excess = self.limit.fault(caption)
        return ("caption-too-long", excess) if excess else None

    def difference(self, caption: str, edited: str) -> Difference:
        """The words that an edit takes out of a caption and puts in."""
        return Difference.between(parse(caption, self.lexicon), parse(edited, self.lexicon))

    def _text_fault(self, text: str, seen: dict[str, str]) -> Fault | None:
        """A fault of the proposal's text by itself."""
        fault = caption_fault(text[:2000]) if text else ("nonsense", "no words")
        if fault is not None:
            return fault
        excess = self.limit.fault(text)
        if excess:
            return "too-long", excess
        return (seen[same_words(text)], "") if same_words(text) in seen else None

    def _factor_fault(self, difference: Difference, before: ParsedCaption, factor: str) -> Fault | None:
        changes = difference.with_meaning
        if not changes:
            return "no-op", "only small words differ"
        words = sum(word.has_meaning for word in before.words)
        added = sum(word.has_meaning for change in changes for word in change.added)
        if (words >= FEW_WORDS and difference.words_kept < MIN_KEPT * words) or added > MAX_ADDED:
            return "too-different", f"{difference.words_kept} of {words} words kept, {added} added"
        explaining = frozenset(FACTORS).intersection(*(word.admits for change in changes for word in change.with_meaning))
        if factor not in explaining:
            return _wrong_factor(changes, explaining)
        if len(changes) > 1:
            return "several-factors", f"{factor} changed in {len(changes)} places: {_places(changes)}"
        return self._adjective_fault(changes[0]) if factor == "adjective" else None

    def _adjective_fault(self, change: Change) -> Fault | None:
        """Adjectives are many factors in one: of those side by side, only one may change."""
        if not self.lexicon.one_each:
            gone = [word.text for word in change.removed if word.has_meaning]
            return ("several-factors", f"{len(gone)} adjectives taken out: {', '.join(gone)}") if len(gone) > 1 else None
        kinds = {self.lexicon.kinds.get(word.text, "") for word in change.with_meaning}
        return ("several-factors", f"adjectives of several kinds: {', '.join(sorted(kinds))}") if len(kinds) > 1 else None

    def _class_fault(self, difference: Difference, caption: str, text: str, class_name: str) -> Fault | None:
        removed = difference.removed
        if not class_name or not removed:
            return None  # nothing but insertions
        if names_class(removed, class_name) or (names_class(caption, class_name) and not names_class(text, class_name)):
            return "class-word", f"{removed!r} names {class_name!r}"
        if self.similarity is not None:
            cosine = self.similarity.between(removed, class_name)
            if cosine >= self.similarity.threshold:
                limit = f"class_similarity {self.similarity.threshold:g}"
                return "class-similar", f"{removed!r} and {class_name!r}: {cosine:.2f}, {limit}"
        return None


def _wrong_factor(changes: Sequence[Change], explaining: frozenset[str]) -> Fault:
    if explaining:
        return "wrong-factor", f"changes {' or '.join(sorted(explaining))}: {_places(changes)}"
    idle = [word.text for change in changes for word in change.with_meaning if not word.admits]
    if idle:
        return "wrong-factor", f"changes what is done: {', '.join(idle[:4])}"
    return "several-factors", _places(changes)


def _places(changes: Sequence[Change]) -> str:
    shown = [
        f"{' '.join(word.text for word in change.removed) or '·'} → {' '.join(word.text for word in change.added) or '·'}"
        for change in changes[:3]
    ]
    return "; ".join(shown)


def same_words(text: str) -> str:
    """The words of a text without case, marks or the choice between a and an: equal for texts that say the same."""
    return " ".join("a" if token.text == "an" else token.text for token in tokenise(text) if not token.is_mark)


def check_factor(factor: str) -> str:
    """The factor, or an error that lists those there are."""
    if factor not in FACTORS:
        raise BadSpec(f"no factor named {factor!r}; factors are {', '.join(FACTORS)}")
    return factor


def check_proposals(
    rewriter: Rewriter, checker: EditChecker, requests: Sequence[RewriteRequest], class_names: Sequence[str]
) -> list[CheckedProposals]:
    """Ask a rewriter, and check each proposal. One answer per request.

    The rewriter is not asked about captions that are empty or longer than the editor reads.
    """
    answers: dict[int, CheckedProposals] = {}
    asked: list[int] = []
    for at, request in enumerate(requests):
        fault = checker.length_fault(request.caption)
        if fault is None:
            asked.append(at)
            check_factor(request.factor)
        else:
            answers[at] = CheckedProposals(rejections=(Rejection(request.factor, "", *fault),))
    found = calls.guard(rewriter.rewrite, "the rewriter")([requests[at] for at in asked]) if asked else []
    for at, proposals in zip(asked, found, strict=True):
        request = requests[at]
        checked = checker.check(request.caption, request.factor, proposals.captions, class_names[at])
        rejections = (*proposals.rejections, *checked.rejections)
        if not checked.edits and not rejections:
            rejections = (Rejection(request.factor, "", "no-proposal"),)
        answers[at] = CheckedProposals(checked.edits, rejections)
    return [answers[at] for at in range(len(requests))]
