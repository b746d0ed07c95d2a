"""A model that sees no colour: whether the search wins by shifting colours, which such a model would not notice."""

from __future__ import annotations

from counterfoil.studies.bench import Bench
from counterfoil.studies.contract import Study
from counterfoil.studies.crossing import cross, matrix_table
from counterfoil.studies.findings import Findings, apart, positive


def run(bench: Bench) -> Findings:
    """Both models on pictures made against either. The last model given is the grey one."""
    plain, grey = bench.models[0], bench.models[-1]
    scored = cross(bench, (plain, grey))
    table = matrix_table(scored, "Pictures made against one, scored on both", seed=bench.settings.seed)
    values = {row.about: row.values for row in table.rows}
    own, other = values[grey.name, grey.name], values[plain.name, grey.name]
    checks = (
        positive("a model without colour can be hurt too: colour is not the search's only way", own["harm"], required=False),
        apart(
            "it keeps more on pictures made against the coloured model than on its own", other["FMR"], own["FMR"], required=False
        ),
    )
    return Findings((table,), checks)


STUDY = Study(name="greyscale", published="Table 10", run=run, models=("lab:narrow", "lab:grey"), least_models=2)
