"""The parts of a LANCE run, found by name, checked against each other, and on the device only while they work."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from counterfoil import images, independence, labels, provenance, registry
from counterfoil.assembly import Given, device_of, image_seed, open_data
from counterfoil.errors import BadPart, BadSpec
from counterfoil.parts import Captioner, Dataset, Editor, Model, Oracle, Rewriter
from counterfoil.spec import LanceSpec, PartSpec
from counterfoil.stages import Stages

TILES = {"cpu": 8, "cuda": 32}
_VOLATILE = ("library",)  # versions are recorded with the run; a newer one is no reason to make everything again


@dataclass(frozen=True)
class Tested:
    """A model with the output that stands for each of the data's classes."""

    name: str
    spec: PartSpec
    model: Model
    columns: list[int]


@dataclass(frozen=True)
class Bench:
    """Everything a LANCE run works with."""

    spec: LanceSpec
    dataset: Dataset
    captioner: Captioner
    rewriter: Rewriter
    editor: Editor
    encoder: Any
    oracle: Oracle
    tested: tuple[Tested, ...]
    size: int
    device: torch.device
    caution: str | None = None

    @property
    def tile(self) -> int:
        """How many pictures a part is always asked about at a time."""
        return self.spec.engine.tile or TILES.get(self.device.type, 32)

    def seed(self, image_id: str) -> int:
        """An image's own seed."""
        return image_seed(self.spec.seed, image_id)

    def settings(self, named: PartSpec, part: Any, **more: Any) -> dict[str, Any]:
        """What decides the results of a stage that one part works in."""
        own = part.provenance() if hasattr(part, "provenance") else {}
        own = {name: value for name, value in own.items() if name not in _VOLATILE}
        return {"name": named.name, "options": named.options, "part": own, **more}

    @contextmanager
    def placed(self, *parts: Any) -> Iterator[None]:
        """The parts on the run's device for a while, so that large ones need not be there together."""
        moving = [part for part in parts if hasattr(part, "to")]
        try:
            for part in moving:
                part.to(self.device)
            yield
        finally:
            for part in moving if self.device.type != "cpu" else []:
                part.to("cpu")
            if self.device.type == "cuda":
                torch.cuda.empty_cache()

    def in_tiles(self, pictures: Sequence[Tensor], ask: Callable[[Tensor, int], Sequence[Any]]) -> list[Any]:
        """Answers for pictures, asked in batches of one fixed size; `ask` gets a batch and where it starts."""
        found: list[Any] = []
        for start in range(0, len(pictures), self.tile):
            some = list(pictures[start : start + self.tile])
            batch = torch.stack(some + some[-1:] * (self.tile - len(some))).to(self.device)
            found += list(ask(batch, start))[: len(some)]
        return found

    def provenance(self) -> dict[str, Any]:
        """For `run.json`."""
        parts: dict[str, Any] = {
            "dataset": self.dataset, "captioner": self.captioner, "rewriter": self.rewriter, "editor": self.editor,
            "encoder": self.encoder, "oracle": self.oracle, **{_role(at): each.model for at, each in enumerate(self.tested)},
        }  # fmt: skip
        caution = {"caution": self.caution} if self.caution else {}
        return {**caution, **provenance.describe(parts, self.dataset, size=self.size, device=str(self.device))}


def picture(stages: Stages, name: str) -> Tensor:
    """A picture that a stage kept.  # → (3, H, W)"""
    return images.read(stages.blobs.read(name), name=name)


def assemble(spec: LanceSpec, given: Given | None = None) -> Bench:
    """Find and build the parts that `spec` names, and see that they fit together."""
    device = device_of(spec.device)
    objects: Mapping[str, Any] = given.parts if given else {}

    def part(role: str, named: PartSpec) -> Any:
        return objects[role] if role in objects else registry.create(role, named.name, named.options)

    dataset = open_data(spec, given)
    editor: Editor = part("editor", spec.editor)
    tested = []
    for at, named in enumerate((spec.model, *spec.others)):
        model = part("model", named) if at == 0 else registry.create("model", named.name, named.options)
        columns = labels.match(
            dataset.classes,
            model.classes,
            what=f"model {named.name}",
            aliases=getattr(model, "aliases", None),
            wanted_aliases=getattr(dataset, "aliases", None),
        )
        tested.append(Tested(named.name, named, model, columns))
    if len({each.name for each in tested}) < len(tested):
        raise BadSpec(f"a model is named twice: {', '.join(each.name for each in tested)}; name each once")
    oracle = part("oracle", spec.oracle).bind(dataset.classes)
    cautions = [independence.check(each.model, oracle, force=spec.force) for each in tested]
    return Bench(
        spec=spec,
        dataset=dataset,
        captioner=part("captioner", spec.captioner),
        rewriter=part("rewriter", spec.rewriter),
        editor=editor,
        encoder=part("encoder", spec.encoder),
        oracle=oracle,
        tested=tuple(tested),
        size=_size(spec, editor, tested[0].model),
        device=device,
        caution="; ".join(filter(None, cautions)) or None,
    )


def _role(at: int) -> str:
    return "model" if at == 0 else f"model {at + 1}"


def _size(spec: LanceSpec, editor: Editor, model: Model) -> int:
    if spec.size and editor.size and spec.size != editor.size:
        raise BadSpec(f"size {spec.size} given, but editor {spec.editor.name} works at {editor.size}")
    size = spec.size or editor.size or getattr(model, "size", None)
    if size is None:
        raise BadPart(f"neither editor {spec.editor.name} nor model {spec.model.name} says its picture size; give --size")
    return int(size)
