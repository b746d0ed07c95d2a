"""Captions of the source pictures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from counterfoil.protocols.lance.bench import Bench
from counterfoil.protocols.lance.sources import sample_of
from counterfoil.protocols.workbench import picture
from counterfoil.store.stages import Item, Items, Made, Stages, Table, turned_away


def caption(bench: Bench, stages: Stages, sources: Table) -> Table:
    """One row a readable picture; people may correct the captions."""

    def items() -> Iterator[Item]:
        for row in sources.kept():
            inputs = {"picture": stages.blobs.hash_of(row["picture"]), "given": row["given"]}
            about = {name: row[name] for name in ("label", "class", "source", "picture")}
            yield Item(row.id, inputs, about)

    def work(some: Sequence[Item]) -> list[Made]:
        samples = [sample_of(item) for item in some]
        pictures = [picture(stages, item.about["picture"]) for item in some]
        found = bench.in_tiles(pictures, bench.captioner.caption, samples)
        return [
            turned_away("no caption", said.problem, caption=said.text) if said.problem else Made({"caption": said.text})
            for said in found
        ]

    settings = bench.settings(bench.spec.captioner, bench.captioner)
    with bench.placed(bench.captioner):
        return stages.map("captions", Items(items), work, settings=settings)
