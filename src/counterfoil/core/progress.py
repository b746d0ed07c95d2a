"""Progress of long work: a bar on a terminal or in a notebook, a line every half minute anywhere else."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from counterfoil.core.errors import printable

INTERVAL = 30.0  # seconds between two lines where there is no bar

Show = Callable[[str, str, int, int | None], None]  # title, text, completed, total


@contextmanager
def watching(title: str) -> Iterator[tuple[Callable[[Any], None], Callable[[str], None]]]:
    """Yield two functions: one takes a run's progress and shows it, the other prints a line."""
    console = Console(stderr=True)
    began, first, shown = time.monotonic(), -1, ""
    with display(title, console) as show:

        def watch(progress: Any) -> None:
            nonlocal first, began, shown
            if first < 0:
                first = progress.done  # what was done before this command does not count as speed
            stage = getattr(progress, "stage", "")
            if stage != shown:
                shown, began, first = stage, time.monotonic(), progress.done
            new = progress.done - first
            # Images are done many at a time: without a total the bar moves until the first of them are.
            total = progress.total if new or progress.done == progress.total else None
            show(f"{title} {stage}".rstrip(), _state(progress, new, time.monotonic() - began), progress.done, total)

        yield watch, lambda line: _print(console, line)


@contextmanager
def counting(title: str, total: int = 0) -> Iterator[Callable[..., None]]:
    """Yield a function that takes how many more are done, and of how many if that is known only now, and shows it."""
    began, done = time.monotonic(), 0
    with display(title) as show:

        def more(count: int, of: int | None = None) -> None:
            nonlocal done, total
            done, total = done + count, total if of is None else of
            show(title, "  ".join([f"{done}/{total}", *_speed(done, total - done, time.monotonic() - began)]), done, total)

        more(0)
        yield more


def _state(progress: Any, new: int, seconds: float) -> str:
    """Counts, accepted share, speed and time left of a run; of a stage, the share of its results that were not rejected."""
    judged = progress.validated + progress.skipped if getattr(progress, "stage", "") else progress.done - progress.skipped
    parts = [f"{progress.done}/{'?' if progress.total is None else progress.total}"]
    parts += [f"accepted {progress.validated / judged:.0%}"] if judged else []
    return "  ".join([*parts, *_speed(new, None if progress.total is None else progress.total - progress.done, seconds)])


def _speed(new: int, left: int | None, seconds: float) -> list[str]:
    if not new:
        return []
    rate = new / max(seconds, 1e-9)
    return [f"{rate:.1f}/s" if rate >= 0.1 else f"{1 / rate:.0f} s each"] + (
        [] if left is None else [f"{timedelta(seconds=round(left / rate))} left"]
    )


@contextmanager
def display(title: str, console: Console | None = None) -> Iterator[Show]:
    """Yield a function that shows how far something is: as a bar on a terminal, elsewhere as a line now and then."""
    console = console or Console(stderr=True)
    if not (console.is_terminal or console.is_jupyter):
        with _lines(console, title) as show:
            yield show
        return
    columns = (
        TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.fields[text]}"), TimeElapsedColumn(),
    )  # fmt: skip
    redirect = not console.is_jupyter  # a kernel flushes these streams as it shows a bar, which would flush them again
    with Progress(*columns, console=console, transient=True, redirect_stdout=redirect, redirect_stderr=redirect) as bars:
        bar = bars.add_task(printable(title), total=None, text="loading")

        def show(title: str, text: str, completed: int, total: int | None) -> None:
            bars.update(bar, description=printable(title), total=total, completed=completed, text=text)

        yield show


@contextmanager
def _lines(console: Console, title: str) -> Iterator[Show]:
    """Print the latest state now and then, from a thread of its own: a single step may take longer than the interval."""
    began, ended, state = time.monotonic(), threading.Event(), f"{title}: loading"

    def show(title: str, text: str, completed: int, total: int | None) -> None:
        nonlocal state
        state = f"{title}: {text}"

    def report() -> None:
        while not ended.wait(INTERVAL):
            _print(console, f"{state}  after {timedelta(seconds=round(time.monotonic() - began))}")

    reporter = threading.Thread(target=report, name="progress", daemon=True)
    reporter.start()
    try:
        yield show
    finally:
        ended.set()
        reporter.join()


def _print(console: Console, line: str) -> None:
    console.print(f"counterfoil: {printable(line)}", highlight=False, markup=False, soft_wrap=True)
