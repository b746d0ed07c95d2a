"""The parts of a LANCE run, found by name, checked against each other, and on the device only while they work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from counterfoil.core.errors import BadSpec
from counterfoil.core.spec import LanceSpec, PartSpec
from counterfoil.parts import registry
from counterfoil.parts.contracts import Captioner, Editor, Model, Oracle, Rewriter
from counterfoil.parts.datasets.image_set import TRIED, ImageSet
from counterfoil.protocols import independence, provenance
from counterfoil.protocols.assembly import Given, columns_of, device_of, open_data, size_of
from counterfoil.protocols.workbench import Workbench


@dataclass(frozen=True)
class Tested:
    """A model with the output that stands for each of the data's classes."""

    name: str
    spec: PartSpec
    model: Model
    columns: list[int]


@dataclass(frozen=True)
class Bench(Workbench):
    """Everything a LANCE run works with."""

    TILES: ClassVar[dict[str, int]] = {"cpu": 8, "cuda": 32}

    spec: LanceSpec
    dataset: ImageSet
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
    def names(self) -> list[str]:
        """Of the data's classes."""
        return list(self.dataset.classes)

    def account(self) -> dict[str, Any]:
        """Of the parts, for `run.json`."""
        parts: dict[str, Any] = {
            "captioner": self.captioner, "rewriter": self.rewriter, "editor": self.editor,
            "encoder": self.encoder, "oracle": self.oracle, **{_role(at): each.model for at, each in enumerate(self.tested)},
        }  # fmt: skip
        caution = {"caution": self.caution} if self.caution else {}
        return {**caution, **provenance.describe(parts, self.spec, size=self.size, device=str(self.device))}

    def provenance(self, account: Mapping[str, Any]) -> dict[str, Any]:
        """For `run.json`."""
        return provenance.with_data(account, self.dataset)

    def told(self, given: Given | None) -> Given:
        """The objects, and what workers need not list the source pictures for."""
        return replace(given or Given(), head=self.dataset.head(TRIED))


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
        tested.append(Tested(named.name, named, model, columns_of(model, dataset, name=named.name)))
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
        size=size_of(spec, f"editor {spec.editor.name}", editor.size, tested[0].model),
        device=device,
        caution="; ".join(filter(None, cautions)) or None,
    )


def _role(at: int) -> str:
    return "model" if at == 0 else f"model {at + 1}"
