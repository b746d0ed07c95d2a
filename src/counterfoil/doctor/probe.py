"""Tries the suspects: a few pictures say which are worth a closer look, the others decide."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from counterfoil.core.errors import CounterfoilError
from counterfoil.doctor.evidence import Evidence, calibrated, compare
from counterfoil.doctor.findings import Finding
from counterfoil.doctor.sample import Handful, in_tiles
from counterfoil.doctor.suspects import Suspect, suspects
from counterfoil.parts.contracts import Model

LOOKED_AT = 4  # suspects that are confirmed on pictures they were not chosen by
LEVEL = 0.01
RELIEF = 0.15  # of the calibrated loss; networks do gain a little from some changes that are no mistakes
HANDICAP = {"size or crop": 1.25}  # most networks gain a little from larger pictures, whatever else is wrong

Watch = Callable[[int, int], None]


def probe(model: Model, few: Handful, logits: Tensor, *, watch: Watch = lambda done, total: None) -> list[Finding]:
    """At most one finding: the change that helps the model most, if it does so beyond doubt."""
    tried = suspects(model)
    chosen = torch.arange(len(few)) % 3 == 0  # they choose; the others confirm
    chosen = chosen.to(logits.device)
    screening, rest = few.rows(chosen), few.rows(~chosen)
    if len(rest) < 8:
        return []
    asked = calibrated(logits[chosen], screening.truth).mean().item()
    best: dict[str, tuple[float, Suspect]] = {}  # by mistake, so that ten sizes do not crowd out one normalisation
    for number, suspect in enumerate(tried):
        watch(number, len(tried))
        after = _undone(suspect, model, screening.images)
        loss = calibrated(after, screening.truth).mean().item() if after is not None else asked
        if loss < best.get(suspect.mistake, (asked,))[0]:
            best[suspect.mistake] = loss, suspect
    confirmed: list[tuple[Evidence, Suspect]] = []
    for _, suspect in sorted(best.values(), key=lambda pair: pair[0])[:LOOKED_AT]:
        after = _undone(suspect, model, rest.images)
        if after is not None:
            confirmed.append((compare(logits[~chosen], after, rest.truth), suspect))
    watch(len(tried), len(tried))
    helps = [(evidence, suspect) for evidence, suspect in confirmed if convincing(evidence, looked_at=LOOKED_AT)]
    if not helps:
        return []
    evidence, suspect = min(helps, key=lambda pair: pair[0].loss[1] * HANDICAP.get(pair[1].mistake, 1.0))
    return [Finding(suspect.mistake, suspect.says, f"with that undone, {evidence}", suspect.remedy)]


def convincing(evidence: Evidence, *, looked_at: int = 1) -> bool:
    """Whether a change helps beyond chance and by more than a harmless one would, and costs no accuracy."""
    return evidence.p_value < LEVEL / looked_at and evidence.relief >= RELIEF and evidence.accuracy[1] >= evidence.accuracy[0]


def _undone(suspect: Suspect, model: Model, images: Tensor) -> Tensor | None:
    """The logits with the mistake undone, or None where the model cannot take such pictures."""
    try:
        logits = in_tiles(lambda part: suspect.undone(model, part), images)
    except (CounterfoilError, RuntimeError, ValueError, AssertionError):  # a size it was not built for, values out of range
        return None
    return logits if torch.isfinite(logits).all() else None
