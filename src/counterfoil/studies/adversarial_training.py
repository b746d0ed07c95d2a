"""A model trained on adversarial pictures against a plain one, on pictures made against either."""

from __future__ import annotations

from counterfoil.studies.bench import Bench
from counterfoil.studies.contract import Study
from counterfoil.studies.crossing import cross, matrix_table
from counterfoil.studies.findings import Findings, apart


def run(bench: Bench) -> Findings:
    """Both models both ways. The last model given is the one trained on adversarial pictures."""
    plain, hardened = bench.models[0], bench.models[-1]
    scored = cross(bench, (plain, hardened))
    table = matrix_table(scored, "Pictures made against one, scored on both", seed=bench.settings.seed)
    values = {row.about: row.values for row in table.rows}
    checks = (
        apart(
            "the adversarially trained model keeps more on the plain model's pictures than that model does",
            values[plain.name, hardened.name]["FMR"],
            values[plain.name, plain.name]["FMR"],
            required=False,
        ),
        apart(
            "it keeps more than the plain model on pictures made against itself",
            values[hardened.name, hardened.name]["FMR"],
            values[plain.name, plain.name]["FMR"],
            required=False,
        ),
    )
    return Findings((table,), checks)


STUDY = Study(name="adversarial-training", published="Table 8", run=run, models=("lab:narrow", "lab:adversarial"), least_models=2)
