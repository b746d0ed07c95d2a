"""A model that sees no colour: whether the search wins by shifting colours, which such a model would not notice."""

from __future__ import annotations

from counterfoil.studies.bench import Bench
from counterfoil.studies.contract import Study
from counterfoil.studies.crossing import cross, matrix_table
from counterfoil.studies.findings import Findings, positive
from counterfoil.studies.measured import difference


def run(bench: Bench) -> Findings:
    """Both models on pictures made against either. The last model given is the grey one."""
    plain, grey = bench.models[0], bench.models[-1]
    scored = cross(bench, (plain, grey))
    seed = bench.settings.seed
    table = matrix_table(scored, "Pictures made against one, scored on both", seed=seed)
    own = {row.about: row.values for row in table.rows}[grey.name, grey.name]
    spared = difference(scored[plain.name][grey.name], scored[grey.name][grey.name], seed=seed)
    checks = (
        positive("a model without colour can be hurt too: colour is not the search's only way", own["harm"], required=False),
        positive("it keeps more on pictures made against the coloured model than on its own", spared, required=False),
    )
    return Findings((table,), checks)


STUDY = Study(name="greyscale", published="Table 10", run=run, models=("lab:narrow", "lab:grey"), least_models=2)
