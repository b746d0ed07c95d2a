"""Two-choice questions to vision-language models, and how their free answers are read.

What is read, the first that decides: a letter or place ("B", "the second one"); what follows a marker such as "Answer:"; the
one choice that is named and not denied; the short form of a name. An answer that names both without choosing, or none of
them, or declines, stays unread: it is never guessed at.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from torch import Tensor

from counterfoil.parts import calls
from counterfoil.parts.contracts import Chat
from counterfoil.parts.language.english import noun_forms
from counterfoil.protocols.imagenet_d import QuestionSpec

Order = Literal["shuffled", "truth-first"]
Names = Sequence[Sequence[str]]
"""For each of the two choices the names it goes by, the one it was asked under first."""

MAX_ANSWER = 2_000  # characters of an answer that are read


@dataclass(frozen=True)
class Question:
    """The truth and the hardest wrong name, and which of them is named first."""

    truth: str
    wrong: str
    truth_first: bool

    @classmethod
    def draw(cls, truth: str, wrong: str, image_id: str, *, order: Order, seed: int) -> Question:
        """A question in the order drawn by the image's id, or with the truth first."""
        coin = hashlib.blake2b(f"{seed}\0{image_id}\0order".encode(), digest_size=1).digest()[0] % 2 == 0
        return cls(truth, wrong, order == "truth-first" or coin)

    @property
    def turned(self) -> Question:
        return Question(self.truth, self.wrong, not self.truth_first)

    def text(self, template: str) -> str:
        first, second = (self.truth, self.wrong) if self.truth_first else (self.wrong, self.truth)
        return template.replace("{first}", first).replace("{second}", second)

    def read(self, answer: str, kin: Mapping[str, Sequence[str]]) -> bool | None:
        """True if the answer is the truth, None where it means neither choice."""
        names = [(name, *kin.get(name, ())) for name in (self.truth, self.wrong)]
        chosen = read_answer(answer, names if self.truth_first else names[::-1])
        return None if chosen is None else (chosen == 0) == self.truth_first


def ask(
    chat: Chat,
    images: Sequence[Tensor],
    questions: Sequence[Question],
    settings: QuestionSpec,
    *,
    kin: Mapping[str, Sequence[str]],
) -> list[dict[str, Any]]:
    """One entry per image: the answer and whether it is right, and the same for the other order if that is asked too."""
    found: list[dict[str, Any]] = [{"question": each.text(settings.text)} for each in questions]
    orders = {"": questions, "_turned": [each.turned for each in questions]}
    for name in ("", "_turned") if settings.both_orders else ("",):
        answers = calls.guard(chat.answer, "the chat")(images, [each.text(settings.text) for each in orders[name]])
        for entry, question, answer in zip(found, orders[name], (str(each)[:MAX_ANSWER] for each in answers), strict=True):
            entry |= {f"answer{name}": answer, f"right{name}": question.read(answer, kin)}
    return found


# Reading an answer

_PLACES = (("a|1", "first|former|1st"), ("b|2", "second|latter|last|2nd"))
_WHOLE = (  # as "(b)", "Option B", "I choose the second one"
    r"^(?:it is |it's |i choose |i pick )?(?:(?:option|choice|number)?\s*[(\[]?\s*(?:%(letter)s)\s*[)\].:]?"
    r"|(?:the )?(?:%(place)s)(?: one| option| choice| object)?)$"
)
_WITHIN = r"\b(?:option|choice) [(\[]?(?:%(letter)s)\b|\bthe (?:%(place)s) (?:one|option|choice|object)\b"
_OPENING = r"^[\"'*“ ]*[(\[]?(?:%(letter)s)\s?[)\].:]"  # as "B) teapot, since a mug has no spout"
_SIGNS = "\"'“”„«»‹›「」『』《》*.,;:!?。，！？、…¿¡()[] \n\t"
_MARKER = re.compile(
    r"(?:final answer|answer|antwort|respuesta|reponse|risposta|resposta|main object|main subject|答案|回答)"
    r"(?: in (?:the|this) (?:image|picture|photo))?(?: is| es| est| ist)?\s*[:：\-]?\s*"
)
_DENIED_BEFORE = re.compile(
    r"(?:\bnot|n't|\bno|\bnever|\bnor|\bneither|\brather than|\binstead of|\bexcept|\bthan|\bunlike|\bwithout)"
    r"(?: (?:a|an|the|any|be|it|is|really|actually|look|looks|like|seem|to|show|shows|see|just|quite|mistaken|for|pair|of))*\s*"
    r"[\"'“«„「]?$"
)
_RESEMBLES_BEFORE = re.compile(
    r"(?:looks?|looking|seems?|resembles?|resembling|similar|mistaken|shaped|reminiscent|painted|decorated|styled)"
    r"(?: (?:a|an|the|like|to|of|as|for|bit|somewhat|at|first|glance|sight|kind|sort|in|pair))*\s*[\"'“«„「]?$"
)
_DENIED_AFTER = re.compile(
    r"^[\"'”»“」]?(?: (?:is|are|was|does|do|can|could))?"
    r"(?:n't| not| absent| cannot)(?! only)|^[\"'”»“」]? (?:is|are) (?:missing|nowhere)"
)
_DECLINES = re.compile(
    r"\b(?:neither|none of (?:the|these|them)|unable to|impossible to (?:tell|say)|hard to (?:tell|say)|could be either"
    r"|either one|(?:can ?not|can't) (?:determine|tell|say|decide|answer|identify)|not (?:sure|certain|clear) (?:whether|if))\b"
)


def read_answer(answer: str, names: Names) -> int | None:
    """The choice that an answer means, 0 or 1; None where it means neither or cannot be told."""
    text = plain(answer[:MAX_ANSWER])
    for marker in reversed([*_MARKER.finditer(text)]):
        sentence = re.split(r"[.!。！]", text[marker.end() :].lstrip(_SIGNS), maxsplit=1)[0]
        if (chosen := _read(sentence, names)) is not None:
            return chosen
    return _read(text, names)


def _read(text: str, names: Names) -> int | None:
    if (whole := _by_place(text.strip(_SIGNS), _WHOLE)) is not None:
        return whole
    found = mentions(text, names) or mentions(text, heads(names))
    if _DECLINES.search(text):
        return None
    if not found:
        return _by_place(text, _WITHIN, _OPENING)
    left = [mention for mention in found if not _is_denied(text, mention)]
    firm = [mention for mention in left if not _RESEMBLES_BEFORE.search(_clause_before(text, mention))]
    for some in (left, firm):
        if len(choices := {mention.choice for mention in some}) == 1:
            return choices.pop()
    return _by_place(text, _OPENING)


def _by_place(text: str, *forms: str) -> int | None:
    """The choice that an answer gives by its letter, number or place, in the first of these forms that says one."""
    for form in forms:
        patterns = [form % {"letter": letter, "place": place} for letter, place in _PLACES]
        said = [choice for choice, pattern in enumerate(patterns) if re.search(pattern, text)]
        if len(said) == 1:
            return said[0]
    return None


def _is_denied(text: str, mention: Mention) -> bool:
    return bool(_DENIED_BEFORE.search(_clause_before(text, mention)) or _DENIED_AFTER.search(text[mention.end :]))


def _clause_before(text: str, mention: Mention) -> str:
    return re.split(r"[.;:!?。！？]", text[: mention.start])[-1]


# Names in a sentence

_APOSTROPHES = str.maketrans({"’": "'", "‘": "'", "ʼ": "'", "`": "'", "´": "'"})
_EDGE_BEFORE, _EDGE_AFTER = r"(?<![a-z0-9])", r"(?:'s)?(?![a-z0-9])"  # other scripts may stand next to a name


@dataclass(frozen=True)
class Mention:
    """A place where a sentence names one of the choices."""

    choice: int
    start: int
    end: int


def plain(text: str) -> str:
    """The text without accents, capitals, hyphens and underscores; every other sign stays where it is."""
    folded = unicodedata.normalize("NFKD", text.translate(_APOSTROPHES)).casefold()
    letters = (letter for letter in folded if not unicodedata.combining(letter))
    return re.sub(r"[\s\-_‐‑–]+", " ", "".join(letters)).strip()


def mentions(text: str, names: Sequence[Sequence[str]]) -> list[Mention]:
    """Mentions of the choices in a plain text, in order. A longer name is not also a mention of one inside it."""
    found: list[Mention] = []
    taken = bytearray(len(text))
    patterns = [(choice, name) for choice, each in enumerate(names) for name in each if plain(name)]
    for choice, name in sorted(patterns, key=lambda pair: -len(plain(pair[1]))):
        for match in _pattern(name).finditer(text):
            if not any(taken[match.start() : match.end()]):
                taken[match.start() : match.end()] = bytes([1]) * (match.end() - match.start())
                found.append(Mention(choice, match.start(), match.end()))
    return sorted(found, key=lambda mention: mention.start)


def heads(names: Sequence[Sequence[str]]) -> list[list[str]]:
    """Short forms of each choice, where they tell the choices apart: "mouse" for "computer mouse"."""
    short = [{_head(plain(name)) for name in each} - {plain(name) for name in each} for each in names]
    words = [{word for name in each for word in plain(name).split()} for each in names]
    return [
        sorted(head for head in own if not any(head in other for at, other in enumerate(words) if at != place))
        for place, own in enumerate(short)
    ]


@lru_cache(maxsize=4096)
def _pattern(name: str) -> re.Pattern[str]:
    forms = {form for form in noun_forms(plain(name)) if form}
    spaced = (_spacing(form) for form in sorted(forms, key=len, reverse=True))
    return re.compile(f"{_EDGE_BEFORE}(?:{'|'.join(spaced)}){_EDGE_AFTER}")


def _spacing(form: str) -> str:
    """A pattern that takes "tea pot" for "teapot" and "paintbrush" for "paint brush"; short words have to be as they are."""
    letters = form.replace(" ", "")
    if " " not in form and len(letters) < 6:
        return re.escape(form)
    return " ?".join(re.escape(letter) for letter in letters)


def _head(name: str) -> str:
    words = name.partition(" of ")[0].split()
    return words[-1] if words else name
