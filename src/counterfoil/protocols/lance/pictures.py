"""Edited pictures: inversions, the sweep of edits, and quality control."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import torch

from counterfoil.parts import images
from counterfoil.parts.contracts import Inversion, Refusal
from counterfoil.parts.editors import requests as files
from counterfoil.protocols.lance.bench import Bench
from counterfoil.protocols.lance.edits import checked
from counterfoil.protocols.lance.quality.measure import Ruler, compared
from counterfoil.protocols.lance.quality.rule import choose
from counterfoil.protocols.workbench import picture
from counterfoil.store.stages import Item, Items, Made, Stages, Table, turned_away


def invert(bench: Bench, stages: Stages, edits: Table) -> Table:
    """One inversion a picture that has edits, kept for all of them."""

    def items() -> Iterator[Item]:
        last = None
        for row in checked(edits):
            if row.of != last:
                last = row.of
                inputs = {"picture": stages.blobs.hash_of(row["picture"]), "caption": row["caption"], "seed": bench.seed(row.of)}
                yield Item(row.of, inputs, {"picture": row["picture"]})

    def work(some: Sequence[Item]) -> list[Made]:
        found = bench.editor.invert(
            [picture(stages, item.about["picture"]) for item in some],
            [item.inputs["caption"] for item in some],
            [item.inputs["seed"] for item in some],
        )
        return [
            turned_away("not inverted", each.reason)
            if isinstance(each, Refusal)
            else Made({"inversion": stages.blobs.put(files.to_bytes(each), ".safetensors")})
            for each in found
        ]

    with bench.placed(bench.editor):
        return stages.map("inversions", Items(items), work, settings=_editor(bench), blobs=["inversion"])


def edit(bench: Bench, stages: Stages, edits: Table, inversions: Table) -> Table:
    """The sweep of every edit, and the plain reconstruction, which is what the inversion alone does to a picture."""

    def items() -> Iterator[Item]:
        for row in checked(edits):
            inverted = inversions.one(row.of)
            if inverted is not None and inverted.goes_on:
                inputs = {"inversion": stages.blobs.hash_of(inverted["inversion"]), "edited": row["edited"]}
                about = {
                    name: row.values.get(name, "") for name in ("factor", "removed", "added", "caption", "edited", "picture")
                }
                yield Item(row.id, inputs, {**about, "inversion": inverted["inversion"]})

    def work(some: Sequence[Item]) -> list[Made]:
        held: dict[str, Inversion] = {}
        for item in some:
            name = item.about["inversion"]
            if name not in held:
                held[name] = files.from_bytes(stages.blobs.read(name), name=name)
        found = bench.editor.edit([held[item.about["inversion"]] for item in some], [item.inputs["edited"] for item in some])
        made = []
        for each in found:
            if isinstance(each, Refusal):
                made.append(turned_away("not edited", each.reason))
                continue
            names = [stages.blobs.put(images.png(candidate), ".png") for candidate in each.candidates]
            made.append(Made({"candidates": names, "reconstruction": stages.blobs.put(images.png(each.reconstruction), ".png")}))
        return made

    with bench.placed(bench.editor):
        return stages.map("pictures", Items(items), work, settings=_editor(bench), blobs=["candidates", "reconstruction"])


def control(bench: Bench, stages: Stages, edited: Table) -> Table:
    """Similarities of every candidate, and the one that is kept."""
    sweep = list(bench.editor.sweep)

    def items() -> Iterator[Item]:
        for row in edited.kept():
            names = [row["picture"], *row["candidates"]]
            inputs = {
                "pictures": [stages.blobs.hash_of(name) for name in names],
                "caption": row["caption"],
                "edited": row["edited"],
            }
            yield Item(row.id, inputs, {"factor": row["factor"], "pictures": names})

    def work(some: Sequence[Item]) -> list[Made]:
        ruler = Ruler(bench.encoder, tile=bench.tile, device=bench.device)
        # Each picture and text of the batch once: a source is shared by its edits.
        names = list(dict.fromkeys(name for item in some for name in item.about["pictures"]))
        texts = list(dict.fromkeys(text for item in some for text in (item.inputs["caption"], item.inputs["edited"])))
        seen = dict(zip(names, ruler.images([picture(stages, name) for name in names]), strict=True))
        read = dict(zip(texts, ruler.texts(texts), strict=True))
        made = []
        for item in some:
            source, *candidates = item.about["pictures"]
            found = compared(
                seen[source],
                torch.stack([seen[name] for name in candidates]),
                before=read[item.inputs["caption"]],
                after=read[item.inputs["edited"]],
            )
            chosen = choose(found, bench.spec.quality)
            values: dict[str, Any] = {"sweep": sweep[chosen.index] if sweep else "", **_rounded(asdict(found[chosen.index]))}
            values["all"] = [_rounded(asdict(each)) for each in found]
            if chosen.check:
                made.append(turned_away(chosen.check, chosen.reason, **values))
            else:
                made.append(Made({"image": candidates[chosen.index], **values}))
        return made

    settings = bench.settings(bench.spec.encoder, bench.encoder, bars=bench.spec.quality.model_dump(mode="json"), sweep=sweep)
    with bench.placed(bench.encoder):
        return stages.map("quality", Items(items), work, settings=settings, blobs=["image"])


def _editor(bench: Bench) -> dict[str, object]:
    return bench.settings(bench.spec.editor, bench.editor, sweep=list(bench.editor.sweep))


def _rounded(values: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 6) for name, value in values.items()}
