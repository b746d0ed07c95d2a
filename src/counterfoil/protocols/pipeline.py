"""Work that is done beside the main thread, while that waits for a GPU or computes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

Result = TypeVar("Result")

THREADS = 4  # an image's pictures take one of them some 30 ms
WAITING = 256  # results that may wait for the main thread, or be under way: climbs that go on to the end end together


@contextmanager
def in_background(
    work: Callable[..., Result], take: Callable[[Result], None], *, waits: bool = True
) -> Iterator[Callable[..., None]]:
    """A function that has `work` done on its arguments by other threads, if the main one `waits` for anything.

    `take` gets the results in their order, in the thread that calls; when the block is left, however that comes about, it
    has got all of them.
    """
    if not waits:
        yield lambda *arguments: take(work(*arguments))
        return
    under_way: deque[Future[Result]] = deque()

    def hand_over(most: int) -> None:
        while under_way and (len(under_way) > most or under_way[0].done()):
            take(under_way.popleft().result())

    with ThreadPoolExecutor(THREADS, thread_name_prefix="background") as threads:

        def submit(*arguments: Any) -> None:
            under_way.append(threads.submit(work, *arguments))
            hand_over(WAITING)

        try:
            yield submit
        finally:
            hand_over(0)
