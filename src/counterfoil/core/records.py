"""The plain records a run leaves behind. No torch here: reports and metrics read these without loading a model.

A trial is one image taken through one arm of the experiment. Predictions and verdicts on the trial's images are
records of their own, keyed by the trial, so that another model, another oracle or a person can be added later without
making the images again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

LEVEL = 0.95
"""Confidence of every interval, unless another is asked for."""

Arm = Literal["guided", "random", "source", "edited", "painted"]
"""`guided` climbs the tested model's loss; `random` takes steps of equal length in random directions, as a control.

Protocols that make images from words have one `source` trial per image, from which nothing is made, with its clean image and
reconstruction, and an `edited` trial for each image made from it; an image made from words alone is `painted`."""

Picture = Literal["clean", "reconstruction", "made"]
"""The three images of a trial: the source image, the generator's plain rendering of it, and the one kept."""

Ending = Literal["budget", "oracle", "fooled", "queries", "unvalidated", "skipped", "made", "rejected"]
"""The reason a trial ended: steps spent, oracle rejected a step, model fooled (if asked to stop there), model calls spent, oracle
rejected the plain reconstruction (nothing was made), or the source image could not be read. For images made from words:
an image was made, or a check before the oracle rejected it; `source` trials end as `made`."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One image through one arm: how far it went, why it stopped and what was kept. For images made from words: one of them."""

    image_id: str
    arm: Arm
    label: int  # index into the run's classes
    seed: int
    ending: Ending
    steps: int  # moves kept; 0 is the plain reconstruction
    queries: int  # images the tested model was asked about on the way
    source: str = ""  # where the source image is: a path relative to the data, or an index into it
    source_sha256: str = ""  # of the pixels as the run saw them
    clean: str = ""  # the source image as the run saw it, relative to the run directory
    reconstruction: str = ""  # the generator's plain rendering of it
    image: str = ""  # the generated image; empty when there is none
    image_sha256: str = ""
    image_bytes: int = 0
    reason: str = ""  # for `skipped`: what was wrong with the image
    rejected_as: int = -1  # the class the oracle saw in the image whose rejection ended the trial; -1 if it named none
    rejected_score: float = 0.0  # its score for the label there
    path_loss: tuple[float, ...] = ()  # the tested model's loss on the image kept after 0, 1, 2, … steps
    path_predicted: tuple[int, ...] = ()  # its prediction there, in the run's classes; -1 for any other class
    path_score: tuple[float, ...] = ()  # the oracle's score for the label there
    path_distance: tuple[float, ...] = ()  # how far what moves was from its start, root mean square in the generator's scale
    variant: str = ""  # which of several images made from the source
    factor: str = ""  # what was varied: background, adjective, material …
    value: str = ""  # what it was changed to, or set to
    caption: str = ""  # of the source image
    prompt: str = ""  # the words that the image was generated from
    quality: float = 0.0  # how well the change of the image fits that of the words, as the protocol measures it
    path_said: tuple[str, ...] = ()  # what the model calls the classes outside the run's in `path_predicted`; empty without any

    @property
    def trial_id(self) -> str:
        """The key that predictions and verdicts refer to."""
        return f"{self.image_id}#{self.variant or self.arm}"

    def shows(self, picture: Picture) -> str:
        """The name of one of its images, relative to the run directory; empty where there is none."""
        return {"clean": self.clean, "reconstruction": self.reconstruction, "made": self.image}[picture]

    @property
    def validated(self) -> bool:
        """True if the oracle accepted the plain reconstruction, so that a counterfactual exists."""
        return self.ending not in ("unvalidated", "skipped", "rejected")


@dataclass(frozen=True, slots=True)
class Prediction:
    """One model's answer for one image of a trial."""

    trial_id: str
    picture: Picture
    model: str
    predicted: int  # in the run's classes; -1 when the model named a class outside them
    correct: bool
    confidence: float  # probability of the predicted class
    truth: float  # probability of the true class
    rank: int = 0  # place of the true class among the model's answers, 1 for the first; 0 where it was not noted
    said: str = ""  # what the model calls a class outside the run's; empty where that is not known


@dataclass(frozen=True, slots=True)
class Verdict:
    """One oracle's answer for one image of a trial. `keeps_label` is None while it abstains."""

    trial_id: str
    picture: Picture
    oracle: str
    keeps_label: bool | None
    score: float  # for the true class
    predicted: int  # the class the oracle sees, in the run's classes; -1 if it names none


@dataclass(frozen=True)
class Estimate:
    """A number, its interval, and the number of images it averages over. If it or its interval is undefined, `note` says why."""

    value: float | None
    low: float | None
    high: float | None
    n: int
    note: str = ""

    def __str__(self) -> str:
        """In words: `9.9 (95 % interval 5.0 to 19.0, n 71)`."""
        if self.value is None:
            return f"undefined (n {self.n}): {self.note}"
        bounds = f"{self.note}, " if self.low is None else f"95 % interval {self.low:.1f} to {self.high:.1f}, "
        return f"{self.value:.1f} ({bounds}n {self.n})".replace("-", "−")

    @property
    def width(self) -> float:
        """The width of the interval; 0 where there is none."""
        return 0.0 if self.low is None or self.high is None else self.high - self.low

    def to_dict(self) -> dict[str, Any]:
        entry = {"value": self.value, "low": self.low, "high": self.high, "n": self.n}
        return {**entry, "note": self.note} if self.note else entry

    @classmethod
    def from_dict(cls, entry: Mapping[str, Any]) -> Estimate:
        return cls(entry["value"], entry["low"], entry["high"], entry["n"], entry.get("note", ""))
