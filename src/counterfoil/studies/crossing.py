"""Every model's pictures on every model: the runs behind transfer, greyscale and adversarial training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from counterfoil.core.spec import PartSpec
from counterfoil.metrics.outcomes import Outcomes
from counterfoil.metrics.transfer import Cell, transfer
from counterfoil.studies.bench import Bench
from counterfoil.studies.findings import Row, Table

Scored = Mapping[str, Mapping[str, Outcomes]]
"""By the model that pictures were made against, then by the model that was asked about them."""

SHOWN = ("SA", "PA_reconstruction", "PA", "FMR", "FMR_matched", "harm", "spared")


def cross(bench: Bench, models: tuple[PartSpec, ...] | None = None, **changes: Any) -> Scored:
    """Pictures made against each model, and what every model says of them."""
    chosen = bench.models if models is None else models
    runs = {model.name: bench.run(model, **changes) for model in chosen}
    return {name: {model.name: bench.scored(run, model) for model in chosen} for name, run in runs.items()}


def matrix_table(scored: Scored, title: str, *, seed: int = 0) -> Table:
    """The transfer matrix with a row a cell, as the paper prints it."""
    cells = transfer(scored, seed=seed).cells
    return Table(title, ("made against", "model"), tuple(_row(cell) for cell in cells))


def _row(cell: Cell) -> Row:
    return Row((cell.made_against, cell.model), {name: cell.values[name] for name in SHOWN if name in cell.values})
