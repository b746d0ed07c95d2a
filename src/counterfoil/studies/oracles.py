"""Another oracle in the loop and on the same pictures: agreement, and classes that look easy because they are rejected more.

The oracle ends a climb when it no longer sees the class. A class that it gives up early keeps only pictures that hardly
changed, and so looks robust: the paper's primates (Table 13). The study sets each class's FMR against how often the oracle
stopped it, warns where the two go together, and gives FMR with classes weighted as in the source images, FMR over the
climbs that nobody stopped, and the bounds from the oracle's audit.
"""

from __future__ import annotations

from itertools import permutations

from counterfoil.core.spec import PartSpec
from counterfoil.metrics.audit import audit
from counterfoil.metrics.columns import NO, YES, ended_by_oracle
from counterfoil.metrics.estimate import Estimate, estimate
from counterfoil.metrics.fmr import scores
from counterfoil.metrics.outcomes import Outcomes, read_outcomes
from counterfoil.metrics.rejection import by_class, corrected, easier_when_rejected
from counterfoil.metrics.statistic import Share
from counterfoil.studies.bench import Bench
from counterfoil.studies.contract import Study
from counterfoil.studies.findings import Check, Findings, Row, Table

_SHOWN = ("SA", "VR", "PA", "FMR", "FMR_matched", "steps")


def run(bench: Bench) -> Findings:
    """Every model under every oracle, the oracles on each other's pictures, and the classes."""
    own = bench.settings.oracle
    oracles = [own, *(PartSpec(name=name) for name in bench.options["oracles"] if name != own.name)]
    seed = bench.settings.seed
    runs = {(oracle.name, model.name): bench.run(model, oracle=oracle) for oracle in oracles for model in bench.models}
    found = {key: read_outcomes(each) for key, each in runs.items()}
    loops, fixes, classes, checks = [], [], [], []
    for (oracle, model), outcomes in found.items():
        values = scores(outcomes, seed=seed)
        ended = ended_by_oracle(runs[oracle, model], outcomes.keys)
        loops.append(Row((oracle, model), {name: values[name] for name in _SHOWN}))
        bounds = {name: Estimate.from_dict(audit(outcomes, seed=seed)[name]) for name in ("lost", "FMR_lost", "FMR_kept")}
        fixes.append(Row((oracle, model), {"FMR": values["FMR"], **corrected(outcomes, ended, seed=seed), **bounds}))
        classes += [Row((oracle, model, name), each) for name, each in by_class(outcomes, ended, seed=seed).items()]
        checks.append(_warning(oracle, model, easier_when_rejected(outcomes, ended, seed=seed)))
    shared = [
        Row((made.name, judge.name, model.name), _agreement(found[made.name, model.name], bench.judged(run, judge), seed=seed))
        for made, judge in permutations(oracles, 2)
        for model in bench.models
        for run in [runs[made.name, model.name]]
    ]
    tables = (
        Table("Each oracle in the loop", ("oracle", "model"), tuple(loops)),
        Table("The pictures of one oracle's runs, judged by another", ("made under", "judged by", "model"), tuple(shared)),
        Table("By class: climbs the oracle stopped, and FMR", ("oracle", "model", "class"), tuple(classes)),
        Table("FMR, corrected and bounded", ("oracle", "model"), tuple(fixes)),
    )
    return Findings(tables if shared else (tables[0], *tables[2:]), tuple(checks))


def _agreement(own: Outcomes, other: Outcomes, *, seed: int) -> dict[str, Estimate]:
    """How often the second accepts what the first accepted, in made pictures and in source images, and FMR by its word."""
    accepted = own.validated == YES
    asked, clean = accepted & (other.validated >= NO), (own.oracle_clean >= NO) & (other.oracle_clean >= NO)
    columns = {
        "made": asked,
        "made_same": asked & (other.validated == YES),
        "clean": clean,
        "clean_same": clean & (own.oracle_clean == other.oracle_clean),
    }
    none = "no picture that both judged"
    statistics = {
        "agree on made": Share("made_same", "made", none),
        "agree on source images": Share("clean_same", "clean", none),
    }
    found = scores(other, seed=seed)
    before = scores(own, seed=seed)["FMR"]
    return {**estimate(columns, statistics, seed=seed), "FMR by the first": before, "FMR by the second": found["FMR"]}


def _warning(oracle: str, model: str, tau: Estimate) -> Check:
    """Whether FMR of this model may be the oracle's doing."""
    claim = f"{model} under {oracle}: classes that the oracle stops more do not look easier"
    if tau.value is None or tau.low is None:
        return Check(claim, None, f"undefined: {tau.note}", required=False)
    text = f"Kendall's tau {tau.value:.2f} ({tau.low:.2f} to {tau.high:.2f}) over {tau.n} classes".replace("-", "−")
    holds = False if tau.low > 0 else True if (tau.high or 0) < 0 else None
    advice = "; read the corrected FMR" if tau.value > 0 else ""
    return Check(claim, holds, text + advice, required=False)


STUDY = Study(
    name="oracles",
    published="Table 13's primates, and section 5's discussion of the oracle; the paper swaps none",
    run=run,
    models=("lab:narrow", "lab:augmented"),
    options={"oracles": ("classifier:lab:diverse",)},
)
