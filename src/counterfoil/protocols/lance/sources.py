"""The source pictures, read once and kept as the run sees them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from counterfoil.core.errors import BadImage
from counterfoil.parts import images
from counterfoil.parts.contracts import Sample
from counterfoil.protocols.lance.bench import Bench
from counterfoil.store.stages import Item, Items, Made, Stages, Table


def read(bench: Bench, stages: Stages) -> Table:
    """One row a picture: where it is kept, its label, and the caption that came with the data if there was one."""

    def items() -> Iterator[Item]:
        for sample in bench.dataset:
            about = {"label": sample.label, "class": bench.dataset.classes[sample.label], "source": sample.source}
            about |= {"place": sample.place} if sample.place else {}
            yield Item(sample.image_id, {"given": sample.caption}, about)

    def work(some: Sequence[Item]) -> list[Made]:
        made = []
        for item in some:
            try:
                image = bench.dataset.load(sample_of(item), bench.size)
                png = images.png((image * 255).round() / 255)  # as seen in 8 bits, like everything that is made of it
            except BadImage as problem:
                made.append(bench.unreadable(problem))
                continue
            made.append(Made({"picture": stages.blobs.put(png, ".png"), "given": item.inputs["given"]}))
        return made

    settings = {"data": bench.spec.data.name, "options": bench.spec.data.options, "size": bench.size}
    if hasattr(bench.dataset, "provenance"):
        settings["provenance"] = bench.dataset.provenance()
    table = stages.map("sources", Items(items, len(bench.dataset)), work, settings=settings, blobs=["picture"])
    return bench.complete(table)


def sample_of(item: Item) -> Sample:
    """The sample that an item about a source picture stands for."""
    about: dict[str, Any] = dict(item.about)
    return Sample(item.id, about["label"], about["source"], item.inputs.get("given", ""), about.get("place", ""))
