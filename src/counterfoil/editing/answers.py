"""One answer a row: refuses the rows with a fault, works on the others in batches of one size, keeps the order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from counterfoil.editing.rows import tiles
from counterfoil.parts import Refused

Row = TypeVar("Row")
Answer = TypeVar("Answer")


def answered(
    asked: Sequence[Row],
    fault: Callable[[Row], str | None],
    work: Callable[[list[Row]], Sequence[Answer | Refused]],
    *,
    at_a_time: int,
) -> list[Answer | Refused]:
    """The answers to `asked`: a refusal for a row with a fault, else what `work` gives for it."""
    answers: list[Answer | Refused | None] = [None if reason is None else Refused(reason) for reason in map(fault, asked)]
    places = [place for place, answer in enumerate(answers) if answer is None]
    for tile, count in tiles(places, at_a_time):
        found = work([asked[place] for place in tile])
        for place, answer in zip(tile[:count], found[:count], strict=True):
            answers[place] = answer
    return [answer for answer in answers if answer is not None]
