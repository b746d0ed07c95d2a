"""How many surrogates are enough: pictures that k models miss, shown to models that took no part."""

from __future__ import annotations

from counterfoil.core.records import Estimate
from counterfoil.metrics.surrogates import Mined, mined
from counterfoil.studies.bench import Bench
from counterfoil.studies.contract import Study
from counterfoil.studies.findings import Findings, Row, Table, positive


def run(bench: Bench) -> Findings:
    """Accuracy of the others against the number of surrogates, and what each further one gains.

    Pictures are made against the first models, as many as `made_against` says; all models are asked about all of them.
    """
    runs = [bench.run(model) for model in bench.models[: int(bench.options["made_against"])]]
    against = [model.name for model in bench.models[: len(runs)]]
    scored = {
        name: {model.name: bench.scored(run, model) for model in bench.models} for name, run in zip(against, runs, strict=True)
    }
    found = mined(scored, most=int(bench.options["most"]), seed=bench.settings.seed)
    rows = tuple(Row((str(each.surrogates),), _values(each)) for each in found)
    checks = []
    gains = [each.gain for each in found if each.gain is not None]
    if gains:
        checks.append(positive("a first surrogate makes the set harder for models that took no part", gains[0]))
    if len(gains) > 1:
        checks.append(positive(f"the {len(gains)}. one still does (reported, not required)", gains[-1], required=False))
    return Findings(
        (Table("Models that took no part, on pictures that all surrogates miss", ("surrogates",), rows),), tuple(checks)
    )


def _values(each: Mined) -> dict[str, Estimate]:
    values = {"accuracy %": each.accuracy, "pictures kept %": each.kept}
    return values if each.gain is None else {**values, "harder by, points": each.gain}


STUDY = Study(
    name="surrogates",
    published="none; ImageNet-D's authors say that gains slow after four surrogates",
    run=run,
    models=("lab:narrow", "lab:augmented", "lab:diverse", "lab:vit", "lab:grey", "lab:adversarial"),
    least_models=3,
    options={"made_against": 3, "most": 4},
)
