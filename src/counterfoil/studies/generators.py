"""The same models under several generators: whether the order that FMR puts them in is the generator's doing."""

from __future__ import annotations

from counterfoil.core.spec import PartSpec
from counterfoil.metrics.comparison import agreement_across
from counterfoil.metrics.measures import MEASURES
from counterfoil.metrics.outcomes import Outcomes, read_outcomes
from counterfoil.studies.bench import Bench
from counterfoil.studies.contract import Study
from counterfoil.studies.findings import Check, Findings, Row, Table
from counterfoil.studies.measured import row


def run(bench: Bench) -> Findings:
    """FMR of every model under every generator, and Kendall's tau between the orders."""
    own = bench.settings.generator
    names = dict.fromkeys([own.name, *bench.options["generators"]])
    found: dict[str, dict[str, Outcomes]] = {}
    for name in names:
        generator = own if name == own.name else PartSpec(name=name)
        found[name] = {model.name: read_outcomes(bench.run(model, generator=generator)) for model in bench.models}
    seed = bench.settings.seed
    rows = [row((name, model), each, seed=seed) for name, group in found.items() for model, each in group.items()]
    taus = agreement_across(found, MEASURES["FMR"], seed=seed)
    agreement = Table(
        "Kendall's tau between the orders of models by FMR",
        ("generator", "and"),
        tuple(Row(pair, {"tau": each}) for pair, each in taus.items()),
    )
    against = [" and ".join(pair) for pair, each in taus.items() if each.high is not None and each.high < 0]
    claim = "no two generators put the models in opposite orders"
    check = Check(claim, not against, f"shown to be opposite: {'; '.join(against)}" if against else "none is", required=False)
    return Findings((Table("Each model under each generator", ("generator", "model"), tuple(rows)), agreement), (check,))


STUDY = Study(
    name="generators",
    published="Table 3 (VQGAN, ADM, Improved DDPM, Efficient-VDVAE, StyleGAN-XL)",
    run=run,
    models=("lab:narrow", "lab:augmented", "lab:diverse"),
    least_models=2,
    options={"generators": ("lab:kl", "transforms:")},
)
