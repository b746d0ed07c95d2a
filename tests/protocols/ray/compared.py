"""Content of runs, for comparison."""

from __future__ import annotations

from pathlib import Path

from counterfoil import store


def content(run: store.Run) -> tuple[list, ...]:
    """Everything a run holds that may be compared, in an order that does not depend on its chunks."""
    kinds = ("clean", "reconstruction", "made")
    named = [(trial, kind) for trial in run.trials for kind in kinds if (trial.image if kind == "made" else getattr(trial, kind))]
    files = sorted((trial.trial_id, kind, run.picture(trial, kind).read_bytes()) for trial, kind in named)
    return (*(sorted(map(repr, rows)) for rows in (run.trials, run.predictions(), run.verdicts())), files)


def tables(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted((path / "stages").glob("*.jsonl"))}
