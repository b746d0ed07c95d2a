"""The parts of an FMR run, a trial of them before the run, and the climbs of its images with their records."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from counterfoil.core.errors import BadData, BadImage, BadPart, BadSpec, BadWeights, RunFailed
from counterfoil.core.records import Picture, Prediction, Trial, Verdict
from counterfoil.core.spec import SearchSpec
from counterfoil.engine.climb import Assessment, Climb
from counterfoil.engine.scheduler import Engine, Job, SearchResult
from counterfoil.parts import images, labels
from counterfoil.parts.contracts import Dataset, Generator, Sample, State, provenance_of, to_device
from counterfoil.parts.datasets.image_set import TRIED
from counterfoil.parts.fast.dtypes import check_precision
from counterfoil.parts.generators.masked import load_mask, mask_generator
from counterfoil.parts.weights import modules_of
from counterfoil.protocols.base import Outcome, stop_at
from counterfoil.protocols.fmr import FmrSpec
from counterfoil.protocols.workspace import Given, Source, Workspace, device_of
from counterfoil.store import image_name

THREADS = 4  # an image's PNG files take one of them some 30 ms


@dataclass
class ClimbingSpace(Workspace[FmrSpec]):
    """The parts of an FMR run, and the engine that climbs with them."""

    @classmethod
    def of(cls, spec: FmrSpec, given: Given | None = None) -> ClimbingSpace:
        """Build the parts, on a device that can do what is asked."""
        check_precision(spec.engine.precision, device_of(spec.device))
        try:
            found = cls.open(spec, given)
        except BadWeights as error:
            preset = spec.presets()[spec.preset]
            if "needs" in preset and spec.generator.name == preset["values"]["generator"]["name"]:
                raise BadWeights(f"{error}. The preset {spec.preset} {preset['needs'][0].lower()}{preset['needs'][1:]}") from None
            raise
        check_guidance(spec.search, found.model, name=spec.model.name)
        found.parts["generator"] = with_class_numbers(found.generator, found.dataset, name=spec.generator.name)
        if spec.search.mask is not None:
            found.parts["generator"] = mask_generator(found.generator, load_mask(spec.search.mask))
        found.spec = with_step(spec, found.generator)
        found.size  # noqa: B018 - refused now rather than after the trial
        return found

    @property
    def columns(self) -> list[int]:
        """The model's output for each of the data's classes."""
        ((_, reader),) = self.readers
        return [output for (output,) in reader.outputs]

    @cached_property
    def beyond(self) -> list[int]:
        """The model's outputs that stand for none of the data's classes."""
        return sorted({*range(len(self.model.classes))} - {*self.columns})

    def new_engine(self, search: SearchSpec | None = None, *, keep_places: bool = False) -> Engine:
        return Engine(
            self.model,
            self.generator,
            self.oracle,
            columns=[*self.columns, *self.beyond],
            search=search or self.spec.search,
            layout=self.spec.engine,
            device=self.spec.device,
            pixels=len(self.dataset) * self.size**2,
            classes=len(self.names),
            keep_places=keep_places,
        )

    @cached_property
    def engine(self) -> Engine:
        """The run's engine, which has found out how many images fit on its device."""
        engine = self.new_engine()
        engine.fit(torch.rand(3, self.size, self.size, generator=torch.Generator().manual_seed(0)))
        return engine

    def account(self) -> dict[str, Any]:
        """Of the parts, and what the engine chose by itself."""
        account = super().account()
        chosen: dict[str, Any] = {}  # on a CPU it changes no digit
        if self.device.type != "cpu":
            chosen = {"batch_size": self.engine.batch_size, "compiled": self.engine.step.acceleration.compile}
        guidance = type(self.engine.arms()["guided"]).__name__  # what `auto` came to
        size = {each.data_ptr(): each.numel() for module in modules_of(self.model) for each in module.parameters()}
        noted = {"guidance": guidance, **({"parameters": sum(size.values())} if size else {})}
        return {**account, "hardware": {**account["hardware"], **chosen}, **noted}

    def answer(self, place: int) -> tuple[int, str]:
        """The answer that the engine noted, for the records: a class of the data, or -1 and what the model calls it."""
        if place < len(self.columns):
            return place, ""
        return -1, str(self.model.classes[self.beyond[place - len(self.columns)]])

    def jobs(self, samples: Iterator[Sample], on_bad: Callable[[Sample, BadImage], None]) -> Iterator[Job]:
        return (job for source in self.sources(samples, on_bad) if (job := job_of(source)) is not None)


class ClassNumbers:
    """A class-conditional generator that takes labels of the data and tells its network its own numbers for them."""

    def __init__(self, inner: Generator, numbers: Sequence[int]) -> None:
        self.inner, self.numbers = inner, list(numbers)
        self.moving, self.size, self.step_size = inner.moving, inner.size, inner.step_size
        self.render, self.step = inner.render, inner.step

    def start(self, images: Tensor, labels: Tensor, seeds: Tensor) -> State:
        return self.inner.start(images, torch.tensor(self.numbers, device=labels.device)[labels], seeds)

    def to(self, device: torch.device | str) -> ClassNumbers:
        return ClassNumbers(to_device(self.inner, device), self.numbers)

    def provenance(self) -> dict[str, str]:
        return provenance_of(self.inner)


def with_class_numbers(generator: Generator, dataset: Dataset, *, name: str) -> Generator:
    """The generator, told its own class numbers by name where it is class-conditional."""
    known = getattr(generator, "classes", None)
    if not known:
        return generator
    wanted = getattr(dataset, "aliases", None)
    aliases = getattr(generator, "aliases", None)
    return ClassNumbers(
        generator, labels.match(dataset.classes, known, what=f"generator {name}", aliases=aliases, wanted_aliases=wanted)
    )


def with_step(spec: FmrSpec, generator: Any) -> FmrSpec:
    """The specification with the generator's own step where none is given, so that a run says what it used."""
    if spec.search.step is not None:
        return spec
    return spec.model_copy(update={"search": spec.search.model_copy(update={"step": float(generator.step_size)})})


def job_of(source: Source | None) -> Job | None:
    if source is None:
        return None
    return Job(source.sample.image_id, source.image, source.sample.label, source.seed)


def check_guidance(search: SearchSpec, model: Any, *, name: str) -> None:
    """Refuse steps along, or as long as, a gradient that is not there."""
    if search.guidance == "gradient" and not model.differentiable:
        raise BadSpec(f"guidance: gradient given, but model {name} has no gradients; leave guidance out, or set guidance=search")
    searched = search.guidance == "search" or (search.guidance == "auto" and not model.differentiable)
    if search.norm == "raw" and (searched or not model.differentiable):
        why = "a search takes none" if model.differentiable else f"model {name} has none"
        raise BadSpec(f"norm: raw given, a step as long as the gradient, but {why}; set norm=l2 or norm=sign")


def check(work: ClimbingSpace) -> None:
    """Try the parts on a few images: most wrong set-ups show there. Raise a usage error if they cannot work on these data."""
    spec = work.spec
    bad: list[str] = []

    def note(sample: Sample, problem: BadImage) -> None:
        if spec.strict:
            raise stop_at(problem)
        bad.append(str(problem))

    few = replace(work, dataset=work.dataset.limit(count=TRIED))  # so many chances to have one reconstruction accepted
    seen, search = 0, SearchSpec(budget=0, control="none", accept=spec.search.accept)
    try:
        for done in few.new_engine(search).run(few.jobs(iter(few.dataset), note)):
            seen += 1
            if done.climbs[0].ending != "unvalidated":
                return
    except RunFailed as error:
        raise BadPart(str(error)) from error
    if seen == 0:
        raise BadData(f"{spec.data.name}: none of {len(bad)} images tried can be read; the first: {bad[0]}")
    raise BadPart(
        f"oracle {spec.oracle.name} rejects the plain reconstruction of all {seen} images tried, so nothing can be tested; "
        f"check its class names and templates, and that generator {spec.generator.name} can reconstruct such images"
    )


def outcomes(work: ClimbingSpace, sources: Iterable[Source | None]) -> Iterator[Outcome | Future[Outcome]]:
    """Climb every image; on a GPU, records and PNG files are made in other threads meanwhile."""
    origin: dict[str, str] = {}  # of the images in progress

    def jobs() -> Iterator[Job | None]:
        for source in sources:
            if source is not None:
                origin[source.sample.image_id] = source.sample.source
            yield job_of(source)

    with ThreadPoolExecutor(THREADS, thread_name_prefix="record") as threads:
        for finished in work.engine.run(jobs()):
            entry = (work, finished, origin.pop(finished.job.image_id))
            yield threads.submit(record, *entry) if work.device.type == "cuda" else record(*entry)  # a CPU waits for nothing


def record(work: ClimbingSpace, finished: SearchResult, source: str) -> Outcome:
    job, spec = finished.job, work.spec
    files: dict[str, bytes] = {}

    def keep(png: bytes) -> str:
        name = image_name(png)
        files[name] = png
        return name

    clean, reconstruction = keep(images.png(job.image)), keep(images.png(finished.reconstruction))
    trials, predictions, verdicts = [], [], []
    for climb, image in zip(finished.climbs, finished.images, strict=True):
        made = images.png(image) if climb.kept else b""
        path = [work.answer(look.predicted) for look in climb.kept]
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
            path_distance=tuple(look.distance for look in climb.kept),
            path_loss=tuple(look.loss for look in climb.kept),
            path_predicted=tuple(predicted for predicted, _ in path),
            path_score=tuple(look.score for look in climb.kept),
            path_said=tuple(said for _, said in path) if any(said for _, said in path) else (),
        )
        trials.append(trial)
        for kind, look in _looks(finished, climb):
            predicted, said = work.answer(look.predicted)
            chances = (look.confidence, look.truth)
            predictions.append(Prediction(trial.trial_id, kind, spec.model.name, predicted, look.correct, *chances, said=said))
            verdicts.append(Verdict(trial.trial_id, kind, spec.oracle.name, look.keeps_label, look.score, look.seen))
    return Outcome(tuple(trials), tuple(predictions), tuple(verdicts), tuple(files.values()))


def _looks(finished: SearchResult, climb: Climb) -> list[tuple[Picture, Assessment]]:
    """The answers worth a record: on the clean image and the reconstruction once per image, on what was made once per arm."""
    looks: list[tuple[Picture, Assessment]] = []
    if climb is finished.climbs[0]:
        first = climb.kept[0] if climb.kept else climb.rejected
        assert first is not None
        looks += [("clean", finished.clean), ("reconstruction", first)]
    if climb.kept:
        looks.append(("made", climb.kept[-1]))
    return looks
