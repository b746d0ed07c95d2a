"""Progress on a terminal: images done, images a second, time left, accepted share. Silent when the output is not one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@contextmanager
def watching(title: str) -> Iterator[tuple[Callable[[Any], None], Callable[[str], None]]]:
    """Two functions: one takes a run's progress and shows it, the other takes a line for people."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}/s"),
        TextColumn("accepted {task.fields[accepted]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        bar = bars.add_task(title, total=None, rate="–", accepted="–")
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
            bars.update(
                bar,
                description=f"{title} {stage}".rstrip(),
                total=progress.total,
                completed=progress.done,
                rate=f"{(progress.done - first) / max(time.monotonic() - began, 1e-9):.1f}",
                accepted=f"{progress.validated / readable:.0%}" if readable else "–",
            )

        def tell(line: str) -> None:
            console.print(f"counterfoil: {line}", highlight=False, markup=False, soft_wrap=True)

        yield watch, tell


@contextmanager
def counting(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """A function that takes how many more are done and shows it."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        bar = bars.add_task(title, total=total)
        yield lambda more: bars.advance(bar, more)
