"""The FMR protocol (foundation-model-oriented robustness, Zhang, Liu, Li, Xie, Kim and Wang).

Climb the tested model's loss in a generator's space while the oracle still sees the class; compare the accuracy that is
left with the accuracy on the clean images.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from counterfoil import images, preflight, provenance, speed, store
from counterfoil.assembly import Assembly, Given, assemble, image_seed
from counterfoil.climb import Climb, Look
from counterfoil.engine import Finished
from counterfoil.errors import BadData, BadImage
from counterfoil.metrics.fmr import fmr_results
from counterfoil.parts import Sample
from counterfoil.records import Picture, Prediction, Trial, Verdict
from counterfoil.spec import FmrSpec
from counterfoil.store import Run, Writer


@dataclass(frozen=True)
class Progress:
    """How far a run is."""

    done: int
    total: int
    validated: int
    skipped: int


Watch = Callable[[Progress], None]
Tell = Callable[[str], None]


def run(
    spec: FmrSpec,
    out: Path,
    *,
    given: Given | None = None,
    watch: Watch = lambda progress: None,
    tell: Tell = lambda line: None,
) -> Run:
    """Run `spec` into the directory `out`, or go on with it where it was interrupted.

    `watch` hears of every image, `tell` gets lines for people: pictures that were skipped, work that had to be redone.
    """
    assembly = assemble(spec, given)
    preflight.check(assembly)
    with store.write(
        out,
        spec=spec.model_dump(mode="json"),
        classes=assembly.dataset.classes,
        provenance=provenance.gather(assembly),
        part_images=spec.engine.part_images,
    ) as writer:
        for note in writer.notes:
            tell(note)
        _make(assembly, writer, watch, tell)
        writer.commit()
        writer.finish(fmr_results(store.open_run(out), seed=spec.seed))
        speed.record(assembly.model, spec.model.name, out, size=assembly.size, device=spec.device)
    return store.open_run(out)


def _make(assembly: Assembly, writer: Writer, watch: Watch, tell: Tell) -> None:
    """Every image that is not in the store yet, through the engine and into it."""
    progress = Progress(writer.counts["images"], len(assembly.dataset), writer.counts["validated"], writer.counts["skipped"])
    watch(progress)

    def skip(sample: Sample, problem: BadImage) -> None:
        nonlocal progress
        if assembly.spec.strict:
            raise BadData(f"{problem} (strict: stopping at the first unreadable picture; what was done is kept)")
        seed = image_seed(assembly.spec.seed, sample.image_id)
        trial = Trial(sample.image_id, "guided", sample.label, seed, "skipped", 0, 0, source=sample.source, reason=str(problem))
        writer.add([trial], [], [])
        tell(f"skipped {problem}")
        progress = replace(progress, done=progress.done + 1, skipped=progress.skipped + 1)
        watch(progress)

    def left() -> Iterator[Sample]:
        for sample in assembly.dataset:
            if sample.image_id not in writer.done:
                sources[sample.image_id] = sample.source
                yield sample

    sources: dict[str, str] = {}  # of the images under way
    for finished in assembly.engine().run(assembly.jobs(left(), skip)):
        _record(assembly.spec, writer, finished, sources.pop(finished.job.image_id))
        validated = finished.climbs[0].ending != "unvalidated"
        progress = replace(progress, done=progress.done + 1, validated=progress.validated + validated)
        watch(progress)


def _record(spec: FmrSpec, writer: Writer, finished: Finished, source: str) -> None:
    """Write down one image: a trial an arm, and what model and oracle said of its pictures."""
    job = finished.job
    clean, reconstruction = writer.keep(images.png(job.image)), writer.keep(images.png(finished.reconstruction))
    trials, predictions, verdicts = [], [], []
    for climb, picture in zip(finished.climbs, finished.pictures, strict=True):
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
            image=writer.keep(images.png(picture)) if climb.kept else "",
            rejected_as=climb.rejected.seen if climb.rejected else -1,
            rejected_score=climb.rejected.score if climb.rejected else 0.0,
            path_loss=tuple(look.loss for look in climb.kept),
            path_predicted=tuple(look.predicted for look in climb.kept),
            path_score=tuple(look.score for look in climb.kept),
        )
        trials.append(trial)
        for picture_name, look in _pictures(finished, climb):
            predictions.append(_prediction(trial.trial_id, picture_name, spec.model.name, look))
            verdicts.append(Verdict(trial.trial_id, picture_name, spec.oracle.name, look.keeps_label, look.score, look.seen))
    writer.add(trials, predictions, verdicts)


def _pictures(finished: Finished, climb: Climb) -> list[tuple[Picture, Look]]:
    """The looks worth a record: at the clean picture and the reconstruction once an image, at what was made once an arm."""
    looks: list[tuple[Picture, Look]] = []
    if climb is finished.climbs[0]:
        first = climb.kept[0] if climb.kept else climb.rejected
        assert first is not None
        looks += [("clean", finished.clean), ("reconstruction", first)]
    if climb.kept:
        looks.append(("made", climb.kept[-1]))
    return looks


def _prediction(trial_id: str, picture: Picture, model: str, look: Look) -> Prediction:
    return Prediction(trial_id, picture, model, look.predicted, look.correct, look.confidence, look.truth)
