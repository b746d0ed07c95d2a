"""Ask a model, and an oracle if there is one, about images that are made of each source image in one step."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from counterfoil.core.records import Prediction, Trial, Verdict
from counterfoil.parts import images
from counterfoil.protocols.base import Outcome
from counterfoil.protocols.class_reader import prediction_of
from counterfoil.protocols.workspace import Source, Workspace
from counterfoil.store.images import image_name


@dataclass(frozen=True)
class MadeImage:
    """One image made of a source image, and what was done to it: two of one source differ in `factor` or `value`."""

    image: Tensor  # (3, H, W)
    factor: str = ""
    value: str = ""


Make = Callable[[Source], Iterable[MadeImage]]


def outcomes(work: Workspace[Any], sources: Iterable[Source | None], make: Make) -> Iterator[Outcome]:
    """Yield the records of every source image and of the images that `make` gives of it."""
    yield from _gather(work, sources, lambda source: [MadeImage(source.image), *make(source)], _pairs)


def plain_outcomes(work: Workspace[Any], sources: Iterable[Source | None]) -> Iterator[Outcome]:
    """Yield the records of images that are tested as they are."""
    yield from _gather(work, sources, lambda source: [MadeImage(source.image)], _single)


Record = Callable[[Source, Sequence[MadeImage]], list[Trial]]


def _gather(work: Workspace[Any], sources: Iterable[Source | None], make: Make, record: Record) -> Iterator[Outcome]:
    """Ask about a batch of images at a time, or about fewer where no source is left for the moment."""
    waiting: list[tuple[Source, list[MadeImage]]] = []
    for source in sources:
        if source is not None:
            made = [MadeImage((each.image.clamp(0, 1) * 255).round() / 255, each.factor, each.value) for each in make(source)]
            waiting.append((source, made))
        if waiting and (source is None or sum(len(made) for _, made in waiting) >= work.batch):
            yield from _ask(work, waiting, record)
            waiting = []
    if waiting:
        yield from _ask(work, waiting, record)


def _ask(work: Workspace[Any], some: Sequence[tuple[Source, list[MadeImage]]], record: Record) -> Iterator[Outcome]:
    shown = [each.image for _, made in some for each in made]
    labels = [source.sample.label for source, made in some for _ in made]
    named, reader = work.readers[0]
    looks = iter(work.predict(reader, shown, labels))
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
