"""The stages of an ImageNet-D run: each a resumable map from one table to the next; then the run's records."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from counterfoil.core.errors import BadData, BadImage
from counterfoil.core.naming import stable_hash
from counterfoil.core.records import Prediction, Trial, Verdict
from counterfoil.core.spec import PartSpec
from counterfoil.metrics.mining import Candidate, Decision, Look, embedding_hash, perceptual_hash, select
from counterfoil.parts import calls, imagenet, images, labels
from counterfoil.parts.calls import paint, painting_fault
from counterfoil.parts.contracts import Sample, provenance_of
from counterfoil.protocols.base import Outcome
from counterfoil.protocols.imagenet_d import ImagenetDSpec
from counterfoil.protocols.imagenet_d.grid import Grid, read_grid
from counterfoil.protocols.imagenet_d.questions import Question, ask
from counterfoil.protocols.imagenet_d.released import read_questions
from counterfoil.protocols.imagenet_d.results import answers_table, looks_table
from counterfoil.protocols.sets import SetSpace, open_set
from counterfoil.protocols.stages import Looks, Stage, Tables
from counterfoil.protocols.workspace import Given, prediction_of
from counterfoil.store.stages import Item, Made, Row, StageTable, image_of, turned_away

VERSION = 3  # raised when answers are read in another way, so that they are read again
_AT_ONCE = 4096  # of work that costs nothing
SET_CLASSES = "set"
"""Value of a zero-shot model's option `classes` that asks for the names of the set."""
TEMPLATE = "A photo of a {class}"  # of the paper
_ABOUT = ("label", "object", "kind", "nuisance", "prompt")


@dataclass
class PaintingSpace(SetSpace[ImagenetDSpec]):
    """The parts of an ImageNet-D run, with the grid of its prompts or the set that models are tested on."""

    BATCHES: ClassVar[Mapping[str, int]] = {"cpu": 8, "cuda": 64}

    grid: Grid | None = None

    @classmethod
    def of(cls, spec: ImagenetDSpec, given: Given | None = None) -> PaintingSpace:
        if spec.data is None:
            grid = read_grid(spec.grid)
            if spec.limit is not None:
                grid = grid.model_copy(update={"count": min(spec.limit, len(grid))})
            made = cls.open(spec, given, class_ids={each.name: each.ids for each in grid.objects}, place=False)
            made.grid = grid
            return made
        data = open_set(spec, replace(given or Given(), head=None))  # a worker, too, reads any image of it
        made = cls.open(spec, given, dataset=data.dataset, class_ids=data.classes, place=False)
        made.data = data
        return made

    @classmethod
    def options(cls, named: PartSpec, names: Sequence[str]) -> Mapping[str, Any]:
        """`classes: set` gives a zero-shot model the names of the set, with the paper's prompt."""
        if named.options.get("classes") != SET_CLASSES:
            return named.options
        return {"templates": TEMPLATE, **named.options, "classes": list(names)}


class ImagenetDStage(Stage):
    """A stage over the parts of an ImageNet-D run."""

    space: PaintingSpace


class Prompts(ImagenetDStage):
    """The prompts, as a table that people may correct before anything is painted."""

    name, at_once = "prompts", _AT_ONCE

    def items(self) -> Iterator[Item]:
        assert self.space.grid is not None
        for prompt in self.space.grid.prompts(self.space.spec.seed):
            about = {"label": prompt.label, "object": prompt.object, "kind": prompt.kind, "nuisance": prompt.nuisance}
            yield Item(prompt.prompt_id, {"prompt": prompt.text}, about)

    def count(self) -> int:
        return len(self.space.grid or ())

    def work(self, items: Sequence[Item]) -> list[Made]:
        return [Made({"prompt": item.inputs["prompt"]}) for item in items]


class PaintedImages(ImagenetDStage):
    """An image for every prompt, or why there is none that can be used."""

    name, of, uses, kept = "paintings", "prompts", ("painter",), ("image",)

    def item(self, row: Row) -> Item:
        inputs = {"prompt": row["prompt"], "seed": self.space.seed(row.id)}
        return Item(row.id, inputs, {name: row[name] for name in _ABOUT[:-1]})

    def work(self, items: Sequence[Item]) -> list[Made]:
        seeds = [int(item.inputs["seed"]) for item in items]
        texts = [str(item.inputs["prompt"]) for item in items]
        painted = paint(self.space.painter, texts, torch.tensor(seeds, dtype=torch.int64))
        rows = zip(painted.images, painted.flagged, texts, seeds, strict=True)
        return [self._painting(image, flagged, {"prompt": text, "seed": seed}) for image, flagged, text, seed in rows]

    def _painting(self, image: Tensor, flagged: bool | None, values: dict[str, Any]) -> Made:
        if problem := painting_fault(image, flagged=flagged):
            return turned_away("withheld" if flagged else "unusable", problem, nsfw=flagged, **values)
        return Made({**_store(self.tables, image), "nsfw": flagged, **values})

    def check(self, table: StageTable) -> None:
        """Refuse a painter none of whose images can be used."""
        first = next((row for row in table if not row.goes_on), None)
        if first is not None and not any(True for _ in table.passing()):
            painter = self.space.spec.painter
            raise BadData(f"painter {painter}: none of its images can be used; the first: {first.reason}")


class Taken(ImagenetDStage):
    """The images of a set that was made before, as if they had been painted."""

    name, kept = "paintings", ("image",)

    @cached_property
    def _samples(self) -> dict[str, Any]:
        return {sample.image_id: sample for sample in self.space.dataset}

    def items(self) -> Iterator[Item]:
        assert self.space.data is not None
        for sample in self._samples.values():
            about = {"label": sample.label, "object": self.space.names[sample.label], **self.space.data.about(sample)}
            yield Item(sample.image_id, {"size": self.space.spec.size}, about)

    def count(self) -> int:
        return len(self._samples)

    def decided_by(self) -> Mapping[str, Any]:
        return {"data": self.space.spec.data.name, "about": provenance_of(self.space.dataset)}  # type: ignore[union-attr]

    def work(self, items: Sequence[Item]) -> list[Made]:
        return [self._take(self._samples[item.id]) for item in items]

    def _take(self, sample: Sample) -> Made:
        try:
            return Made(_store(self.tables, self.space.dataset.load(sample, self.space.spec.size)))
        except BadImage as problem:
            return self.unreadable(problem)

    def check(self, table: StageTable) -> None:
        """With `strict`, refuse a set of which an image was left out."""
        self.complete_if_strict(table)


class _Painted(ImagenetDStage):
    """Asks about the images there are, known by their pixels alone."""

    of = "paintings"

    def item(self, row: Row) -> Item:
        return Item(row.id, {"image": self.tables.files.hash_of(row["image"]), "label": row["label"]}, {"image": row["image"]})


class ModelPredictions(_Painted, Looks):
    """Answers of a surrogate or model for every image."""


class Objects(_Painted):
    """Verdicts of the oracle on the object in every image."""

    name, uses = "objects", ("oracle",)

    def work(self, items: Sequence[Item]) -> list[Made]:
        answers = self.space.judge(self.images(items), [int(item.inputs["label"]) for item in items])
        return [Made({"sees": sees, "score": round(score, 6), "seen": seen}) for sees, score, seen in answers]


class Embeddings(_Painted):
    """A hash of what an encoder sees in every image, under which images alike in meaning are near each other."""

    name, uses = "embeddings", ("encoder",)

    def work(self, items: Sequence[Item]) -> list[Made]:

        @torch.no_grad()
        def embed(batch: Tensor) -> list[str]:
            rows = calls.guard(self.space.encoder.embed_images, "the encoder")(batch).float().cpu().numpy()
            return [f"{embedding_hash(row):016x}" for row in rows]

        return [Made({"hash": code}) for code in self.space.in_batches(self.images(items), embed)]


class MinedImages(ImagenetDStage):
    """The images that are kept, and why the others are not."""

    name, of, at_once = "mined", "paintings", _AT_ONCE

    @cached_property
    def _decided(self) -> Mapping[str, Decision]:
        spec = self.space.spec
        surrogates = [named.name for named in spec.surrogates]
        return select(candidates(self.space, self.tables), spec.mining, surrogates=surrogates, seed=spec.seed)

    def item(self, row: Row) -> Item:
        decision = self._decided[row.id]
        about = {name: row.values.get(name, "") for name in _ABOUT}
        return Item(row.id, {"check": decision.check, "reason": decision.reason}, {**about, "image": row["image"]})

    def work(self, items: Sequence[Item]) -> list[Made]:
        checks = [(str(item.inputs["check"]), str(item.inputs["reason"])) for item in items]
        return [turned_away(check, reason) if check else Made({}) for check, reason in checks]


class ChatAnswers(ImagenetDStage):
    """Answers of a vision-language model about the images that were kept: the truth or the hardest wrong name."""

    parallel = True

    def __init__(self, space: PaintingSpace, tables: Tables, name: str) -> None:
        super().__init__(space, tables)
        self.name, self.uses = answers_table(name), (name,)
        self.of = "mined" if space.grid is not None else "paintings"

    def item(self, row: Row) -> Item:
        names, settings = self.space.names, self.space.spec.questions
        wrong = self._released.get(row.id)
        if wrong is None or wrong == row["label"]:
            wrong = hardest_wrong(self.space, self.tables, row)
        question = Question.draw(names[row["label"]], names[wrong], row.id, order=settings.order, seed=self.space.spec.seed)
        asked = {"truth": question.truth, "wrong": question.wrong, "truth_first": question.truth_first}
        return Item(row.id, {"image": self.tables.files.hash_of(row["image"]), **asked}, {"image": row["image"], **asked})

    def decided_by(self) -> Mapping[str, Any]:
        settings = self.space.spec.questions
        return {"text": settings.text, "both_orders": settings.both_orders, "version": VERSION}

    def work(self, items: Sequence[Item]) -> list[Made]:
        (name,) = self.uses
        asked = [Question(str(i.inputs["truth"]), str(i.inputs["wrong"]), bool(i.inputs["truth_first"])) for i in items]
        pictures = [image.to(self.space.device) for image in self.images(items)]
        found = ask(self.space.parts[name], pictures, asked, self.space.spec.questions, kin=self._other_names)
        return [Made(each) for each in found]

    @cached_property
    def _released(self) -> dict[str, int]:
        """The wrong classes that the set's question files name, by image."""
        data, places = self.space.spec.data, {labels.key(name): place for place, name in enumerate(self.space.names)}
        kind, _, root = data.name.partition(":") if data else ("", "", "")
        folder = self.space.spec.questions.files or (str(Path(root) / "questions") if kind == "imagenet-d" else "")
        named = read_questions(Path(folder).expanduser()) if folder else {}
        return {image: places[labels.key(name)] for image, name in named.items() if labels.key(name) in places}

    @cached_property
    def _other_names(self) -> dict[str, tuple[str, ...]]:
        """The other names that a class of the set goes by, for reading answers."""
        ids = self.space.class_ids or {}
        wordnet = any(re.fullmatch(r"n\d{8}", each) for some in ids.values() for each in some)
        known = {entry.wordnet: entry.aliases[2:] for entry in imagenet.classes()} if wordnet else {}
        return {name: tuple(alias for each in some for alias in known.get(each, ())) for name, some in ids.items()}


def hardest_wrong(space: PaintingSpace, tables: Tables, row: Row) -> int:
    """The wrong class that the models together find most probable; without any, one drawn by the image's id."""
    chance = np.zeros(len(space.names))
    for named, _ in space.readers:
        said = tables[looks_table(named.name)].one(row.id)
        if said is not None:
            chance[said["wrong"]] += said["wrong_chance"]
    chance[row["label"]] = -1
    if chance.max() > 0:
        return int(chance.argmax())
    drawn = stable_hash(row.id) % (len(chance) - 1)
    return drawn + int(drawn >= row["label"])


def candidates(space: PaintingSpace, tables: Tables) -> Iterator[Candidate]:
    looks = {named.name: tables[looks_table(named.name)] for named in space.spec.surrogates}
    for row in tables["paintings"].passing():
        found = {}
        for name, table in looks.items():
            said = table.one(row.id)
            if said is not None and said.goes_on:
                found[name] = Look(said["correct"], said["confidence"], said["truth"], said["predicted"])
        seen = tables["objects"].one(row.id) if "oracle" in space.parts else None
        code = row if "encoder" not in space.parts else tables["embeddings"].one(row.id)
        yield Candidate(
            image_id=row.id,
            label=row["label"],
            kind=row["kind"],
            nuisance=row["nuisance"],
            looks=found,
            accepted=seen["sees"] if seen is not None else None,
            picture_hash=int(code["hash"], 16) if code is not None and code.values.get("hash") else None,
        )


def _store(tables: Tables, image: Tensor) -> dict[str, Any]:
    pixels = images.to_uint8(image)
    return {"image": tables.files.put(images.png(image), ".png"), "hash": f"{perceptual_hash(pixels):016x}"}


def outcome(space: PaintingSpace, tables: Tables, row: Row) -> Outcome:
    trial = _trial(space, row, tables["mined"].one(row.id) if space.grid is not None and row.goes_on else None)
    verdicts = []
    if "oracle" in space.parts and (said := tables["objects"].one(row.id)) is not None and said.goes_on:
        verdicts = [Verdict(trial.trial_id, "made", space.spec.oracle.name, said["sees"], said["score"], said["seen"])]  # type: ignore[union-attr]
    return Outcome((trial,), tuple(_predictions(space, tables, trial)), tuple(verdicts))


def _trial(space: PaintingSpace, row: Row, kept: Row | None) -> Trial:
    """An image that was kept is `made`, one that mining rejected `rejected`, and one that cannot be used `skipped`."""
    if not row.goes_on:
        ending, reason = "skipped", row.reason
    elif kept is not None and not kept.goes_on:
        ending, reason = "rejected", f"{kept.check}: {kept.reason}"
    else:
        ending, reason = "made", ""
    return Trial(
        image_id=row.id,
        arm="painted",
        label=row["label"],
        seed=int(row.values.get("seed", 0)),
        ending=ending,  # type: ignore[arg-type]
        steps=0,
        queries=0,
        source=row.id if space.grid is None else "",
        image=image_of(row["image"]) if row.goes_on else "",
        reason=reason,
        factor=row["kind"],
        value=row["nuisance"],
        prompt=row.values.get("prompt", ""),
    )


def _predictions(space: PaintingSpace, tables: Tables, trial: Trial) -> Iterator[Prediction]:
    for named, _ in space.readers:
        said = tables[looks_table(named.name)].one(trial.image_id)
        if said is not None and said.goes_on:
            yield prediction_of(trial.trial_id, "made", named.name, said.values)
    unread_is_wrong = space.spec.questions.unread == "wrong"
    for chat in space.spec.chats:
        said = tables[answers_table(chat.name)].one(trial.image_id)
        if said is not None and said.goes_on and (said["right"] is not None or unread_is_wrong):
            right = bool(said["right"])
            named_class = -1 if said["right"] is None else space.names.index(said["truth" if right else "wrong"])
            yield Prediction(trial.trial_id, "made", chat.name, named_class, right, 1.0, float(right))
