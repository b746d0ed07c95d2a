"""Reads which of two choices a free answer means, or that it means neither.

What is read, the first that decides: a letter or place ("B", "the second one"); what follows a marker such as "Answer:"; the
one choice that is named and not denied; the short form of a name. An answer that names both without choosing, or none of
them, or declines, stays unread: it is never guessed at.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from counterfoil.protocols.imagenet_d.mentions import Mention, heads, mentions, plain

Names = Sequence[Sequence[str]]
"""For each of the two choices the names it goes by, the one it was asked under first."""

_OPTION, _ONE = r"(?:option|choice|answer|number)?\s*[(\[]?\s*", r"(?: one| option| choice| object)?"
_PLACES = (
    rf"{_OPTION}(?:a|1)\s*[)\].:]?|(?:the )?(?:first|former|1st){_ONE}",
    rf"{_OPTION}(?:b|2)\s*[)\].:]?|(?:the )?(?:second|latter|last|2nd){_ONE}",
)
_LETTERED = (r"^[(\[]?(?:a|1)\s?[)\].:]", r"^[(\[]?(?:b|2)\s?[)\].:]")
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
    text = plain(answer)
    bare = text.strip(_SIGNS)
    if not bare:
        return None
    for choice, pattern in enumerate(_PLACES):
        if re.fullmatch(rf"(?:it is |it's |i choose |i pick |my answer is |the answer is |answer: ?)?(?:{pattern})", bare):
            return choice
    found = mentions(text, names)
    if not found:
        return _by_place(text) if not (short := mentions(text, heads(names))) else _decided(text, short)
    return _decided(text, found)


def _decided(text: str, found: list[Mention]) -> int | None:
    if len({mention.choice for mention in found}) == 1:
        return _unless_denied(text, found)
    marked = _after_marker(text, found)
    if marked is not None:
        return marked
    if _DECLINES.search(text):
        return None
    left = {mention.choice for mention in found if not _denied(text, mention)}
    if len(left) == 1:
        return left.pop()
    firm = {mention.choice for mention in found if not _denied(text, mention) and not _likened(text, mention)}
    if len(firm) == 1:
        return firm.pop()
    return _lettered(text)


def _unless_denied(text: str, found: list[Mention]) -> int | None:
    """The one choice that is named, unless every mention of it is denied or the answer declines."""
    if all(_denied(text, mention) for mention in found) or _DECLINES.search(text):
        return None
    return found[0].choice


def _denied(text: str, mention: Mention) -> bool:
    return bool(_DENIED_BEFORE.search(_clause_before(text, mention)) or _DENIED_AFTER.search(text[mention.end :]))


def _likened(text: str, mention: Mention) -> bool:
    return bool(_RESEMBLES_BEFORE.search(_clause_before(text, mention)))


def _clause_before(text: str, mention: Mention) -> str:
    return re.split(r"[.;:!?。！？]", text[: mention.start])[-1]


def _after_marker(text: str, found: list[Mention]) -> int | None:
    """What is named right behind the last marker."""
    places = [match.end() for match in _MARKER.finditer(text)]
    for place in reversed(places):
        rest = text[place:].lstrip(_SIGNS)
        at = len(text) - len(rest)
        near = [mention for mention in found if at <= mention.start <= at + len("a pair of ")]
        said = {mention.choice for mention in found if mention.start >= at and not _denied(text, mention)}
        if near and not _denied(text, near[0]) and (len(said) == 1 or (near[0].start == at and _alone(text, near[0]))):
            return near[0].choice
        for choice, pattern in enumerate(_LETTERED):
            if re.match(pattern, rest) or rest.strip(_SIGNS) in ("ab"[choice], "12"[choice]):
                return choice
    return None


def _alone(text: str, mention: Mention) -> bool:
    """Whether a sentence ends with the mention."""
    return not text[mention.end :].strip() or text[mention.end :].lstrip("\"'”»」*")[:1] in ".!\n。！"


def _lettered(text: str) -> int | None:
    """The letter an answer opens with, as in "B) teapot, since a mug has no spout"."""
    for choice, pattern in enumerate(_LETTERED):
        if re.match(pattern, text.lstrip("\"'*“ ")):
            return choice
    return None


def _by_place(text: str) -> int | None:
    """An answer that names neither but says which: "Option B, because …", "The second one is right"."""
    if _DECLINES.search(text):
        return None
    said = set()
    for choice, (letter, place) in enumerate((("a|1", "first|former"), ("b|2", "second|latter"))):
        if re.search(
            rf"\b(?:option|choice|answer(?: is)?:?) [(\[]?(?:{letter})\b|\bthe (?:{place}) (?:one|option|choice|object)\b", text
        ):
            said.add(choice)
    if not said and (opening := _lettered(text)) is not None:
        return opening
    return said.pop() if len(said) == 1 else None
