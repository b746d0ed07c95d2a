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
GAIN = 0.05  # level at which accuracy has to rise, apart from the loss
RELIEF = 0.15  # of the calibrated loss; networks do gain a little from some changes that are no mistakes
HANDICAP = {"size or crop": 1.25}  # most networks gain a little from larger pictures, whatever else is wrong

Watch = Callable[[int, int], None]


def probe(model: Model, few: Handful, logits: Tensor, *, watch: Watch = lambda done, total: None) -> list[Finding]:
    """At most one finding: the change that helps the model most, with every other change that passes the same tests."""
    tried = suspects(model)
    chosen = torch.arange(len(few)) % 3 == 0  # they choose; the others confirm
    chosen = chosen.to(logits.device)
    screening, rest = few.rows(chosen), few.rows(~chosen)
    if len(rest) < 8:
        return []
    asked = calibrated(logits[chosen], screening.truth).mean().item()
    promising: dict[str, list[tuple[float, int]]] = {}  # by mistake, so that ten sizes do not crowd out one normalisation
    for number, suspect in enumerate(tried):
        watch(number, len(tried))
        after = _ask(suspect, model, screening.images)
        loss = calibrated(after, screening.truth).mean().item() if after is not None else asked
        if loss < asked:
            promising.setdefault(suspect.mistake, []).append((loss, number))
    watch(len(tried), len(tried))

    def confirm(numbers: list[int]) -> list[tuple[Evidence, Suspect]]:
        answers = [(tried[number], _ask(tried[number], model, rest.images)) for number in numbers]
        return [(compare(logits[~chosen], after, rest.truth), each) for each, after in answers if after is not None]

    ranked = sorted((sorted(each) for each in promising.values()), key=lambda each: each[0])
    confirmed = confirm([each[0][1] for each in ranked[:LOOKED_AT]])
    helps = [pair for pair in confirmed if convincing(pair[0], looked_at=LOOKED_AT)]
    if not helps:
        return _undecided(confirmed)
    others = confirm([number for each in ranked[:LOOKED_AT] for _, number in each[1:]])
    helps += [pair for pair in others if convincing(pair[0], looked_at=LOOKED_AT)]
    helps.sort(key=lambda pair: pair[0].loss[1] * HANDICAP.get(pair[1].mistake, 1.0))
    (evidence, suspect), *more = helps
    also = "".join(f"; also passes: {each.says} ({found})" for found, each in more)
    return [Finding(suspect.mistake, suspect.says, f"with that undone, {evidence}{also}", suspect.remedy)]


def convincing(evidence: Evidence, *, looked_at: int = 1) -> bool:
    """Tell whether a change helps: loss and accuracy improve beyond chance, the loss by more than harmless changes improve it.

    The loss alone accuses networks that were trained with smoothed labels, to which a harmless change may lend confidence.
    """
    return _eases(evidence, looked_at) and evidence.chance_of_gain < GAIN


def _eases(evidence: Evidence, looked_at: int) -> bool:
    return evidence.p_value < LEVEL / looked_at and evidence.relief >= RELIEF


def _undecided(confirmed: list[tuple[Evidence, Suspect]]) -> list[Finding]:
    """A caution that lists the changes that lower the loss and leave it to chance whether accuracy rises."""
    found = [pair for pair in confirmed if _eases(pair[0], LOOKED_AT) and pair[0].accuracy[1] >= pair[0].accuracy[0]]
    if not found:
        return []
    listed = "; ".join(f"{suspect.says}: {evidence}" for evidence, suspect in found)
    return [
        Finding(
            "inputs",
            "the loss falls when images reach the model in another way, and accuracy does not rise beyond chance",
            listed,
            "nothing, if images are prepared as they were in training; with more images (--images) the doctor can tell",
            severity="caution",
        )
    ]


def _ask(suspect: Suspect, model: Model, images: Tensor) -> Tensor | None:
    """The logits with the mistake undone, or None where the model cannot take such pictures."""
    try:
        logits = in_tiles(lambda part: suspect.undone(model, part), images)
    except (CounterfoilError, RuntimeError, ValueError, AssertionError):  # a size it was not built for, values out of range
        return None
    return logits if torch.isfinite(logits).all() else None
