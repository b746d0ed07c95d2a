"""LANCE's stages over images: inversions, the sweep of edited images, and quality control."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from counterfoil.parts import calls, images
from counterfoil.parts.contracts import EditResult, Inversion, Refusal
from counterfoil.parts.editors import requests as files
from counterfoil.protocols.lance import CHECKS, QualitySpec
from counterfoil.protocols.lance.captions import check_edits, embed_images, embed_texts
from counterfoil.protocols.stages import Stage
from counterfoil.store.stages import Item, Made, Row, turned_away

_ABOUT = ("factor", "removed", "added", "caption", "edited", "picture")


class _ByEditor(Stage):
    uses = ("editor",)

    def decided_by(self) -> Mapping[str, Any]:
        return {"sweep": list(self.space.editor.sweep)}


class Inversions(_ByEditor):
    """One inversion per image that has edits, kept for all of them."""

    name, kept = "inversions", ("inversion",)

    def items(self) -> Iterator[Item]:
        last = None
        for row in check_edits(self.tables["edits"]):
            if row.of != last:
                last = row.of
                picture = self.tables.files.hash_of(row["picture"])
                inputs = {"picture": picture, "caption": row["caption"], "seed": self.space.seed(row.of)}
                yield Item(row.of, inputs, {"picture": row["picture"]})

    def work(self, items: Sequence[Item]) -> list[Made]:
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
        for row in check_edits(self.tables["edits"]):
            inverted = self.tables["inversions"].one(row.of)
            if inverted is not None and inverted.goes_on:
                inputs = {"inversion": self.tables.files.hash_of(inverted["inversion"]), "edited": row["edited"]}
                about = {name: row.values.get(name, "") for name in _ABOUT}
                yield Item(row.id, inputs, {**about, "inversion": inverted["inversion"]})

    def work(self, items: Sequence[Item]) -> list[Made]:
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

    name, of, uses, kept = "quality", "pictures", ("encoder",), ("image",)

    def item(self, row: Row) -> Item:
        names = [row["picture"], *row["candidates"]]
        inputs = {
            "pictures": [self.tables.files.hash_of(name) for name in names],
            "caption": row["caption"],
            "edited": row["edited"],
        }
        return Item(row.id, inputs, {"factor": row["factor"], "pictures": names})

    def decided_by(self) -> Mapping[str, Any]:
        return {"bars": self.space.spec.quality.model_dump(mode="json"), "sweep": list(self.space.editor.sweep)}

    def work(self, items: Sequence[Item]) -> list[Made]:
        """Embed each image and text once, as a source is shared by its edits, and choose from each sweep."""
        names = list(dict.fromkeys(name for item in items for name in item.about["pictures"]))
        seen = dict(zip(names, embed_images(self.space, [self.tables.image(name) for name in names]), strict=True))
        read = embed_texts(self.space, (item.inputs[name] for item in items for name in ("caption", "edited")))
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


@dataclass(frozen=True)
class Similarities:
    """Cosine similarities of one edited image."""

    image_image: float  # source image and edited image
    source_text: float  # source image and caption
    edited_text: float  # edited image and edited caption
    old_text: float  # edited image and the caption before the edit
    directional: float  # change of the image and change of the caption

    def fault(self, bars: QualitySpec) -> tuple[str, str] | None:
        """The first check it fails and by how much, or None."""
        checks = (
            (self.image_image, bars.image_image),
            (self.source_text, bars.image_text),
            (self.edited_text, bars.image_text),
            (self.directional, bars.directional),
        )
        for name, (value, bar) in zip(CHECKS, checks, strict=False):
            if not value >= bar:
                return name, f"{value:.3f} is below {bar:g}"
        if bars.nearer and not self.edited_text > self.old_text:
            return "still the old words", f"{self.edited_text:.3f} to the new caption, {self.old_text:.3f} to the old one"
        return None


@dataclass(frozen=True)
class SelectedEdit:
    """The edit that is kept, or the check that none of the sweep passed."""

    index: int  # in the sweep; of the nearest miss where nothing is kept
    check: str = ""
    reason: str = ""


def select_edit(sweep: Sequence[Similarities], bars: QualitySpec) -> SelectedEdit:
    """The edit to keep: of those that pass the one of highest directional similarity, or the last, as asked."""
    faults = [each.fault(bars) for each in sweep]
    passing = [index for index, fault in enumerate(faults) if fault is None]
    if passing:
        best = max(passing, key=lambda index: (sweep[index].directional, -index))
        return SelectedEdit(best if bars.choose == "best" else passing[-1])
    order = list(CHECKS)
    # The nearest miss speaks for the sweep: the one that got furthest through the checks.
    index, fault = max(
        ((index, fault) for index, fault in enumerate(faults) if fault is not None),
        key=lambda each: (order.index(each[1][0]), sweep[each[0]].directional),
    )
    return SelectedEdit(index, *fault)


def similarities(source: Tensor, edited: Tensor, *, before: Tensor, after: Tensor) -> list[Similarities]:
    """Similarities of each edited image, by embeddings of the images and of the captions before and after.

    All have length one.  # (D,), (S, D), (D,), (D,)
    """
    words = normalize(after - before, dim=-1)
    found = []
    for image in edited:
        change = normalize(image - source, dim=-1)  # zero for an image that did not change
        found.append(
            Similarities(
                image_image=float(image @ source),
                source_text=float(source @ before),
                edited_text=float(image @ after),
                old_text=float(image @ before),
                directional=float(change @ words),
            )
        )
    return found
