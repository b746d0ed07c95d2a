"""What the numbers become when other models or oracles look at the same pictures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from counterfoil.core.errors import BadRun
from counterfoil.metrics.fmr import read_outcomes, scores
from counterfoil.report.collect import Collected
from counterfoil.store.later import asked_of


@dataclass(frozen=True)
class Later:
    """One model and oracle that were asked after the run."""

    who: str
    role: str  # model or oracle
    numbers: dict[str, Any]
    caution: str = ""  # why it is not independent of the run


def asked_later(collected: Collected) -> list[Later]:
    """The numbers for every model and oracle beside the run's own; those that saw too little are left out."""
    if collected.results is None:
        return []
    found = []
    seed = collected.run.spec.get("seed", 0)
    asked = [("model", name) for name in sorted(collected.answers.other_models)]
    asked += [("oracle", name) for name in sorted(collected.answers.other_oracles)]
    cautions: dict[tuple[str, str], str] = {(each.role, each.name): each.caution for each in asked_of(collected.run.path)}
    for role, name in asked:
        try:
            outcomes = read_outcomes(collected.run, **{role: name})
        except BadRun:
            continue
        numbers = {key: each.to_dict() for key, each in scores(outcomes, seed=seed if isinstance(seed, int) else 0).items()}
        found.append(Later(name, role, numbers, cautions.get((role, name), "")))
    return found
