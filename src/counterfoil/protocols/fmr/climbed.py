"""What a run of the FMR protocol writes down of one image."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from counterfoil.core.errors import BadImage
from counterfoil.core.records import Picture, Prediction, Trial, Verdict
from counterfoil.core.spec import FmrSpec
from counterfoil.engine.climb import Assessment, Climb
from counterfoil.engine.scheduler import SearchResult
from counterfoil.parts import images
from counterfoil.parts.contracts import Sample
from counterfoil.protocols import strict
from counterfoil.protocols.assembly import Assembly, image_seed
from counterfoil.store import image_name


class Target(Protocol):
    """Where outcomes go: the store's writer, or a part that is being gathered."""

    def add(
        self, trials: Sequence[Trial], predictions: Sequence[Prediction], verdicts: Sequence[Verdict], images: Sequence[bytes]
    ) -> object: ...


@dataclass(frozen=True)
class Outcome:
    """All records and pictures of one image."""

    trials: tuple[Trial, ...]  # one an arm, the guided one first
    predictions: tuple[Prediction, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    pictures: tuple[bytes, ...] = ()  # as PNG files
    note: str = ""  # a line for people, where the image was skipped

    @property
    def image_id(self) -> str:
        return self.trials[0].image_id

    @property
    def validated(self) -> bool:
        """Whether something was made of it."""
        return self.trials[0].validated

    def put(self, target: Target) -> None:
        """Write it down."""
        target.add(self.trials, self.predictions, self.verdicts, self.pictures)


def record(assembly: Assembly, finished: SearchResult, source: str) -> Outcome:
    """A trial an arm, and what model and oracle said of its pictures."""
    job, spec = finished.job, assembly.spec
    pictures: dict[str, bytes] = {}

    def keep(png: bytes) -> str:
        name = image_name(png)
        pictures[name] = png
        return name

    clean, reconstruction = keep(images.png(job.image)), keep(images.png(finished.reconstruction))
    trials, predictions, verdicts = [], [], []
    for climb, picture in zip(finished.climbs, finished.images, strict=True):
        made = images.png(picture) if climb.kept else b""
        path = [assembly.answer(look.predicted) for look in climb.kept]
        trial = Trial(
            image_id=job.image_id,
            arm=climb.arm,
            label=job.label,
            seed=job.seed,
            ending=climb.ending or "budget",
            steps=climb.steps,
            queries=climb.queries,
            source=source,
            source_sha256=images.digest(job.image),
            clean=clean,
            reconstruction=reconstruction,
            image=keep(made) if made else "",
            image_sha256=hashlib.sha256(made).hexdigest() if made else "",
            image_bytes=len(made),
            rejected_as=climb.rejected.seen if climb.rejected else -1,
            rejected_score=climb.rejected.score if climb.rejected else 0.0,
            path_loss=tuple(look.loss for look in climb.kept),
            path_predicted=tuple(predicted for predicted, _ in path),
            path_distance=tuple(look.distance for look in climb.kept),
            path_score=tuple(look.score for look in climb.kept),
            path_said=tuple(said for _, said in path) if any(said for _, said in path) else (),
        )
        trials.append(trial)
        for picture_kind, look in _pictures(finished, climb):
            predicted, said = assembly.answer(look.predicted)
            chances = (look.confidence, look.truth)
            predictions.append(
                Prediction(trial.trial_id, picture_kind, spec.model.name, predicted, look.correct, *chances, said=said)
            )
            verdicts.append(Verdict(trial.trial_id, picture_kind, spec.oracle.name, look.keeps_label, look.score, look.seen))
    return Outcome(tuple(trials), tuple(predictions), tuple(verdicts), tuple(pictures.values()))


def skipped(spec: FmrSpec, sample: Sample, problem: BadImage | str) -> Outcome:
    """The record of an image that nothing could be made of; with `strict`, the end of the run."""
    if spec.strict:
        raise strict.stopped(problem)
    seed = image_seed(spec.seed, sample.image_id)
    trial = Trial(sample.image_id, "guided", sample.label, seed, "skipped", 0, 0, source=sample.source, reason=str(problem))
    return Outcome((trial,), note=f"skipped {problem}")


def _pictures(finished: SearchResult, climb: Climb) -> list[tuple[Picture, Assessment]]:
    """The found worth a record: at the clean picture and the reconstruction once an image, at what was made once an arm."""
    found: list[tuple[Picture, Assessment]] = []
    if climb is finished.climbs[0]:
        first = climb.kept[0] if climb.kept else climb.rejected
        assert first is not None
        found += [("clean", finished.clean), ("reconstruction", first)]
    if climb.kept:
        found.append(("made", climb.kept[-1]))
    return found
