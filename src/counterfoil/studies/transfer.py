"""Pictures made against one model, scored on others: whether what hurts one hurts all."""

from __future__ import annotations

from counterfoil.metrics.transfer import pooled
from counterfoil.studies.bench import Bench
from counterfoil.studies.contract import Study
from counterfoil.studies.crossing import cross, matrix_table
from counterfoil.studies.findings import Findings, Row, Table, positive


def run(bench: Bench) -> Findings:
    """The matrix, and over all its cells what the search took from its target and from the others."""
    scored = cross(bench)
    seed = bench.settings.seed
    harm = pooled(scored, seed=seed)
    rows = (
        Row(("the model they were made against",), {"harm": harm["own"]}),
        Row(("other models",), {"harm": harm["others"]}),
        Row(("difference",), {"harm": harm["spared"]}),
    )
    return Findings(
        tables=(
            matrix_table(scored, "Pictures made against one model, scored on another", seed=seed),
            Table("Accuracy the search took beyond the plain reconstruction, in points, over all cells", ("harm to",), rows),
        ),
        checks=(
            positive("made pictures transfer: they hurt models they were not made against", harm["others"]),
            positive("they hurt their own target more than the others", harm["spared"]),
        ),
    )


STUDY = Study(
    name="transfer",
    published="Table 6 (and the first columns of Tables 8, 9 and 10)",
    run=run,
    models=("lab:narrow", "lab:augmented", "lab:diverse", "lab:vit"),
    least_models=2,
)
