"""LANCE's stages over images: inversions, the sweep of edited images, and quality control."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch

from counterfoil.parts import calls, images
from counterfoil.parts.contracts import EditResult, Inversion, Refusal
from counterfoil.parts.editors import requests as files
from counterfoil.protocols.lance.captions import check_edits
from counterfoil.protocols.lance.quality import EmbeddingBatches, select_edit, similarities
from counterfoil.protocols.stages import Stage
from counterfoil.store.stages import Item, Made, turned_away

_ABOUT = ("factor", "removed", "added", "caption", "edited", "picture")


class _ByEditor(Stage):
    uses = ("editor",)

    def decided_by(self) -> Mapping[str, Any]:
        """The settings that the editor sweeps over."""
        return {"sweep": list(self.space.editor.sweep)}


class Inversions(_ByEditor):
    """One inversion per image that has edits, kept for all of them."""

    name, kept = "inversions", ("inversion",)

    def items(self) -> Iterator[Item]:
        """Every image with an edit."""
        last = None
        for row in check_edits(self.tables["edits"]):
            if row.of != last:
                last = row.of
                picture = self.tables.files.hash_of(row["picture"])
                inputs = {"picture": picture, "caption": row["caption"], "seed": self.space.seed(row.of)}
                yield Item(row.of, inputs, {"picture": row["picture"]})

    def work(self, items: Sequence[Item]) -> list[Made]:
        """Invert the images."""
        captions, seeds = [item.inputs["caption"] for item in items], [item.inputs["seed"] for item in items]
        found = calls.guard(self.space.editor.invert, "the editor")(self.images(items, "picture"), captions, seeds)
        return [
            turned_away("not inverted", each.reason)
            if isinstance(each, Refusal)
            else Made({"inversion": self.tables.files.put(files.to_bytes(each), ".safetensors")})
            for each in found
        ]


class Edited(_ByEditor):
    """The sweep of every edit, and the plain reconstruction, which is what the inversion alone does to an image."""

    name, kept = "pictures", ("candidates", "reconstruction")

    def items(self) -> Iterator[Item]:
        """Every edit of an image that could be inverted."""
        for row in check_edits(self.tables["edits"]):
            inverted = self.tables["inversions"].one(row.of)
            if inverted is not None and inverted.goes_on:
                inputs = {"inversion": self.tables.files.hash_of(inverted["inversion"]), "edited": row["edited"]}
                about = {name: row.values.get(name, "") for name in _ABOUT}
                yield Item(row.id, inputs, {**about, "inversion": inverted["inversion"]})

    def work(self, items: Sequence[Item]) -> list[Made]:
        """Redraw the images to the edited captions."""
        held: dict[str, Inversion] = {}
        for item in items:
            name = item.about["inversion"]
            if name not in held:
                held[name] = files.from_bytes(self.tables.files.read(name), name=name)
        inversions = [held[item.about["inversion"]] for item in items]
        found = calls.guard(self.space.editor.edit, "the editor")(inversions, [item.inputs["edited"] for item in items])
        return [turned_away("not edited", each.reason) if isinstance(each, Refusal) else self._keep(each) for each in found]

    def _keep(self, result: EditResult) -> Made:
        put = self.tables.files.put
        names = [put(images.png(candidate), ".png") for candidate in result.candidates]
        return Made({"candidates": names, "reconstruction": put(images.png(result.reconstruction), ".png")})


class Quality(Stage):
    """Similarities of every candidate, and the one that is kept."""

    name, uses, kept = "quality", ("encoder",), ("image",)

    def items(self) -> Iterator[Item]:
        """Every edit that was redrawn."""
        for row in self.tables["pictures"].passing():
            names = [row["picture"], *row["candidates"]]
            hashes = [self.tables.files.hash_of(name) for name in names]
            inputs = {"pictures": hashes, "caption": row["caption"], "edited": row["edited"]}
            yield Item(row.id, inputs, {"factor": row["factor"], "pictures": names})

    def decided_by(self) -> Mapping[str, Any]:
        """The bars, and the settings that the editor sweeps over."""
        return {"bars": self.space.spec.quality.model_dump(mode="json"), "sweep": list(self.space.editor.sweep)}

    def work(self, items: Sequence[Item]) -> list[Made]:
        """Embed each image and text once, as a source is shared by its edits, and choose from each sweep."""
        encoder = EmbeddingBatches(self.space.encoder, batch=self.space.batch, device=self.space.device)
        names = list(dict.fromkeys(name for item in items for name in item.about["pictures"]))
        texts = list(dict.fromkeys(text for item in items for text in (item.inputs["caption"], item.inputs["edited"])))
        seen = dict(zip(names, encoder.images([self.tables.image(name) for name in names]), strict=True))
        read = dict(zip(texts, encoder.texts(texts), strict=True))
        sweep = list(self.space.editor.sweep)
        made = []
        for item in items:
            source, *candidates = item.about["pictures"]
            found = similarities(
                seen[source],
                torch.stack([seen[name] for name in candidates]),
                before=read[item.inputs["caption"]],
                after=read[item.inputs["edited"]],
            )
            chosen = select_edit(found, self.space.spec.quality)
            values: dict[str, Any] = {"sweep": sweep[chosen.index] if sweep else "", **_round(asdict(found[chosen.index]))}
            values["all"] = [_round(asdict(each)) for each in found]
            if chosen.check:
                made.append(turned_away(chosen.check, chosen.reason, **values))
            else:
                made.append(Made({"image": candidates[chosen.index], **values}))
        return made


def _round(values: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 6) for name, value in values.items()}
