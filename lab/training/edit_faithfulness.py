"""Whether edited scenes show the asked-for change and nothing else, by the attribute checker: an audit, no part of any result.

An attribute counts as kept when the checker reads the same value off the edit that the scene has. Where the checker misreads the
source picture its word on the edit says nothing, so such an attribute is left out of that edit's account.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch

from counterfoil.protocols.lance.quality import Similarities, select_edit
from counterfoil.protocols.lance.spec import QualitySpec
from counterfoil_lab.checker import Reading, share
from counterfoil_lab.world import FACTORS

ASKED, CLASS, UNTOUCHED = 80.0, 95.0, 85.0  # per cent of accepted edits
Values = Mapping[str, int]
"""Of each factor, a place in the vocabulary."""


@dataclass(frozen=True)
class Outcome:
    """What became of one accepted edit."""

    factor: str  # the one that was to change
    hit: bool
    kept: Mapping[str, bool]  # of every other factor that the checker reads right in the source


@dataclass(frozen=True)
class Candidate:
    """One edited picture of a sweep, as quality control, oracle and checker see it."""

    name: str
    similarities: Similarities
    keeps_label: bool
    read: Values


@dataclass(frozen=True)
class Edit:
    """One asked-for change of one scene, with the candidates that an editor made."""

    factor: str
    value: int
    scene: Values
    source: Values  # what the checker reads off the source picture
    candidates: Sequence[Candidate] = ()
    refused: str = ""

    def judged(self, bars: QualitySpec, sweep: Sequence[str] | None = None) -> Outcome | str:
        """The outcome of the candidate that is kept, or why none is; `sweep` names candidates to choose from."""
        among = [one for one in self.candidates if sweep is None or one.name in sweep]
        if not among:
            return self.refused or "no candidate"
        chosen = select_edit([one.similarities for one in among], bars)
        best = among[chosen.index]
        if chosen.check:
            return chosen.check
        return self.outcome(best.read) if best.keeps_label else "the oracle does not see the class"

    def outcome(self, read: Values) -> Outcome:
        """What the checker's reading of the edited picture comes to."""
        return outcome(self.factor, wanted={**self.scene, self.factor: self.value}, source=self.source, edited=read)


def outcome(factor: str, *, wanted: Values, source: Values, edited: Values) -> Outcome:
    """The outcome of an edit from what its scene should be and what the checker reads off both pictures."""
    kept = {name: edited[name] == wanted[name] for name in FACTORS if name != factor and source[name] == wanted[name]}
    return Outcome(factor, edited[factor] == wanted[factor], kept)


def readings(outcomes: Iterable[Outcome]) -> list[Reading]:
    """What is demanded of accepted edits: the change found, the class and every untouched attribute kept, over all factors."""
    rows = list(outcomes)
    if not rows:
        return []
    found = [share("asked change found", _column(row.hit for row in rows), at_least=ASKED)]
    for name in FACTORS:
        kept = [row.kept[name] for row in rows if name in row.kept]
        if kept:
            found.append(share(f"{name} kept", _column(kept), at_least=CLASS if name == "garment" else UNTOUCHED))
    return found


def by_factor(outcomes: Iterable[Outcome]) -> list[Reading]:
    """The same shares for each factor that was edited, without demands: every one is of fewer edits."""
    rows = list(outcomes)
    found = []
    for factor in FACTORS:
        for one in readings([row for row in rows if row.factor == factor]):
            found.append(Reading(f"{factor}: {one.name}", one.value, one.low, one.high, one.n))
    return found


def margin(found: Sequence[Reading]) -> float:
    """By how much the tightest demand is met, in points; below zero it is missed."""
    return min((one.value - one.at_least for one in found if one.at_least is not None), default=-100.0)


def _column(values: Iterable[bool]) -> torch.Tensor:
    return torch.tensor(list(values), dtype=torch.bool)
