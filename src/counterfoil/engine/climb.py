"""Algorithm 1 of the FMR paper for one image: which pictures are kept, and when the climb ends."""

from __future__ import annotations

from dataclasses import dataclass, field

from counterfoil.core.records import Arm, Ending


@dataclass(frozen=True)
class Look:
    """What the tested model and the oracle say of one picture."""

    loss: float
    predicted: int  # in the run's classes, -1 for any other
    correct: bool
    confidence: float
    truth: float  # probability of the true class
    keeps_label: bool | None  # None: the oracle abstains
    score: float
    seen: int  # the class the oracle sees, -1 if it names none


@dataclass(frozen=True)
class Rules:
    """When a climb ends."""

    budget: int  # steps at most
    queries: int  # pictures shown to the model at most
    stop_when_fooled: bool = False
    climbs_only: bool = False  # a step that does not raise the loss is taken back


@dataclass
class Climb:
    """One image's way through one arm."""

    arm: Arm
    rules: Rules
    kept: list[Look] = field(default_factory=list)  # of the picture kept after 0, 1, 2, … steps
    queries: int = 0
    taken_back: int = 0  # proposals in a row that did not raise the loss
    rejected: Look | None = None  # of the picture whose rejection ended the climb
    ending: Ending | None = None

    @property
    def steps(self) -> int:
        """Moves kept so far; 0 while only the plain reconstruction is."""
        return max(len(self.kept) - 1, 0)

    @property
    def draw(self) -> int:
        """The number of the next random draw: a new one, or with a minus the opposite of the one that was just taken back."""
        return 1 - self.queries if self.taken_back % 2 else self.queries

    def take(self, look: Look) -> bool:
        """Note the next picture. True if it is kept; `ending` says whether the climb goes on."""
        self.queries += 1
        if self.kept and self.rules.climbs_only and look.loss <= self.kept[-1].loss:
            self.taken_back += 1
            if self.queries >= self.rules.queries:
                self.ending = "queries"
            return False
        if look.keeps_label is False:
            self.rejected = look
            self.ending = "oracle" if self.kept else "unvalidated"
            return False
        self.kept.append(look)
        self.taken_back = 0
        if self.rules.stop_when_fooled and not look.correct:
            self.ending = "fooled"
        elif self.steps >= self.rules.budget:
            self.ending = "budget"
        elif self.queries >= self.rules.queries:
            self.ending = "queries"
        return True
