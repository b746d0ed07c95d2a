"""The stages of an ImageNet-D run: each a resumable map from one table to the next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from counterfoil.core.errors import BadData, BadImage
from counterfoil.metrics.mining import Candidate, Look, embedding_hash, perceptual_hash, select
from counterfoil.parts import images
from counterfoil.parts.calls import paint, painting_fault
from counterfoil.protocols.imagenet_d.bench import Bench
from counterfoil.protocols.imagenet_d.results import answers_table, looks_table
from counterfoil.protocols.workbench import picture
from counterfoil.store.stages import Blobs, Item, Items, Made, Stages, Table, turned_away

PROMPTS, PAINTINGS, OBJECTS, EMBEDDINGS, MINED = "prompts", "paintings", "objects", "embeddings", "mined"
_AT_ONCE = 4096  # of work that costs nothing
_ABOUT = ("label", "object", "kind", "nuisance", "prompt")


def names(bench: Bench) -> list[str]:
    """What the stages of a run are called, in their order."""
    looks = [looks_table(named.name) for named, _ in bench.readers]
    judged = [OBJECTS] if bench.oracle is not None else []
    asked = [answers_table(named.name) for named, _ in bench.chats]
    if bench.painter is None:
        return [PAINTINGS, *looks, *judged, *asked]
    return [PROMPTS, PAINTINGS, *looks, *judged, *([EMBEDDINGS] if bench.encoder is not None else []), MINED, *asked]


def plan(bench: Bench, stages: Stages) -> Table:
    """The prompts, as a table that people may correct before anything is painted."""
    grid = bench.grid
    assert grid is not None

    def items() -> Iterator[Item]:
        for prompt in grid.prompts(bench.spec.seed):
            about = {"label": prompt.label, "object": prompt.thing, "kind": prompt.kind, "nuisance": prompt.nuisance}
            yield Item(prompt.prompt_id, {"prompt": prompt.text}, about)

    def work(some: Sequence[Item]) -> list[Made]:
        return [Made({"prompt": item.inputs["prompt"]}) for item in some]

    return stages.map(PROMPTS, Items(items, total=len(grid)), work, settings={}, batch=_AT_ONCE)


def paint_all(bench: Bench, stages: Stages, prompts: Table) -> Table:
    """A picture for every prompt, or why there is none that can be used."""
    painter, named = bench.painter, bench.spec.painter
    assert painter is not None and named is not None

    def items() -> Iterator[Item]:
        for row in prompts.kept():
            seed = bench.seed(row.id)
            yield Item(row.id, {"prompt": row["prompt"], "seed": seed}, {name: row[name] for name in _ABOUT[:-1]})

    def work(some: Sequence[Item]) -> list[Made]:
        seeds = [int(item.inputs["seed"]) for item in some]
        texts = [str(item.inputs["prompt"]) for item in some]
        painted = paint(painter, texts, torch.tensor(seeds, dtype=torch.int64))
        rows = zip(painted.images, painted.flagged, texts, seeds, strict=True)
        return [_painting(stages, image, flagged, {"prompt": text, "seed": seed}) for image, flagged, text, seed in rows]

    with bench.placed(painter):
        table = stages.map(
            PAINTINGS, Items(items, total=count(prompts)), work, settings=bench.settings(named, painter), blobs=["image"]
        )
    first = next((row for row in table if not row.goes_on), None)
    if first is not None and not any(True for _ in table.kept()):
        raise BadData(f"painter {named.name}: none of its pictures can be used; the first: {first.reason}")
    return table


def take_all(bench: Bench, stages: Stages) -> Table:
    """The pictures of a set that was made before, as if they had been painted."""
    data = bench.data
    assert data is not None
    samples = {sample.image_id: sample for sample in data.taken(bench.spec.limit)}

    def items() -> Iterator[Item]:
        for sample in samples.values():
            about = {"label": sample.label, "object": list(bench.classes)[sample.label], **data.about(sample.image_id)}
            yield Item(sample.image_id, {"size": bench.spec.size}, about)

    def work(some: Sequence[Item]) -> list[Made]:
        return [_taken(stages, bench, data.load(samples[item.id], bench.spec.size)) for item in some]

    table = stages.map(PAINTINGS, Items(items, total=len(samples)), work, settings=data.settings(), blobs=["image"])
    return bench.complete(table)


def look_at_all(bench: Bench, stages: Stages, paintings: Table) -> dict[str, Table]:
    """What every surrogate and model makes of every picture."""
    tables = {}
    for named, reader in bench.readers:

        def work(some: Sequence[Item], reader: Any = reader) -> list[Made]:
            pictures = [picture(stages, str(item.about["image"])) for item in some]
            truths = [int(item.inputs["label"]) for item in some]
            return [Made(look) for look in bench.in_tiles(pictures, reader.looks, truths)]

        with bench.placed(reader.model):
            settings = bench.settings(named, reader.model, outputs=[list(each) for each in reader.outputs])
            tables[named.name] = stages.map(looks_table(named.name), _pictures(paintings), work, settings=settings)
    return tables


def judge_all(bench: Bench, stages: Stages, paintings: Table) -> Table | None:
    """Whether the oracle sees the object in every picture."""
    oracle, named = bench.oracle, bench.spec.oracle
    if oracle is None or named is None:
        return None

    def work(some: Sequence[Item]) -> list[Made]:
        pictures = [picture(stages, str(item.about["image"])) for item in some]
        truths = [int(item.inputs["label"]) for item in some]
        said = bench.judged(named, oracle, pictures, truths)
        return [Made({"sees": sees, "score": round(score, 6), "seen": seen}) for sees, score, seen in said]

    with bench.placed(oracle):
        return stages.map(OBJECTS, _pictures(paintings), work, settings=bench.settings(named, oracle))


def embed_all(bench: Bench, stages: Stages, paintings: Table) -> Table | None:
    """A hash of what an encoder sees in every picture, under which pictures alike in meaning are near each other."""
    encoder, named = bench.encoder, bench.spec.encoder
    if encoder is None or named is None:
        return None

    def work(some: Sequence[Item]) -> list[Made]:
        pictures = [picture(stages, str(item.about["image"])) for item in some]

        @torch.no_grad()
        def embed(batch: torch.Tensor) -> list[str]:
            rows = encoder.embed_images(batch).float().cpu().numpy()
            return [f"{embedding_hash(row):016x}" for row in rows]

        return [Made({"hash": code}) for code in bench.in_tiles(pictures, embed)]

    with bench.placed(encoder):
        return stages.map(EMBEDDINGS, _pictures(paintings), work, settings=bench.settings(named, encoder))


def mine(
    bench: Bench,
    stages: Stages,
    paintings: Table,
    looks: Mapping[str, Table],
    objects: Table | None,
    embeddings: Table | None = None,
) -> Table:
    """The pictures that are kept, and why the others are not."""
    spec = bench.spec
    surrogates = [named.name for named in spec.surrogates]
    tables = {name: looks[name] for name in surrogates}
    known = candidates(paintings, tables, objects, embeddings)
    decided = select(known, spec.mining, surrogates=surrogates, seed=spec.seed)

    def items() -> Iterator[Item]:
        for row in paintings.kept():
            decision = decided[row.id]
            about = {name: row.values.get(name, "") for name in _ABOUT}
            yield Item(row.id, {"check": decision.check, "reason": decision.reason}, {**about, "image": row["image"]})

    def work(some: Sequence[Item]) -> list[Made]:
        checks = [(str(item.inputs["check"]), str(item.inputs["reason"])) for item in some]
        return [turned_away(check, reason) if check else Made({}) for check, reason in checks]

    return stages.map(MINED, Items(items, total=len(decided)), work, settings={}, batch=_AT_ONCE)


def candidates(
    paintings: Table, looks: Mapping[str, Table], objects: Table | None, embeddings: Table | None = None
) -> Iterator[Candidate]:
    """What mining knows of every picture."""
    for row in paintings.kept():
        found = {}
        for name, table in looks.items():
            said = table.one(row.id)
            if said is not None and said.goes_on:
                found[name] = Look(said["correct"], said["confidence"], said["truth"], said["predicted"])
        seen = objects.one(row.id) if objects is not None else None
        code = row if embeddings is None else embeddings.one(row.id)
        yield Candidate(
            image_id=row.id,
            label=row["label"],
            kind=row["kind"],
            nuisance=row["nuisance"],
            looks=found,
            accepted=seen["sees"] if seen is not None else None,
            picture_hash=int(code["hash"], 16) if code is not None and code.values.get("hash") else None,
        )


def _painting(stages: Stages, image: torch.Tensor, flagged: bool | None, values: dict[str, Any]) -> Made:
    problem = painting_fault(image, flagged=flagged)
    if problem:
        return turned_away("withheld" if flagged else "unusable", problem, nsfw=flagged, **values)
    return Made({**_kept(stages, image), "nsfw": flagged, **values})


def _taken(stages: Stages, bench: Bench, found: torch.Tensor | BadImage) -> Made:
    if isinstance(found, BadImage):
        return bench.unreadable(found)
    return Made(_kept(stages, found))


def _kept(stages: Stages, image: torch.Tensor) -> dict[str, Any]:
    pixels = images.to_uint8(image)
    return {"image": stages.blobs.put(images.png(image), ".png"), "hash": f"{perceptual_hash(pixels):016x}"}


def _pictures(paintings: Table) -> Items:
    """The pictures there are, as items that hang on their pixels alone."""

    def items() -> Iterator[Item]:
        for row in paintings.kept():
            yield Item(row.id, {"image": Blobs.hash_of(row["image"]), "label": row["label"]}, {"image": row["image"]})

    return Items(items, total=count(paintings))


def count(table: Table) -> int:
    """How many rows of a table go on."""
    return sum(1 for _ in table.kept())
