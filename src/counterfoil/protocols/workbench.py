"""What the benches of the staged protocols have in common: parts on the device only while they work, asked in tiles."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from torch import Tensor

from counterfoil.core.errors import BadData, BadImage
from counterfoil.core.spec import PartSpec
from counterfoil.core.spec.base import StagedSpec
from counterfoil.parts import calls, images
from counterfoil.parts.contracts import Oracle, provenance_of
from counterfoil.protocols import strict
from counterfoil.protocols.assembly import Given, image_seed
from counterfoil.store.stages import Made, Stages, Table, turned_away

_VOLATILE = ("library",)  # versions are recorded with the run; a newer one is no reason to make everything again
_USUAL = 32


class Workbench(ABC):
    """A protocol's parts at work. Who inherits has the specification, the device and the tiles of each kind of device."""

    TILES: ClassVar[dict[str, int]] = {}
    spec: StagedSpec
    device: torch.device

    @property
    @abstractmethod
    def names(self) -> list[str]:
        """Of the classes that pictures are made of."""

    @abstractmethod
    def account(self) -> dict[str, Any]:
        """Of the parts, for `run.json`."""

    @abstractmethod
    def provenance(self, account: Mapping[str, Any]) -> dict[str, Any]:
        """For `run.json`: an account of the parts, by whoever works with them, and one of the data."""

    def told(self, given: Given | None) -> Given | None:
        """What workers are given: with what they need not find out about the data, where that takes long."""
        return given

    @property
    def tile(self) -> int:
        """How many pictures a part is always asked about at a time."""
        return self.spec.engine.tile or self.TILES.get(self.device.type, _USUAL)

    def seed(self, image_id: str) -> int:
        """A picture's own seed."""
        return image_seed(self.spec.seed, image_id)

    def settings(self, named: PartSpec, part: Any, **more: Any) -> dict[str, Any]:
        """What decides the results of a stage that one part works in."""
        own = {name: value for name, value in provenance_of(part).items() if name not in _VOLATILE}
        return {"name": named.name, "options": named.options, "part": own, **more}

    def unreadable(self, problem: BadImage) -> Made:
        """The result for a picture that cannot be read; with `strict`, the end of the run."""
        if self.spec.strict:
            raise strict.stopped(problem)
        return turned_away("unreadable", str(problem))

    def complete(self, table: Table) -> Table:
        """The table of the pictures read; with `strict`, one in which none was left out earlier."""
        strict.insist(self.spec, table.path.parent.parent, left_out=sum(not row.goes_on for row in table))
        return table

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

    def judged(
        self, named: PartSpec, oracle: Oracle, pictures: Sequence[Tensor], labels: Sequence[int]
    ) -> list[tuple[bool | None, float, int]]:
        """Whether an oracle sees its label in each picture, or None where it abstains; its score; and the class it sees."""

        def ask(batch: Tensor, asked: Sequence[int]) -> list[tuple[bool | None, float, int]]:
            labels = torch.tensor(asked, device=batch.device)
            return calls.judge(oracle, batch, labels, len(self.names), part=f"oracle {named.name}")

        return self.in_tiles(pictures, ask, labels)

    def in_tiles(
        self, pictures: Sequence[Tensor], ask: Callable[..., Sequence[Any]], beside: Sequence[Any] | None = None
    ) -> list[Any]:
        """Answers for pictures, asked in batches of one fixed size; `ask` gets a batch and, if given, what is `beside` each."""
        found: list[Any] = []
        for start in range(0, len(pictures), self.tile):
            some = list(pictures[start : start + self.tile])
            sizes = sorted({f"{each.shape[-1]} × {each.shape[-2]}" for each in some})
            if len(sizes) > 1:
                raise BadData(f"pictures have different sizes, such as {sizes[0]} and {sizes[1]}; bring them to one with --size")
            idle = self.tile - len(some)
            batch = torch.stack(some + some[-1:] * idle).to(self.device)
            if beside is None:
                answers = ask(batch)
            else:
                own = list(beside[start : start + self.tile])
                answers = ask(batch, own + own[-1:] * idle)
            found += list(answers)[: len(some)]
        return found


def picture(stages: Stages, name: str) -> Tensor:
    """A picture that a stage kept.  # → (3, H, W)"""
    return images.read(stages.blobs.read(name), name=name)
