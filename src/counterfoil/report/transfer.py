"""Whether pictures made against one model mislead others: the transfer matrix as a heat map."""

from __future__ import annotations

from collections.abc import Sequence

from counterfoil.core.errors import CounterfoilError
from counterfoil.metrics.transfer import Transfer, transfer_of
from counterfoil.report.charts.heat import heat
from counterfoil.report.charts.svg import Figure
from counterfoil.report.collect import Collected
from counterfoil.report.numbers import count, number


def heat_map(runs: Sequence[Collected], *, name: str) -> Figure | None:
    """The chart over finished runs on whose pictures other models were scored; None where there is none."""
    finished = [each for each in runs if each.results is not None]
    if not any(each.answers.other_models for each in finished):
        return None
    try:
        matrix = transfer_of([each.run for each in finished], names=[each.label for each in finished])
    except CounterfoilError:  # models that saw too little; the page says so where it lists them
        return None
    cells = {(cell.made_against, cell.model): number({"FMR": cell.values["FMR"].to_dict()}, "FMR") for cell in matrix.cells}
    return heat(
        name,
        "Transfer: FMR on pictures made against each model",
        rows=matrix.rows,
        columns=matrix.columns,
        cells=cells,
        words=_words(matrix),
        corner="made against",
        framed=frozenset((cell.made_against, cell.model) for cell in matrix.cells if cell.own),
    )


def _words(matrix: Transfer) -> str:
    text = (
        "A row a model that pictures were made against, a column a model that looked at them: the share of its accuracy that "
        "it keeps, in per cent. Framed: the model on the pictures made against itself."
    )
    spared = [cell.values for cell in matrix.cells if "spared" in cell.values and cell.values["spared"].value is not None]
    if not spared:
        return text
    clear = sum((found["spared"].low or 0) > 0 for found in spared)
    harmed = sum((found["harm"].low or 0) > 0 for found in spared)
    return (
        f"{text} Among {count(len(spared), 'cell')} of models that had no part in the pictures, {harmed} show a clear harm and "
        f"{clear} clearly less of it than the model the pictures were made against."
    )
