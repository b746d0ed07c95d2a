"""Progress on a terminal or in a notebook: images done, images a second, time left, accepted share. Silent elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


@contextmanager
def watching(title: str) -> Iterator[tuple[Callable[[Any], None], Callable[[str], None]]]:
    """Two functions: one takes a run's progress and shows it, the other takes a line for people."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[said]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not _seen(console)) as bars:
        bar = bars.add_task(title, total=None, said="loading")
        began, first, shown = time.monotonic(), -1, ""

        def watch(progress: Any) -> None:
            nonlocal first, began, shown
            if first < 0:
                first = progress.done  # what an earlier sitting did does not count as speed
            readable = progress.done - progress.skipped
            stage = getattr(progress, "stage", "")
            if stage != shown:
                shown, began, first = stage, time.monotonic(), progress.done
            if stage:  # a stage's results, several an item, go on or are turned away
                readable = progress.validated + progress.skipped
            said = [f"{progress.done}/{'?' if progress.total is None else progress.total}"]
            said += [f"accepted {progress.validated / readable:.0%}"] if readable else []
            if new := progress.done - first:
                rate = new / max(time.monotonic() - began, 1e-9)
                said += [f"{rate:.1f}/s"]
                if progress.total is not None:
                    said += [f"{timedelta(seconds=round((progress.total - progress.done) / rate))} left"]
            bars.update(
                bar,
                description=f"{title} {stage}".rstrip(),
                total=progress.total if new or progress.done == progress.total else None,
                completed=progress.done,
                said="  ".join(said),
            )  # images are done many at a time: without a total the bar moves until the first of them are

        def tell(line: str) -> None:
            console.print(f"counterfoil: {line}", highlight=False, markup=False, soft_wrap=True)

        yield watch, tell


@contextmanager
def counting(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """A function that takes how many more are done and shows it."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not _seen(console)) as bars:
        bar = bars.add_task(title, total=total)
        yield lambda more: bars.advance(bar, more)


def _seen(console: Console) -> bool:
    """Whether somebody looks on, rather than a log."""
    return console.is_terminal or console.is_jupyter
