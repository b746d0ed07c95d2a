"""From the stages' tables to the run's records: a trial an image, and a trial an edit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from counterfoil.core.records import Picture, Prediction, Trial, Verdict
from counterfoil.parts import images
from counterfoil.protocols.class_reader import recorded
from counterfoil.protocols.lance.bench import Bench
from counterfoil.protocols.lance.edits import checked
from counterfoil.protocols.workbench import picture
from counterfoil.store import Writer
from counterfoil.store.stages import Row, Stages, Table, image_of


@dataclass(frozen=True)
class Tables:
    """What the stages left behind."""

    sources: Table
    captions: Table
    edits: Table
    inversions: Table
    edited: Table
    quality: Table
    verdicts: Table
    predictions: Sequence[Table]  # one a model, in the order of the bench


def write(bench: Bench, stages: Stages, tables: Tables, writer: Writer) -> None:
    """Every image that is not in the store yet, with its edits and what was said of them."""
    edits: dict[str, list[Row]] = {}
    for row in checked(tables.edits):
        edits.setdefault(row.of, []).append(row)
    for source in tables.sources:
        if source.id in writer.done:
            continue
        trials = [_source(bench, stages, tables, source, writer)]
        trials += [_edited(bench, stages, tables, row, source, writer) for row in edits.get(source.id, [])]
        predictions = [each for trial in trials for each in _predictions(bench, tables, trial)]
        verdicts = [each for trial in trials for each in _verdicts(bench, tables, trial)]
        writer.add(trials, predictions, verdicts)


def _source(bench: Bench, stages: Stages, tables: Tables, row: Row, writer: Writer) -> Trial:
    common = {"image_id": row.id, "label": row["label"], "seed": bench.seed(row.id), "source": row["source"]}
    if not row.goes_on:
        return Trial(**common, arm="source", ending="skipped", steps=0, queries=0, reason=row.reason)
    caption = tables.captions.one(row.id)
    first = next((each for each in _of_image(tables, row.id) if each.goes_on), None)
    return Trial(
        **common,
        arm="source",
        ending="made",
        steps=0,
        queries=0,
        source_sha256=images.digest(picture(stages, row["picture"])),
        clean=image_of(row["picture"]),
        reconstruction=image_of(first["reconstruction"]) if first is not None else "",
        caption=str(caption.values.get("caption", "")) if caption is not None else "",
        reason=f"{caption.check}: {caption.reason}" if caption is not None and not caption.goes_on else "",
    )


def _of_image(tables: Tables, image_id: str) -> Iterator[Row]:
    for edit in tables.edits.of(image_id):
        if (row := tables.edited.one(edit.id)) is not None:
            yield row


def _edited(bench: Bench, stages: Stages, tables: Tables, edit: Row, source: Row, writer: Writer) -> Trial:
    edited, quality = tables.edited.one(edit.id), tables.quality.one(edit.id)
    checks = (tables.inversions.one(edit.of), edited, quality)
    stopped = next((row for row in checks if row is not None and not row.goes_on), None)
    made = quality if quality is not None and stopped is None else None
    return Trial(
        image_id=edit.of,
        arm="edited",
        label=source["label"],
        seed=bench.seed(edit.of),
        ending="made" if made is not None else "rejected",
        steps=0,
        queries=0,
        source=source["source"],
        clean=image_of(source["picture"]),
        reconstruction=image_of(edited["reconstruction"]) if edited is not None and edited.goes_on else "",
        image=image_of(made["image"]) if made is not None else "",
        reason=f"{stopped.check}: {stopped.reason}" if stopped is not None else "",
        variant=edit.id.rpartition("#")[2],
        factor=edit["factor"],
        value=str(edit.values.get("added", "")),
        caption=edit["caption"],
        prompt=edit["edited"],
        quality=float(quality.values.get("directional", 0.0)) if quality is not None else 0.0,
    )


def _shown(trial: Trial) -> list[tuple[str, Picture]]:
    """The pictures of a trial that somebody was asked about, by the id of the question."""
    if trial.arm == "edited":
        return [(trial.trial_id, "made")] if trial.image else []
    asked: list[tuple[str, Picture]] = [(f"{trial.image_id}#clean", "clean")] if trial.clean else []
    return asked + ([(f"{trial.image_id}#reconstruction", "reconstruction")] if trial.reconstruction else [])


def _predictions(bench: Bench, tables: Tables, trial: Trial) -> Iterator[Prediction]:
    for question, kind in _shown(trial):
        for tested, table in zip(bench.tested, tables.predictions, strict=True):
            if (row := table.one(question)) is not None:
                yield recorded(trial.trial_id, kind, tested.name, {"said": "", **row.values})


def _verdicts(bench: Bench, tables: Tables, trial: Trial) -> Iterator[Verdict]:
    for question, kind in _shown(trial):
        if (row := tables.verdicts.one(question)) is not None:
            yield Verdict(trial.trial_id, kind, bench.spec.oracle.name, row["keeps_label"], row["score"], row["predicted"])
