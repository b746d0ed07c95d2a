"""One run into its directory, image by image or stage by stage, in this process or over workers; interrupted and resumed.

`one_step` and `as_they_are` make the records of protocols that make images in one step, or none.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from torch import Tensor

from counterfoil import store
from counterfoil.core.errors import BadImage, BadSpec
from counterfoil.core.naming import image_seed
from counterfoil.core.records import Prediction, Trial, Verdict
from counterfoil.core.spec import RunSpec
from counterfoil.parts import images
from counterfoil.parts.contracts import Dataset, Sample
from counterfoil.protocols.base import (
    LOCAL,
    Execution,
    ImageProtocol,
    Outcome,
    Progress,
    StagedProtocol,
    Tell,
    Watch,
    require_complete,
    stop_at,
)
from counterfoil.protocols.stages import Tables, run_stages
from counterfoil.protocols.workspace import Given, Source, Workspace, prediction_of
from counterfoil.store import Run, Writer
from counterfoil.store.images import image_name
from counterfoil.store.later import by_people

WAITING = 256  # outcomes that may wait for the main thread: climbs that take all their steps end together


def run_images(
    protocol: ImageProtocol,
    spec: Any,
    out: Path,
    *,
    given: Given | None = None,
    execution: Execution | None = None,
    watch: Watch = lambda progress: None,
    tell: Tell = lambda line: None,
) -> Run:
    """Run a specification image by image.

    `watch` hears of every image, `tell` gets lines for people: images that were skipped, work that had to be redone.
    """
    execution = execution or LOCAL
    if execution.executor == "ray":
        from counterfoil.protocols import ray

        ray.run_images(protocol, spec, out, given=given, execution=execution, watch=watch, tell=tell)
    else:
        with execution.computing():
            _run_images_here(protocol, spec, out, given, watch, tell)
    return store.open_run(out)


def _run_images_here(protocol: ImageProtocol, spec: Any, out: Path, given: Given | None, watch: Watch, tell: Tell) -> None:
    work = protocol.workspace(spec, given)
    for line in work.introduction():
        tell(line)
    protocol.check(work)
    spec = work.spec  # with what a part has filled in
    laid = store.layout(len(work.dataset), at_least=spec.engine.chunk_images)
    with store.write(out, spec.model_dump(mode="json"), work.names, work.provenance(), **laid) as writer:
        for note in writer.notes:
            tell(note)
        progress = begin(spec, writer, work.dataset)
        watch(progress)

        def add(outcome: Outcome) -> None:
            nonlocal progress
            write(outcome, writer)
            if outcome.note:
                tell(outcome.note)
            progress = progress.more(validated=outcome.validated, skipped=bool(outcome.note))
            watch(progress)

        def skip(sample: Sample, problem: BadImage) -> None:
            add(skip_outcome(spec, sample, problem))

        take(protocol.outcomes(work, work.sources(missing(writer, work.dataset), skip)), add)
        finish(protocol, writer)


def take(produced: Iterable[Outcome | Future[Outcome]], add: Callable[[Outcome], None]) -> None:
    """Add outcomes as they come. Those that other threads are still making are added in their order, also after an error."""
    ahead: deque[Future[Outcome]] = deque()
    try:
        for each in produced:
            if isinstance(each, Future):
                ahead.append(each)
            else:
                add(each)
            while ahead and (len(ahead) > WAITING or ahead[0].done()):
                add(ahead.popleft().result())
    finally:
        while ahead:
            add(ahead.popleft().result())


def begin(spec: RunSpec, writer: Writer, dataset: Dataset) -> Progress:
    """Progress of a run when it is opened; with `strict`, refuse one that has left images out."""
    require_complete(spec, writer.path, left_out=writer.counts["skipped"])
    return Progress(writer.counts["images"], len(dataset), writer.counts["accepted"], writer.counts["skipped"])


def missing(writer: Writer, dataset: Dataset) -> Iterator[Sample]:
    """The images that are not in the store yet."""
    return (sample for sample in dataset if sample.image_id not in writer.done)


def write(outcome: Outcome, writer: Writer) -> None:
    writer.add(outcome.trials, outcome.predictions, outcome.verdicts, outcome.images)


def skip_outcome(spec: RunSpec, sample: Sample, problem: BadImage | str) -> Outcome:
    """The record of an image that nothing could be made of; with `strict`, the end of the run."""
    if spec.strict:
        raise stop_at(problem)
    seed = image_seed(spec.seed, sample.image_id)
    trial = Trial(sample.image_id, "guided", sample.label, seed, "skipped", 0, 0, source=sample.source, reason=str(problem))
    return Outcome((trial,), note=f"skipped {problem}")


def finish(protocol: ImageProtocol, writer: Writer) -> None:
    writer.close()
    writer.finish(protocol.results(store.open_run(writer.path)))


def run_staged(
    protocol: StagedProtocol,
    spec: Any,
    out: Path,
    *,
    given: Given | None = None,
    stage: str | None = None,
    execution: Execution | None = None,
    watch: Watch = lambda progress: None,
    tell: Tell = lambda line: None,
) -> Run:
    """Run a specification stage by stage; with `stage`, only as far as that one."""
    execution = execution or LOCAL
    workers: AbstractContextManager[Any] = nullcontext()
    if execution.executor == "local":
        work = protocol.workspace(spec, given)
    else:  # workers have the parts and the GPUs
        from counterfoil.protocols import ray

        work = protocol.workspace(spec.model_copy(update={"device": "cpu"}), replace(given or Given(), elsewhere=True))
        workers = ray.crew(spec, out, given=work.for_workers(given), execution=execution, tell=tell)
    tables = Tables(out)
    stages = protocol.stages(work, tables)
    names = [each.name for each in stages]
    if stage is not None and stage not in names:
        raise BadSpec(f"no stage named {stage!r}; stages are {', '.join(names)}")
    with (
        execution.computing(),
        workers as crew,
        store.write(
            out,
            spec=spec.model_dump(mode="json"),
            classes=work.names,
            provenance=work.provenance(crew.about.account if crew else None),
            chunk_images=spec.engine.chunk_images,
        ) as writer,
    ):
        for line in (*(crew.about.introduction if crew else work.introduction()), *writer.notes):
            tell(line)
        if not run_stages(stages, tables, spec.engine, until=stage, spread=crew, watch=watch, tell=tell):
            tell(f"stopped after the stage {stage!r}; the same command without --stage resumes it")
            return store.open_run(out)
        writer.generation(tables.mark(names))
        writer.expect(sum(1 for _ in tables[names[0]]))
        for outcome in protocol.outcomes(work, tables, writer.done):
            write(outcome, writer)
        if dropped := writer.switch():
            tell(_dropped_message(dropped))
        writer.finish(protocol.results(store.open_run(out)))
    return store.open_run(out)


def _dropped_message(dropped: Mapping[tuple[str, str], int]) -> str:
    """The message about dropped answers, and how to get them again."""
    names = ", ".join(f"{number} by {name}" for (_, name), number in sorted(dropped.items()))
    again = {"score" if role == "model" else "review --new" if by_people(name) else "judge" for role, name in dropped}
    commands = " and ".join(f"'counterfoil {each}'" for each in sorted(again))
    return f"dropped later answers about images that have changed or are gone ({names}); ask again with {commands}"


@dataclass(frozen=True)
class MadeImage:
    """One image made of a source image, and what was done to it: two of one source differ in `factor` or `value`."""

    image: Tensor  # (3, H, W)
    factor: str = ""
    value: str = ""


Make = Callable[[Source], Iterable[MadeImage]]
Record = Callable[[Source, Sequence[MadeImage]], list[Trial]]


def one_step(work: Workspace[Any], sources: Iterable[Source | None], make: Make) -> Iterator[Outcome]:
    """Yield the records of every source image and of the images that `make` gives of it."""
    return _gather(work, sources, lambda source: [MadeImage(source.image), *make(source)], _pairs)


def as_they_are(work: Workspace[Any], sources: Iterable[Source | None]) -> Iterator[Outcome]:
    """Yield the records of images that are tested as they are."""
    return _gather(work, sources, lambda source: [MadeImage(source.image, source.sample.factor, source.sample.value)], _single)


def _gather(work: Workspace[Any], sources: Iterable[Source | None], make: Make, record: Record) -> Iterator[Outcome]:
    """Ask model and oracle about a batch of images at a time, or about fewer where no source is left for the moment."""
    waiting: list[tuple[Source, list[MadeImage]]] = []
    for source in chain(sources, [None]):
        if source is not None:
            made = [replace(each, image=(each.image.clamp(0, 1) * 255).round() / 255) for each in make(source)]
            waiting.append((source, made))
        if waiting and (source is None or sum(len(made) for _, made in waiting) >= work.batch):
            yield from _ask(work, waiting, record)
            waiting = []


def _ask(work: Workspace[Any], some: Sequence[tuple[Source, list[MadeImage]]], record: Record) -> Iterator[Outcome]:
    shown = [each.image for _, made in some for each in made]
    labels = [source.sample.label for source, made in some for _ in made]
    named, reader = work.readers[0]
    looks = iter(work.in_batches(shown, reader.looks, labels))
    sources = [source.sample.image_id for source, made in some for _ in made]
    judged = iter(work.judge(shown, labels, sources) if "oracle" in work.parts else [None] * len(shown))
    for source, made in some:
        trials = record(source, made)
        predictions: list[Prediction] = []
        verdicts: list[Verdict] = []
        for trial in trials:
            what = "made" if trial.image else "clean"
            predictions.append(prediction_of(trial.trial_id, what, named.name, next(looks)))  # type: ignore[arg-type]
            if (said := next(judged)) is not None:
                verdicts.append(Verdict(trial.trial_id, what, work.spec.oracle.name, *said))  # type: ignore[arg-type]
        yield Outcome(tuple(trials), tuple(predictions), tuple(verdicts), tuple(images.png(each.image) for each in made))


def _pairs(source: Source, made: Sequence[MadeImage]) -> list[Trial]:
    clean = image_name(images.png(source.image))
    trials = [Trial(**_common(source), arm="source", clean=clean)]
    for each in made[1:]:
        variant = f"{each.factor} {each.value}".strip()
        trials.append(Trial(**_common(source), arm="edited", clean=clean, variant=variant, **_image_fields(each)))
    return trials


def _single(source: Source, made: Sequence[MadeImage]) -> list[Trial]:
    return [Trial(**_common(source), arm="painted", **_image_fields(each)) for each in made]


def _common(source: Source) -> dict[str, Any]:
    sample = source.sample
    about = {"image_id": sample.image_id, "label": sample.label, "seed": source.seed, "source": sample.source}
    return {**about, "source_sha256": images.digest(source.image), "ending": "made", "steps": 0, "queries": 0}


def _image_fields(made: MadeImage) -> dict[str, Any]:
    png = images.png(made.image)
    about = {"image": image_name(png), "image_sha256": hashlib.sha256(png).hexdigest(), "image_bytes": len(png)}
    return {**about, "factor": made.factor, "value": made.value}
