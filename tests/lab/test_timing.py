"""Times of the lab's models: what is timed, and what is kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from counterfoil.lab import timing


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Everything once and small, kept in a folder of the test."""
    monkeypatch.setattr(timing, "REPEATS", 2)
    monkeypatch.setattr(timing, "BATCH", 2)
    monkeypatch.setattr(timing, "loads", lambda name: [0.5, 0.3, 0.4])
    monkeypatch.setattr(timing, "painting", lambda folder: [3.0])
    monkeypatch.setattr(timing, "WEIGHTS", tmp_path)
    for name in ("vqgan", "diffusion", "narrow"):
        (tmp_path / name).mkdir()
    return tmp_path


def test_times_are_kept_with_their_machine_only_when_asked(brief: Path) -> None:
    timing.main(["narrow"])
    assert not (brief / "narrow" / "timed.json").exists()
    timing.main(["narrow", "--keep"])
    record = json.loads((brief / "narrow" / "timed.json").read_text(encoding="utf-8"))
    assert record["machine"]
    assert record["threads"] == 2
    [loading] = record["readings"]
    assert (loading["value"], loading["low"], loading["high"], loading["n"], loading["at_most"]) == (0.4, 0.3, 0.5, 3, 2)


def test_the_generators_that_the_demo_may_run_on_are_both_timed(brief: Path) -> None:
    steps = [reading for name in ("vqgan", "diffusion") for reading in timing.timed(name) if reading.unit == "ms an image"]
    assert [step.name for step in steps] == [f"decode and backward of {name}, batch 2" for name in ("lab:vqgan", "lab:kl")]
    assert all(step.n == 2 and 0 < step.low <= step.value <= step.high for step in steps)


def test_a_model_that_there_is_not_is_said_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        timing.main(["vqgn"])
    assert "did you mean 'vqgan'" in capsys.readouterr().err
