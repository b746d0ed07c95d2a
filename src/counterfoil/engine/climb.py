"""Algorithm 1 of the FMR paper for one image: which images are kept, and when the climb ends."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from counterfoil.core.records import Arm, Ending


@dataclass(frozen=True)
class Assessment:
    """The answers of the tested model and the oracle about one image, and its distance from the start of its climb."""

    loss: float
    predicted: int  # in the run's classes, -1 for any other
    correct: bool
    confidence: float
    truth: float  # probability of the true class
    keeps_label: bool | None  # None: the oracle abstains
    score: float
    seen: int  # the class the oracle sees, -1 if it names none
    distance: float = 0.0  # root mean square over the coordinates that move, in the generator's scale


def as_agreement(found: Assessment, source: Assessment) -> Assessment:
    """The assessment with "the oracle says what it says of the source image" in the place of "it says the label".

    An oracle that names no class agrees with itself if it accepts both images or neither.
    """
    if found.seen >= 0 and source.seen >= 0:
        return replace(found, keeps_label=found.seen == source.seen)
    if found.keeps_label is None or source.keeps_label is None:
        return replace(found, keeps_label=None)
    return replace(found, keeps_label=found.keeps_label == source.keeps_label)


@dataclass(frozen=True)
class Rules:
    """Rules that end a climb."""

    budget: int  # steps at most
    queries: int  # images shown to the model at most
    stop_when_fooled: bool = False
    climbs_only: bool = False  # a step that does not raise the loss is undone


@dataclass
class Climb:
    """One image's climb in one arm."""

    arm: Arm
    rules: Rules
    kept: list[Assessment] = field(default_factory=list)  # of the image kept after 0, 1, 2, … steps
    queries: int = 0
    undone: int = 0  # proposals in a row that did not raise the loss
    rejected: Assessment | None = None  # of the image whose rejection ended the climb
    ending: Ending | None = None

    @property
    def steps(self) -> int:
        """Number of moves kept so far; 0 while only the plain reconstruction is."""
        return max(len(self.kept) - 1, 0)

    @property
    def draw_number(self) -> int:
        """Number of the next random draw: a new one, or with a minus the opposite of the one that was just undone."""
        return 1 - self.queries if self.undone % 2 else self.queries

    def record(self, found: Assessment) -> bool:
        """Take in the next image. True if it is kept; `ending` says whether the climb continues."""
        self.queries += 1
        if self.kept and self.rules.climbs_only and found.loss <= self.kept[-1].loss:
            self.undone += 1
            if self.queries >= self.rules.queries:
                self.ending = "queries"
            return False
        if found.keeps_label is False:
            self.rejected = found
            self.ending = "oracle" if self.kept else "unvalidated"
            return False
        self.kept.append(found)
        self.undone = 0
        if self.rules.stop_when_fooled and not found.correct:
            self.ending = "fooled"
        elif self.steps >= self.rules.budget:
            self.ending = "budget"
        elif self.queries >= self.rules.queries:
            self.ending = "queries"
        return True
