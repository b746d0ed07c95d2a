"""Call a part with one fixed number of rows, fewer when memory runs out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

log = logging.getLogger(__name__)

Row = TypeVar("Row")
Answer = TypeVar("Answer")


def in_batches(
    rows: Sequence[Row],
    size: int,
    call: Callable[[list[Row]], Sequence[Answer]],
    *,
    smaller: Callable[[int], None] | None = None,
    what: str = "part",
) -> list[Answer]:
    """Answers of `call`, one per row, always asked about exactly `size` rows, the last of them repeated where rows are missing.

    Networks may round differently for another number of rows, so an answer must not depend on how many others were asked for.
    With `smaller`, the size is halved when memory runs out, and `smaller` is told the new one; `what` is for the log.
    """
    answers: list[Answer] = []
    while len(answers) < len(rows):
        some = list(rows[len(answers) : len(answers) + size])
        try:
            found = call(some + some[-1:] * (size - len(some)))
        except torch.OutOfMemoryError:
            if smaller is None or size == 1:
                raise
            torch.cuda.empty_cache()
            log.warning("%s: out of memory with %d rows per batch; continuing with %d", what, size, size // 2)
            size //= 2
            smaller(size)
            continue
        answers += found[: len(some)]
    return answers
