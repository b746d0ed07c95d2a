"""Edits of captions: one factor rewritten, checked, each rejection with its reason."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence

import numpy as np

from counterfoil.core.errors import BadRun
from counterfoil.core.spec.lance import FACTORS
from counterfoil.parts.contracts import Rejection, RewriteRequest
from counterfoil.parts.language.caption_checks import REASONS
from counterfoil.parts.language.edits import EditChecker, check_proposals, same_words
from counterfoil.parts.language.lexicon import fingerprint
from counterfoil.protocols.lance.bench import Bench
from counterfoil.protocols.lance.quality.measure import Ruler
from counterfoil.store.stages import Item, Items, Made, Row, Stages, Table

VERSION = 3  # raised when the checks change, so that edits are checked again
_MAY_PASS = ("endpoint",)


def rewrite(bench: Bench, stages: Stages, captions: Table) -> Table:
    """One row an edit, `image#factor-number`; rejected proposals are rows too. People may correct, delete and add edits."""
    spec = bench.spec.edit
    words = str(spec.words or getattr(bench.rewriter, "words", "english"))
    checker = EditChecker.build(
        words, encoder=bench.encoder, threshold=spec.class_similarity, tokenizer=getattr(bench.editor, "tokenizer", None)
    )

    def items() -> Iterator[Item]:
        for row in captions.kept():
            about = {name: row[name] for name in ("label", "class", "picture", "caption")}
            yield Item(row.id, {"caption": _text(row, "caption", captions), "class": row["class"]}, about)

    def work(some: Sequence[Item]) -> list[list[Made]]:
        requests = [
            RewriteRequest(item.inputs["caption"], factor, bench.seed(item.id)) for item in some for factor in spec.factors
        ]
        names = [item.inputs["class"] for item in some for _ in spec.factors]
        answers = iter(check_proposals(bench.rewriter, checker, requests, names))
        made: list[list[Made]] = []
        for _ in some:
            rows: list[Made] = []
            taken: dict[str, str] = {}  # words that can be said to change several factors make one edit, of the first of them
            for factor in spec.factors:
                answer = next(answers)
                kept = [edit for edit in answer.edits if same_words(edit.caption) not in taken][: spec.most(factor)]
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

    def follows(row: Row) -> dict[str, str]:
        caption, edited = row.values.get("caption"), row.values.get("edited")
        if not (isinstance(caption, str) and isinstance(edited, str)):
            return {}
        difference = checker.difference(caption, edited)
        return {"removed": difference.removed, "added": difference.added}

    settings = bench.settings(
        bench.spec.rewriter,
        bench.rewriter,
        edit={**spec.model_dump(mode="json"), "words": words, **fingerprint(words)},
        encoder=bench.settings(bench.spec.encoder, bench.encoder),
        seed=bench.spec.seed,
        version=VERSION,
    )
    with bench.placed(bench.rewriter, bench.encoder):
        return stages.map("edits", Items(items), work, settings=settings, parallel=True, follows=follows)


def directions(bench: Bench, stages: Stages, edits: Table) -> Table:
    """How each edit moves its caption in the encoder's space: what class-level biases are clusters of."""

    def items() -> Iterator[Item]:
        for row in checked(edits):
            yield Item(row.id, {"caption": row["caption"], "edited": row["edited"]})

    def work(some: Sequence[Item]) -> list[Made]:
        ruler = Ruler(bench.encoder, tile=bench.tile, device=bench.device)
        texts = list(dict.fromkeys(text for item in some for text in (item.inputs["caption"], item.inputs["edited"])))
        read = dict(zip(texts, ruler.texts(texts), strict=True))  # a caption is shared by its edits
        made = []
        for item in some:
            file = io.BytesIO()
            np.save(file, (read[item.inputs["edited"]] - read[item.inputs["caption"]]).numpy(), allow_pickle=False)
            made.append(Made({"direction": stages.blobs.put(file.getvalue(), ".npy")}))
        return made

    settings = bench.settings(bench.spec.encoder, bench.encoder)
    with bench.placed(bench.encoder):
        return stages.map("directions", Items(items), work, settings=settings, blobs=["direction"])


def checked(edits: Table) -> Iterator[Row]:
    """The edits that go on; a line that a person broke is named."""
    for row in edits.kept():
        if image_of(row.id) != row.of:
            raise BadRun(f'{edits.path}: {row.id!r} is no id of an edit; give the line its image as "of", and delete the "id"')
        _text(row, "edited", edits)
        if row.values.get("factor") not in FACTORS:
            raise BadRun(f"{edits.path}: {row.id} has the factor {row.values.get('factor')!r}; factors are {', '.join(FACTORS)}")
        yield row


def image_of(edit_id: str) -> str:
    """The image that an edit, `image#factor-number`, is of."""
    return edit_id.rpartition("#")[0]


def _text(row: Row, name: str, table: Table) -> str:
    text = row.values.get(name)
    if not isinstance(text, str):
        raise BadRun(f'{table.path}: the line of {row.id} has no text under "{name}"; correct or delete it')
    return text
