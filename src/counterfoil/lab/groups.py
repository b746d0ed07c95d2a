"""Drawing by kind: the scenes of a batch that share a value are drawn together, and looked up by scene afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

Painter = Callable[[Tensor, Tensor], None]  # draws the scenes of these rows onto these sheets
_BLOCK: Final = 96  # beyond as many scenes at once, a core waits more for memory than it gains from fewer calls


@dataclass(frozen=True)
class Drawn:
    """Pictures or fields in the order in which they were drawn."""

    sheets: Tensor  # (M, …)
    place: Tensor  # (N,) which sheet is a scene's

    def __getitem__(self, rows: Tensor) -> Tensor:
        """Those of some scenes, in the scenes' order."""
        return self.sheets.index_select(0, self.place.index_select(0, rows))


def by_value(values: Tensor, names: Sequence[str], painters: Mapping[str, Painter], *, shape: tuple[int, ...]) -> Drawn:
    """Let each value's painter draw the scenes that have it; scenes of a value without a painter share a sheet of zeros."""
    tasks = [(painters[name], rows) for name, rows in grouped(values, names) if name in painters]
    rows = torch.cat([values[:0], *(rows for _, rows in tasks)])
    place = torch.zeros_like(values)
    place[rows] = torch.arange(1, len(rows) + 1, device=values.device)
    sheets = torch.empty((len(rows) + 1, *shape), device=values.device)
    sheets[0] = 0
    start = 1
    for paint, some in tasks:
        paint(some, sheets[start : start + len(some)])
        start += len(some)
    return Drawn(sheets, place)


def grouped(values: Tensor, names: Sequence[str]) -> Iterator[tuple[str, Tensor]]:
    """The rows of each value that occurs, in blocks."""
    counts = torch.bincount(values, minlength=len(names)).tolist()
    for name, rows in zip(names, values.argsort(stable=True).split(counts), strict=True):
        for block in blocks(rows):
            yield name, block


def put(target: Tensor, places: Tensor, values: Tensor) -> None:
    """Write pictures to their places in a batch."""
    if target.device.type == "cpu":
        target.numpy()[places.numpy()] = values.numpy()  # copies rows whole, as torch does not
    else:
        target.index_copy_(0, places, values)


def blocks(rows: Tensor, size: int = _BLOCK) -> Sequence[Tensor]:
    """Rows, or what there is one of a row: on a CPU in parts of about even size, elsewhere whole; none of no rows."""
    if not len(rows):
        return ()
    return rows.chunk(-(-len(rows) // size)) if rows.device.type == "cpu" else (rows,)
