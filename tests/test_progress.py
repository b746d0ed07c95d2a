"""What the bar says on a terminal, from the first moment on."""

from __future__ import annotations

import pytest
from rich.console import Console

from counterfoil.core import progress
from counterfoil.protocols.fmr.running import Progress
from counterfoil.store.stages import Progress as StageProgress


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, object]]:
    """What every update of the bar says."""
    updates: list[dict[str, object]] = []
    monkeypatch.setattr(progress, "Console", lambda stderr: Console(stderr=stderr, force_terminal=True))
    monkeypatch.setattr(progress.Progress, "update", lambda self, task, **fields: updates.append(fields))
    return updates


def test_the_bar_moves_without_a_total_until_the_first_images_are_done(shown: list[dict[str, object]]) -> None:
    with progress.watching("model") as (watch, _):
        watch(Progress(0, 40, 0, 0))
        watch(Progress(8, 40, 6, 0))
    first, second = shown
    assert first["total"] is None and first["said"] == "0/40"
    assert (
        second["total"] == 40 and str(second["said"]).startswith("8/40  accepted 75%") and str(second["said"]).endswith(" left")
    )


def test_what_an_earlier_sitting_did_counts_as_done_but_not_as_speed(shown: list[dict[str, object]]) -> None:
    with progress.watching("model") as (watch, _):
        watch(Progress(30, 40, 30, 0))
        watch(Progress(40, 40, 40, 0))
    assert shown[0]["said"] == "30/40  accepted 100%"
    assert str(shown[1]["said"]).endswith("0:00:00 left")


def test_a_stage_of_unknown_length_says_no_time_left(shown: list[dict[str, object]]) -> None:
    with progress.watching("model") as (watch, _):
        watch(StageProgress("edits", 0, None, 0, 0))
        watch(StageProgress("edits", 5, None, 5, 0))
    assert str(shown[1]["said"]).startswith("5/?  accepted 100%") and "left" not in str(shown[1]["said"])
