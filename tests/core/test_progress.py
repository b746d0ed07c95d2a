"""Progress on a terminal and through a pipe; memory that a process of our own keeps."""

from __future__ import annotations

import ctypes
import io
import sys
import threading
from types import SimpleNamespace

import pytest
from rich.console import Console

from counterfoil.core import process, progress
from counterfoil.protocols.base import Progress
from counterfoil.protocols.workspace import device_of


@pytest.fixture
def bar_updates(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, object]]:
    """The fields of every update of the bar."""
    updates: list[dict[str, object]] = []
    monkeypatch.setattr(progress, "Console", lambda stderr: Console(stderr=stderr, force_terminal=True))
    monkeypatch.setattr(progress.Progress, "update", lambda self, task, **fields: updates.append(fields))
    return updates


class Pipe(io.StringIO):
    """A stream that is no terminal and knows when a line has arrived."""

    def __init__(self) -> None:
        super().__init__()
        self.arrived = threading.Event()

    def write(self, text: str) -> int:
        size = super().write(text)
        if "\n" in text:
            self.arrived.set()
        return size


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Pipe:
    """Stand-in for a stream that is no terminal; lines come every few milliseconds."""
    stream = Pipe()
    monkeypatch.setattr(progress, "Console", lambda stderr: Console(file=stream))
    monkeypatch.setattr(progress, "INTERVAL", 0.005)
    return stream


def test_the_bar_moves_without_a_total_until_the_first_images_are_done(bar_updates: list[dict[str, object]]) -> None:
    with progress.watching("model") as (watch, _):
        watch(Progress(0, 40, 0, 0))
        watch(Progress(8, 40, 6, 0))
    first, second = bar_updates
    assert first["total"] is None and first["text"] == "0/40"
    assert second["total"] == 40
    assert str(second["text"]).startswith("8/40  accepted 75%") and str(second["text"]).endswith(" left")


def test_images_of_an_earlier_command_count_as_done_but_not_as_speed(bar_updates: list[dict[str, object]]) -> None:
    with progress.watching("model") as (watch, _):
        watch(Progress(30, 40, 30, 0))
        watch(Progress(40, 40, 40, 0))
    assert bar_updates[0]["text"] == "30/40  accepted 100%"
    assert str(bar_updates[1]["text"]).endswith("0:00:00 left")


def test_a_stage_of_unknown_length_has_no_time_left(bar_updates: list[dict[str, object]]) -> None:
    with progress.watching("model") as (watch, _):
        watch(Progress(0, None, stage="edits"))
        watch(Progress(5, None, 5, stage="edits"))
    assert str(bar_updates[1]["text"]).startswith("5/?  accepted 100%") and "left" not in str(bar_updates[1]["text"])


def test_through_a_pipe_a_run_reports_as_it_goes(pipe: Pipe) -> None:
    with progress.watching("lab:narrow") as (watch, _):
        assert pipe.arrived.wait(60)  # before the first image
        watch(Progress(0, 40, 0, 0))
        watch(Progress(8, 40, 6, 0))
        pipe.arrived.clear()
        assert pipe.arrived.wait(60)
    lines = pipe.getvalue().splitlines()
    assert lines[0].startswith("counterfoil: lab:narrow: loading  after 0:00:0")
    assert any(line.startswith("counterfoil: lab:narrow: 8/40  accepted 75%") and " left  after " in line for line in lines)


def test_through_a_pipe_counts_are_reported_as_they_grow(pipe: Pipe) -> None:
    with progress.counting("export", 9) as more:
        more(3)
        pipe.arrived.clear()
        assert pipe.arrived.wait(60)
    assert "counterfoil: export: 3/9" in pipe.getvalue()


def test_nothing_is_printed_for_short_work_through_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Pipe()
    monkeypatch.setattr(progress, "Console", lambda stderr: Console(file=stream))
    with progress.watching("model") as (watch, _):
        watch(Progress(40, 40, 40, 0))
    assert stream.getvalue() == ""


@pytest.mark.parametrize("terminal", [True, False])
def test_names_cannot_control_the_terminal_or_break_the_bar(monkeypatch: pytest.MonkeyPatch, terminal: bool) -> None:
    stream = Pipe()
    monkeypatch.setattr(progress, "INTERVAL", 0.005)
    monkeypatch.setattr(progress, "Console", lambda stderr: Console(file=stream, force_terminal=terminal, width=200))
    with progress.watching("a\x1b]0;title\x07 [/b]") as (watch, tell):
        watch(Progress(1, 2, 1, 0))
        tell("file\x1b]0;title\x07.png")
        if not terminal:
            assert pipe_says(stream, "[/b]")
    assert "\x1b]0;title\x07" not in stream.getvalue()
    assert "file\\x1b]0;title\\x07.png" in stream.getvalue() and "[/b]" in stream.getvalue()


def pipe_says(stream: Pipe, text: str) -> bool:
    """Wait until the text has arrived."""
    while text not in stream.getvalue():
        stream.arrived.clear()
        if text not in stream.getvalue() and not stream.arrived.wait(60):
            return False
    return True


@pytest.mark.skipif(sys.platform != "linux", reason="glibc")
def test_only_a_process_of_our_own_keeps_freed_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    libc = SimpleNamespace(mallopt=lambda option, value: asked.append((option, value)))
    monkeypatch.setattr(ctypes, "CDLL", lambda name: libc)
    device_of("cpu")  # as every run from Python does
    assert asked == []
    process.keep_freed_memory()
    assert len(asked) == 2


def test_a_notebook_keeps_its_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "Console", lambda stderr: Console(file=io.StringIO(), force_jupyter=True))
    monkeypatch.setattr("rich.jupyter.display", lambda segments, text: None)
    before = sys.stdout, sys.stderr
    with progress.watching("run"):
        assert (sys.stdout, sys.stderr) == before
