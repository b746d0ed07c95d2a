"""Sentences with slots: `a photo of {a} {colour} {object} {nuisance}`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from string import Formatter

from counterfoil.core.errors import BadSpec
from counterfoil.parts.language.english import article

NEEDED = ("object", "nuisance")
ARTICLE = "a"
_MARK = "\0"


def check_template(template: str, *, fillers: Collection[str], what: str) -> list[str]:
    """The slots of a template beside object, nuisance and article; refused if it lacks one or has one nobody fills."""
    try:
        slots = [slot for _, slot, _, _ in Formatter().parse(template) if slot is not None]
    except ValueError as error:
        raise BadSpec(f"{what}: the template {template!r} cannot be read ({error}); write slots as {{object}}") from None
    for slot in NEEDED:
        if slot not in slots:
            raise BadSpec(f"{what}: the template {template!r} has no slot {{{slot}}}; write it where the {slot} belongs")
    others = [slot for slot in slots if slot not in (*NEEDED, ARTICLE)]
    unknown = next((slot for slot in others if slot not in fillers), None)
    if unknown is not None:
        held = f"; fillers are {', '.join(fillers)}" if fillers else ""
        raise BadSpec(f"{what}: the template {template!r} has the slot {{{unknown}}}, which nothing fills{held}")
    return others


def filled(template: str, values: Mapping[str, str], *, lead: str = "") -> str:
    """The sentence. `{a}` becomes `lead` or, without one, a or an by the sound that follows."""
    text = template.format_map({**values, ARTICLE: _MARK})
    text = " ".join(text.replace(_MARK, f" {_MARK} ").split())
    while _MARK in text:
        before, _, after = text.partition(_MARK)
        text = f"{before}{lead or article(after)}{after}"
    return text
