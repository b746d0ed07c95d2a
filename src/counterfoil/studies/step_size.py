"""Step and budget against the share of pictures that survive a step, and FMR.

One search serves all its budgets: what was kept after b steps is what a budget of b would have kept. The share `VR, step 1`
is the paper's validation rate, the share of images whose first step the oracle accepts; `VR` is that of a plain
reconstruction, which no step can change.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from counterfoil.core.records import Estimate
from counterfoil.metrics.columns import NO, YES
from counterfoil.metrics.estimate import Difference, Ratio, Share, Statistic, estimate
from counterfoil.metrics.fmr import scores
from counterfoil.metrics.outcomes import Outcomes, read_outcomes
from counterfoil.studies.bench import Bench
from counterfoil.studies.contract import Study
from counterfoil.studies.findings import Check, Findings, Row, Table, positive

_NONE = "no image"
_SURVIVES = Share("survives", "all", _NONE)
_MOVED = Ratio(Share("moved_right", "survives", "no image survived a step"), Share("clean_right", "all", _NONE), "SA is 0")


def run(bench: Bench) -> Findings:
    """A table of step and budget for every model, and whether larger steps are survived less."""
    rows: list[Row] = []
    checks: list[Check] = []
    steps = sorted(bench.options["steps"])
    for model in bench.models:
        by_step = {step: read_outcomes(bench.run(model, search={"step": step})) for step in steps}
        for step, outcomes in by_step.items():
            budgets = [b for b in bench.options["budgets"] if b < outcomes.path_correct.shape[1]]
            rows += [_row(model.name, step, budget, outcomes, seed=bench.settings.seed) for budget in budgets]
        checks.append(_falls(model.name, by_step, seed=bench.settings.seed))
    return Findings((Table("Step and budget", ("model", "step", "budget"), tuple(rows)),), tuple(checks))


def _row(model: str, step: float, budget: int, outcomes: Outcomes, *, seed: int) -> Row:
    shorter = at_budget(outcomes, budget)
    found = scores(shorter, seed=seed)
    values: dict[str, Estimate] = {name: found[name] for name in ("VR", "PA", "FMR", "FMR_matched", "steps")}
    statistics: dict[str, Statistic] = {"VR, step 1": _SURVIVES, "FMR if moved": _MOVED}
    return Row((model, f"{step:g}", str(budget)), {**estimate(_columns(shorter), statistics, seed=seed), **values})


def at_budget(outcomes: Outcomes, budget: int) -> Outcomes:
    """What the same search with a smaller budget would have come to."""
    made = np.where(outcomes.validated == YES, outcomes.path_correct[:, budget], outcomes.made_correct).astype(np.int8)
    return replace(outcomes, made_correct=made, steps=np.minimum(outcomes.steps, budget))


def _columns(outcomes: Outcomes) -> dict[str, np.ndarray]:
    survives = (outcomes.validated == YES) & (outcomes.steps >= 1)
    judged = outcomes.validated >= NO
    return {
        "all": judged,
        "survives": survives,
        "moved_right": survives & (outcomes.made_correct == YES),
        "clean_right": judged & (outcomes.clean_correct == YES),
    }


def _falls(model: str, by_step: dict[float, Outcomes], *, seed: int) -> Check:
    """The smallest step against the largest, on the same images."""
    small, large = min(by_step), max(by_step)
    claim = f"{model}: larger steps lower VR: fewer images survive a first step of {large:g} than one of {small:g}"
    if small == large:
        return Check(claim, None, "one step only; give several, as in --set steps=0.03,0.1,0.3", required=False)
    columns = {
        f"{name} {column}": values
        for name, step in (("small", small), ("large", large))
        for column, values in _columns(by_step[step]).items()
    }
    difference = Difference(_SURVIVES.prefixed("small "), _SURVIVES.prefixed("large "))
    return positive(claim, estimate(columns, {"difference": difference}, seed=seed)["difference"])


STUDY = Study(
    name="step-size",
    published="Tables 13 and 14 (steps of 0.1 and 0.001, 50 of them at most)",
    run=run,
    models=("lab:narrow",),
    options={"steps": (0.03, 0.1, 0.3, 1.0), "budgets": (1, 3, 10)},
)
