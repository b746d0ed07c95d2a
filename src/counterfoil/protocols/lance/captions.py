"""LANCE's stages over words: source images, their captions, edits of the captions, and the directions of the edits."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from counterfoil.core.errors import BadImage, BadRun, RunFailed
from counterfoil.parts import calls, images
from counterfoil.parts.contracts import Rejection, RewriteRequest, Sample
from counterfoil.parts.language.caption_checks import REASONS
from counterfoil.parts.language.edits import EditChecker, check_proposals, same_words
from counterfoil.parts.language.lexicon import fingerprint
from counterfoil.protocols.lance import FACTORS
from counterfoil.protocols.stages import Stage
from counterfoil.protocols.workspace import Workspace
from counterfoil.store.stages import Item, Made, Row, StageTable, turned_away

VERSION = 3  # raised when the checks change, so that edits are checked again
_MAY_PASS = ("endpoint",)


class Sources(Stage):
    """One row per source image: where it is kept, its label, and the caption that came with the data if there was one."""

    name, kept = "sources", ("picture",)

    def items(self) -> Iterator[Item]:
        for sample in self.space.dataset:
            about = {"label": sample.label, "class": self.space.names[sample.label], "source": sample.source}
            about |= {"place": sample.place} if sample.place else {}
            yield Item(sample.image_id, {"given": sample.caption}, about)

    def count(self) -> int:
        return len(self.space.dataset)

    def decided_by(self) -> Mapping[str, Any]:
        data = self.space.spec.data
        return {"data": data.name, "options": data.options, "size": self.space.size}

    def of_data(self) -> Mapping[str, Any]:
        dataset = self.space.dataset
        return {"provenance": dataset.provenance()} if hasattr(dataset, "provenance") else {}

    def work(self, items: Sequence[Item]) -> list[Made]:
        """Read the images, rounded to 8 bits like everything that is made of them."""
        return [self._read(item) for item in items]

    def _read(self, item: Item) -> Made:
        try:
            image = self.space.dataset.load(sample_of(item), self.space.size)
            png = images.png((image * 255).round() / 255)
        except BadImage as problem:
            return self.unreadable(problem)
        return Made({"picture": self.tables.files.put(png, ".png"), "given": item.inputs["given"]})

    def check(self, table: StageTable) -> None:
        """With `strict`, refuse data of which an image was left out."""
        self.complete_if_strict(table)


class Captions(Stage):
    """One row per readable image; people may correct the captions."""

    name, of, uses = "captions", "sources", ("captioner",)

    def item(self, row: Row) -> Item:
        inputs = {"picture": self.tables.files.hash_of(row["picture"]), "given": row["given"]}
        return Item(row.id, inputs, {name: row[name] for name in ("label", "class", "source", "picture")})

    def work(self, items: Sequence[Item]) -> list[Made]:
        samples = [sample_of(item) for item in items]
        found = self.space.in_batches(
            self.images(items, "picture"), calls.guard(self.space.captioner.caption, "the captioner"), samples
        )
        return [
            turned_away("no caption", each.problem, caption=each.text) if each.problem else Made({"caption": each.text})
            for each in found
        ]

    def check(self, table: StageTable) -> None:
        """Refuse to continue where no image has a caption: there is nothing to edit."""
        rows = list(table)
        if rows and not any(row.goes_on for row in rows):
            raise RunFailed(
                f"captioner {self.space.spec.captioner.name}: none of {len(rows)} images has a caption that can be used; "
                f"the first: {rows[0].reason}"
            )


class Edits(Stage):
    """One row per edit, `image#factor-number`; rejected proposals are rows too. People may correct, delete and add edits."""

    name, of, uses, parallel = "edits", "captions", ("rewriter", "encoder"), True

    @cached_property
    def checker(self) -> EditChecker:
        bar = self.space.spec.edit.class_similarity
        return EditChecker.build(
            self._words,
            encoder=self.space.encoder if bar is not None else None,
            threshold=bar or 0.0,
            tokenizer=getattr(self.space.editor, "tokenizer", None),
        )

    @property
    def _words(self) -> str:
        return str(self.space.spec.edit.words or getattr(self.space.rewriter, "words", "english"))

    def item(self, row: Row) -> Item:
        about = {name: row[name] for name in ("label", "class", "picture", "caption")}
        return Item(row.id, {"caption": _text(row, "caption", self.tables["captions"]), "class": row["class"]}, about)

    def decided_by(self) -> Mapping[str, Any]:
        edit = {**self.space.spec.edit.model_dump(mode="json"), "words": self._words, **fingerprint(self._words)}
        return {"edit": edit, "seed": self.space.spec.seed, "version": VERSION}

    def work(self, items: Sequence[Item]) -> list[list[Made]]:
        factors = self.space.spec.edit.factors
        requests = [
            RewriteRequest(item.inputs["caption"], factor, self.space.seed(item.id)) for item in items for factor in factors
        ]
        names = [item.inputs["class"] for item in items for _ in factors]
        answers = iter(check_proposals(self.space.rewriter, self.checker, requests, names))
        made: list[list[Made]] = []
        for _ in items:
            rows: list[Made] = []
            taken: dict[str, str] = {}  # an edit that may count as several factors is one edit, of the first of them
            for factor in factors:
                answer = next(answers)
                most = self.space.spec.edit.most(factor)
                kept = [edit for edit in answer.edits if same_words(edit.caption) not in taken][:most]
                again = [
                    Rejection(factor, edit.caption, "duplicate", f"as an edit of the {other}")
                    for edit in answer.edits
                    if (other := taken.get(same_words(edit.caption)))
                ]
                taken |= {same_words(edit.caption): factor for edit in kept}
                for number, edit in enumerate(kept):
                    values = {"factor": factor, "edited": edit.caption, "removed": edit.removed, "added": edit.added}
                    rows.append(Made(values, name=f"{factor}-{number}"))
                for number, rejection in enumerate((*answer.rejections, *again)):
                    why = ": ".join(filter(None, (REASONS.get(rejection.reason, rejection.reason), rejection.detail)))
                    values = {"factor": factor, "proposal": rejection.proposal}
                    name, retry = f"{factor}-no-{number}", rejection.reason in _MAY_PASS
                    rows.append(Made(values, name=name, check=rejection.reason, reason=" ".join(why.split()), retry=retry))
            made.append(rows)
        return made

    def follows(self, row: Row) -> Mapping[str, Any]:
        """The words that a corrected edit takes out and puts in."""
        caption, edited = row.values.get("caption"), row.values.get("edited")
        if not (isinstance(caption, str) and isinstance(edited, str)):
            return {}
        difference = self.checker.difference(caption, edited)
        return {"removed": difference.removed, "added": difference.added}


class Directions(Stage):
    """The way each edit moves its caption in the encoder's space; class-level biases are clusters of these."""

    name, uses, kept = "directions", ("encoder",), ("direction",)

    def items(self) -> Iterator[Item]:
        for row in check_edits(self.tables["edits"]):
            yield Item(row.id, {"caption": row["caption"], "edited": row["edited"]})

    def work(self, items: Sequence[Item]) -> list[Made]:
        read = embed_texts(self.space, (item.inputs[name] for item in items for name in ("caption", "edited")))
        made = []
        for item in items:
            file = io.BytesIO()
            np.save(file, (read[item.inputs["edited"]] - read[item.inputs["caption"]]).numpy(), allow_pickle=False)
            made.append(Made({"direction": self.tables.files.put(file.getvalue(), ".npy")}))
        return made


@torch.no_grad()
def embed_images(space: Workspace[Any], images: Sequence[Tensor]) -> Tensor:
    """Embeddings of length one, in batches of one size.  # (3, H, W) each → (N, D)"""
    embed = calls.guard(space.encoder.embed_images, "the encoder")
    return torch.stack(space.in_batches(images, lambda batch: normalize(embed(batch).float(), dim=-1).cpu()))


@torch.no_grad()
def embed_texts(space: Workspace[Any], texts: Iterable[str]) -> dict[str, Tensor]:
    """Embeddings of length one, one text at a time, so that none depends on a neighbour; each text once."""
    embed = calls.guard(space.encoder.embed_texts, "the encoder")
    return {text: normalize(embed([text]).float(), dim=-1).cpu()[0] for text in dict.fromkeys(texts)}


def sample_of(item: Item) -> Sample:
    """The sample that an item about a source image stands for."""
    about: dict[str, Any] = dict(item.about)
    return Sample(item.id, about["label"], about["source"], item.inputs.get("given", ""), about.get("place", ""))


def check_edits(edits: StageTable) -> Iterator[Row]:
    """The edits that were kept; a line that a person broke is named."""
    for row in edits.passing():
        if image_of(row.id) != row.of:
            raise BadRun(f'{edits.path}: {row.id!r} is no id of an edit; give the line its image as "of", and delete the "id"')
        _text(row, "edited", edits)
        if row.values.get("factor") not in FACTORS:
            raise BadRun(f"{edits.path}: {row.id} has the factor {row.values.get('factor')!r}; factors are {', '.join(FACTORS)}")
        yield row


def image_of(edit_id: str) -> str:
    """The image that an edit, `image#factor-number`, is of."""
    return edit_id.rpartition("#")[0]


def _text(row: Row, name: str, table: StageTable) -> str:
    text = row.values.get(name)
    if not isinstance(text, str):
        raise BadRun(f'{table.path}: the line of {row.id} has no text under "{name}"; correct or delete it')
    return text
