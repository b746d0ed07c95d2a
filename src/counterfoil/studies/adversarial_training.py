"""A model trained on adversarial pictures against a plain one, on pictures made against either; paired by source image."""

from __future__ import annotations

from counterfoil.studies.bench import Bench
from counterfoil.studies.contract import Study
from counterfoil.studies.crossing import cross, matrix_table
from counterfoil.studies.findings import Findings, positive
from counterfoil.studies.measured import difference


def run(bench: Bench) -> Findings:
    """Both models both ways. The last model given is the one trained on adversarial pictures."""
    plain, hardened = bench.models[0], bench.models[-1]
    scored = cross(bench, (plain, hardened))
    seed = bench.settings.seed
    table = matrix_table(scored, "Pictures made against one, scored on both", seed=seed)
    on_old = difference(scored[plain.name][hardened.name], scored[plain.name][plain.name], seed=seed)
    on_own = difference(scored[hardened.name][hardened.name], scored[plain.name][plain.name], seed=seed)
    checks = (
        positive(
            "the adversarially trained model keeps more on the plain model's pictures than that model does",
            on_old,
            required=False,
        ),
        positive(
            "it keeps more on pictures made against itself than the plain model on those made against it", on_own, required=False
        ),
    )
    return Findings((table,), checks)


STUDY = Study(name="adversarial-training", published="Table 8", run=run, models=("lab:narrow", "lab:adversarial"), least_models=2)
