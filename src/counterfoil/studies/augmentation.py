"""Make pictures against a model, fine-tune it on them, and test it on the old pictures and on newly made ones.

A model that has seen such pictures does better on those made against its former self. What the search then finds against
the new model says how much of that is robustness. The pictures it is trained on come from other source images than those
it is tested on.
"""

from __future__ import annotations

from counterfoil.core.errors import UsageError
from counterfoil.core.spec import PartSpec
from counterfoil.metrics.outcomes import Outcomes, read_outcomes
from counterfoil.protocols.assembly import Given
from counterfoil.studies.bench import Bench
from counterfoil.studies.contract import Study
from counterfoil.studies.crossing import matrix_table
from counterfoil.studies.findings import Findings, Row, Table, positive
from counterfoil.studies.measured import difference
from counterfoil.studies.tuning import Recipe, Tuned, fine_tuned


def run(bench: Bench) -> Findings:
    """Both models on pictures made against either, and what training gained on old and on new pictures."""
    plain = bench.models[0]
    tuned = _tuned(bench, plain)
    before = bench.run(plain)
    after = bench.run(tuned.part, given=Given({"model": tuned.model}))
    names = {plain.name: plain.name, tuned.part.name: f"{plain.name}, tuned"}
    scored: dict[str, dict[str, Outcomes]] = {
        names[plain.name]: {
            names[plain.name]: read_outcomes(before),
            names[tuned.part.name]: bench.scored(before, tuned.part, built=tuned.model),
        },
        names[tuned.part.name]: {
            names[plain.name]: bench.scored(after, plain),
            names[tuned.part.name]: read_outcomes(after),
        },
    }
    seed = bench.settings.seed
    (plain_old, tuned_old), (_, tuned_new) = (tuple(row.values()) for row in scored.values())
    gains = {
        "on old pictures": difference(tuned_old, plain_old, seed=seed),
        "on newly made ones": difference(tuned_new, plain_old, seed=seed),
        "old less new": difference(tuned_old, tuned_new, seed=seed),
    }
    table = Table(
        "FMR gained by fine-tuning, in points, paired by source image",
        ("gain",),
        tuple(Row((name,), {"FMR": each}) for name, each in gains.items()),
    )
    checks = (
        positive("fine-tuning helps on pictures made against the model before", gains["on old pictures"]),
        positive("it helps on those more than on newly made ones", gains["old less new"]),
        positive("it also helps on newly made ones (reported, not required)", gains["on newly made ones"], required=False),
    )
    return Findings((matrix_table(scored, "Pictures made against one, scored on both", seed=seed), table), checks)


def _tuned(bench: Bench, plain: PartSpec) -> Tuned:
    options = bench.options
    run = bench.run(plain, data=_training_data(bench), images=int(options["training_images"]))
    recipe = Recipe(int(options["epochs"]), int(options["batch"]), float(options["learning_rate"]), bench.settings.seed)
    total = recipe.epochs * 2 * int(options["training_images"])
    with bench.counting(f"fine-tuning {plain.name}", total) as watch:
        return fine_tuned(plain, run, recipe=recipe, folder=bench.folder / "tuned", device=bench.settings.device, watch=watch)


def _training_data(bench: Bench) -> PartSpec:
    """Source images that the test does not use: the lab's tuning garments, or what was given."""
    given, tested = str(bench.options["training_data"]), bench.settings.data
    if given:
        return PartSpec(name=given if ":" in given else f"folder:{given}")
    if tested.name.startswith("lab:"):
        return PartSpec(name=tested.name, options={**tested.options, "split": "tune"})
    raise UsageError("augmentation: name other images than the tested ones to train on, as in --set training_data=folder:train")


STUDY = Study(
    name="augmentation",
    published="Table 9",
    run=run,
    models=("lab:narrow",),
    options={"training_data": "", "training_images": 192, "epochs": 8, "batch": 32, "learning_rate": 5e-4},
)
