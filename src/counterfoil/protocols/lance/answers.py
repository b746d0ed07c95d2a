"""LANCE's stages over answers, the oracle's and the tested models'; then the run's records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from counterfoil.core.records import Picture, Trial, Verdict
from counterfoil.parts import images
from counterfoil.protocols.base import Outcome
from counterfoil.protocols.class_reader import prediction_of
from counterfoil.protocols.lance.captions import image_of
from counterfoil.protocols.stages import Stage, Tables
from counterfoil.protocols.workspace import Workspace
from counterfoil.store.stages import Item, Made, Row, turned_away
from counterfoil.store.stages import image_of as stored_image


class _Shown(Stage):
    """Asks about every readable source image, the reconstruction of those that were edited, and every edit that passed."""

    def items(self) -> Iterator[Item]:
        """The images, by what they are of."""
        labels = {}
        for row in self.tables["sources"].passing():
            labels[row.id] = row["label"]
            yield self._item(f"{row.id}#clean", "clean", row["picture"], row["label"])
        last = None
        for row in self.tables["pictures"].passing():
            image_id = image_of(row.id)
            if image_id != last:
                last = image_id
                yield self._item(f"{image_id}#reconstruction", "reconstruction", row["reconstruction"], labels[image_id])
        for row in self.tables["quality"].passing():
            yield self._item(row.id, "made", row["image"], labels[image_of(row.id)])

    def _item(self, name: str, kind: Picture, file: str, label: int) -> Item:
        return Item(name, {"picture": self.tables.files.hash_of(file), "label": label}, {"kind": kind, "name": file})


class Verdicts(_Shown):
    """The oracle on every image; an edited image that has lost its class is rejected."""

    name, uses = "oracle", ("oracle",)

    def decided_by(self) -> Mapping[str, Any]:
        """The classes it was bound to."""
        return {"classes": self.space.names}

    def work(self, items: Sequence[Item]) -> list[Made]:
        """Judge the images."""
        answers = self.space.judge(
            self.images(items, "name"), [item.inputs["label"] for item in items], [image_of(item.id) for item in items]
        )
        return [self._verdict(item, *answer) for item, answer in zip(items, answers, strict=True)]

    def _verdict(self, item: Item, keeps: bool | None, score: float, seen: int) -> Made:
        values: dict[str, Any] = {"keeps_label": keeps, "score": score, "predicted": seen}
        if item.about["kind"] != "made" or keeps:
            return Made(values)
        if keeps is None:
            return turned_away("undecided", "the oracle has not decided yet", **values)
        sees = self.space.names[seen] if 0 <= seen < len(self.space.names) else "another class"
        return turned_away("class lost", f"the oracle sees {sees}", **values)


class Predictions(_Shown):
    """The predictions of one model for every image."""

    def __init__(self, space: Workspace[Any], tables: Tables, at: int) -> None:
        super().__init__(space, tables)
        named, self.reader = space.readers[at]
        self.name = predictions_table(space, at)
        self.uses = ("model" if at == 0 else named.name,)

    def decided_by(self) -> Mapping[str, Any]:
        """The outputs that stand for the data's classes."""
        return {"columns": [output for (output,) in self.reader.outputs]}

    def work(self, items: Sequence[Item]) -> list[Made]:
        """Classify the images."""
        labels = [item.inputs["label"] for item in items]
        return [Made(look) for look in self.space.predict(self.reader, self.images(items, "name"), labels)]


def predictions_table(space: Workspace[Any], at: int) -> str:
    """The stage of a model; the last one's has the plain name, so that stopping after `predictions` means after all of them."""
    return "predictions" if at == len(space.readers) - 1 else f"predictions-{at + 1}"


def outcome(space: Workspace[Any], tables: Tables, source: Row, edits: Sequence[Row]) -> Outcome:
    """The records of one source image: a trial for itself and one per edit, and the answers about them."""
    trials = [_source(space, tables, source), *(_edited_trial(space, tables, edit, source) for edit in edits)]
    asked = [(trial, question, kind) for trial in trials for question, kind in _images_to_ask(trial)]
    predictions, verdicts = [], []
    for trial, question, kind in asked:
        for at, (named, _) in enumerate(space.readers):
            if (row := tables[predictions_table(space, at)].one(question)) is not None:
                predictions.append(prediction_of(trial.trial_id, kind, named.name, {"said": "", **row.values}))
        if (row := tables["oracle"].one(question)) is not None:
            name = space.spec.oracle.name
            verdicts.append(Verdict(trial.trial_id, kind, name, row["keeps_label"], row["score"], row["predicted"]))
    return Outcome(tuple(trials), tuple(predictions), tuple(verdicts))


def _source(space: Workspace[Any], tables: Tables, row: Row) -> Trial:
    common = {"image_id": row.id, "label": row["label"], "seed": space.seed(row.id), "source": row["source"]}
    if not row.goes_on:
        return Trial(**common, arm="source", ending="skipped", steps=0, queries=0, reason=row.reason)
    caption = tables["captions"].one(row.id)
    redrawn = (tables["pictures"].one(edit.id) for edit in tables["edits"].of(row.id))
    first = next((each for each in redrawn if each is not None and each.goes_on), None)
    return Trial(
        **common,
        arm="source",
        ending="made",
        steps=0,
        queries=0,
        source_sha256=images.digest(tables.image(row["picture"])),
        clean=stored_image(row["picture"]),
        reconstruction=stored_image(first["reconstruction"]) if first is not None else "",
        caption=str(caption.values.get("caption", "")) if caption is not None else "",
        reason=f"{caption.check}: {caption.reason}" if caption is not None and not caption.goes_on else "",
    )


def _edited_trial(space: Workspace[Any], tables: Tables, edit: Row, source: Row) -> Trial:
    redrawn, quality = tables["pictures"].one(edit.id), tables["quality"].one(edit.id)
    checks = (tables["inversions"].one(edit.of), redrawn, quality)
    stopped = next((row for row in checks if row is not None and not row.goes_on), None)
    made = quality if quality is not None and stopped is None else None
    return Trial(
        image_id=edit.of,
        arm="edited",
        label=source["label"],
        seed=space.seed(edit.of),
        ending="made" if made is not None else "rejected",
        steps=0,
        queries=0,
        source=source["source"],
        clean=stored_image(source["picture"]),
        reconstruction=stored_image(redrawn["reconstruction"]) if redrawn is not None and redrawn.goes_on else "",
        image=stored_image(made["image"]) if made is not None else "",
        reason=f"{stopped.check}: {stopped.reason}" if stopped is not None else "",
        variant=edit.id.rpartition("#")[2],
        factor=edit["factor"],
        value=str(edit.values.get("added", "")),
        caption=edit["caption"],
        prompt=edit["edited"],
        quality=float(quality.values.get("directional", 0.0)) if quality is not None else 0.0,
    )


def _images_to_ask(trial: Trial) -> list[tuple[str, Picture]]:
    """The images of a trial that models and oracle are asked about, by the id of the question."""
    if trial.arm == "edited":
        return [(trial.trial_id, "made")] if trial.image else []
    asked: list[tuple[str, Picture]] = [(f"{trial.image_id}#clean", "clean")] if trial.clean else []
    return asked + ([(f"{trial.image_id}#reconstruction", "reconstruction")] if trial.reconstruction else [])
