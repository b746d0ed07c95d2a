"""LANCE's stages over words: source images, their captions, edits of the captions, and the directions of the edits."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from counterfoil.core.errors import BadImage, BadRun, RunFailed
from counterfoil.parts import calls, images
from counterfoil.parts.contracts import Rejection, RewriteRequest, Sample
from counterfoil.parts.language.caption_checks import REASONS
from counterfoil.parts.language.edits import EditChecker, check_proposals, same_words
from counterfoil.parts.language.lexicon import fingerprint
from counterfoil.protocols.lance.quality import EmbeddingBatches
from counterfoil.protocols.lance.spec import FACTORS
from counterfoil.protocols.stages import Stage
from counterfoil.store.stages import Item, Made, Row, StageTable, turned_away

VERSION = 3  # raised when the checks change, so that edits are checked again
_MAY_PASS = ("endpoint",)


class Sources(Stage):
    """One row per source image: where it is kept, its label, and the caption that came with the data if there was one."""

    name, kept = "sources", ("picture",)

    def items(self) -> Iterator[Item]:
        """Every sample of the data."""
        for sample in self.space.dataset:
            about = {"label": sample.label, "class": self.space.names[sample.label], "source": sample.source}
            about |= {"place": sample.place} if sample.place else {}
            yield Item(sample.image_id, {"given": sample.caption}, about)

    def count(self) -> int:
        """The length of the data."""
        return len(self.space.dataset)

    def decided_by(self) -> Mapping[str, Any]:
        """The data, and the size it is read at."""
        data = self.space.spec.data
        return {"data": data.name, "options": data.options, "size": self.space.size}

    def of_data(self) -> Mapping[str, Any]:
        """The listing."""
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

    name, uses = "captions", ("captioner",)

    def items(self) -> Iterator[Item]:
        """Every readable image."""
        for row in self.tables["sources"].passing():
            inputs = {"picture": self.tables.files.hash_of(row["picture"]), "given": row["given"]}
            yield Item(row.id, inputs, {name: row[name] for name in ("label", "class", "source", "picture")})

    def work(self, items: Sequence[Item]) -> list[Made]:
        """Describe the images."""
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

    name, uses, parallel = "edits", ("rewriter", "encoder"), True

    @cached_property
    def checker(self) -> EditChecker:
        """The checks that every proposal must pass."""
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

    def items(self) -> Iterator[Item]:
        """Every caption."""
        captions = self.tables["captions"]
        for row in captions.passing():
            about = {name: row[name] for name in ("label", "class", "picture", "caption")}
            yield Item(row.id, {"caption": _text(row, "caption", captions), "class": row["class"]}, about)

    def decided_by(self) -> Mapping[str, Any]:
        """The settings of rewriting, and the checks."""
        edit = {**self.space.spec.edit.model_dump(mode="json"), "words": self._words, **fingerprint(self._words)}
        return {"edit": edit, "seed": self.space.spec.seed, "version": VERSION}

    def work(self, items: Sequence[Item]) -> list[list[Made]]:
        """Rewrite each factor of each caption."""
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
        """Every edit."""
        for row in check_edits(self.tables["edits"]):
            yield Item(row.id, {"caption": row["caption"], "edited": row["edited"]})

    def work(self, items: Sequence[Item]) -> list[Made]:
        """Embed each caption once, as it is shared by its edits."""
        encoder = EmbeddingBatches(self.space.encoder, batch=self.space.batch, device=self.space.device)
        texts = list(dict.fromkeys(text for item in items for text in (item.inputs["caption"], item.inputs["edited"])))
        read = dict(zip(texts, encoder.texts(texts), strict=True))
        made = []
        for item in items:
            file = io.BytesIO()
            np.save(file, (read[item.inputs["edited"]] - read[item.inputs["caption"]]).numpy(), allow_pickle=False)
            made.append(Made({"direction": self.tables.files.put(file.getvalue(), ".npy")}))
        return made


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
