"""One answer a row: refuses the rows with a fault, works on the others in batches of one size, keeps the order."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from counterfoil.parts.contracts import Refusal

log = logging.getLogger(__name__)

Row = TypeVar("Row")
Answer = TypeVar("Answer")


def answered(
    asked: Sequence[Row],
    fault: Callable[[Row], str | None],
    work: Callable[[list[Row]], Sequence[Answer | Refusal]],
    *,
    at_a_time: int,
    shrink: Callable[[int], None] = lambda rows: None,
) -> list[Answer | Refusal]:
    """The answers to `asked`: a refusal for a row with a fault, else what `work` gives for it.

    `work` gets exactly `at_a_time` rows, the last repeated where there are fewer: networks may round differently for another
    number of rows, and an answer must not depend on how many others were asked for. If memory runs out, the number is halved;
    `shrink` is told the new one.
    """
    answers: list[Answer | Refusal | None] = [None if reason is None else Refusal(reason) for reason in map(fault, asked)]
    places = [place for place, answer in enumerate(answers) if answer is None]
    while places:
        some = places[:at_a_time]
        try:
            found = work([asked[place] for place in some + some[-1:] * (at_a_time - len(some))])
        except torch.OutOfMemoryError:
            if at_a_time == 1:
                raise
            torch.cuda.empty_cache()
            log.warning("editor: memory ran out with %d rows at a time; going on with %d", at_a_time, at_a_time // 2)
            at_a_time //= 2
            shrink(at_a_time)
            continue
        for place, answer in zip(some, found, strict=False):
            answers[place] = answer
        places = places[len(some) :]
    return [answer for answer in answers if answer is not None]
