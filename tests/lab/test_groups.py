"""Scenes drawn by kind come back in their own order."""

from __future__ import annotations

import torch
from torch import Tensor

from counterfoil_lab.drawing.canvas import Painter, blocks, by_value, grouped, put

NAMES = ("plain", "low", "unused", "high")


def test_each_row_is_drawn_by_its_values_painter_and_the_rest_is_blank() -> None:
    values = torch.tensor([3, 0, 1, 3, 1, 0, 1])
    called: list[str] = []

    def painter(name: str, sign: int) -> Painter:
        def paint(rows: Tensor, sheets: Tensor) -> None:
            called.append(name)
            sheets.copy_((sign * (rows + 1.0)).view(-1, 1, 1).expand_as(sheets))

        return paint

    painters = {"low": painter("low", -1), "unused": painter("unused", 7), "high": painter("high", 1)}
    drawn = by_value(values, NAMES, painters, shape=(2, 2))
    assert called == ["low", "high"]
    assert drawn[torch.arange(7)][:, 0, 0].tolist() == [1, 0, -3, 4, -5, 0, -7]
    assert drawn[torch.tensor([6, 0])][:, 1, 1].tolist() == [-7, 1]


def test_batches_without_anything_to_draw_are_blank() -> None:
    drawn = by_value(torch.zeros(3, dtype=torch.int64), NAMES, {}, shape=(4,))
    assert torch.equal(drawn[torch.arange(3)], torch.zeros(3, 4))


def test_every_row_is_in_one_group() -> None:
    values = torch.arange(700) % 3
    groups = list(grouped(values, NAMES))
    assert {name for name, _ in groups} == {"plain", "low", "unused"}
    assert torch.cat([rows for _, rows in groups]).sort().values.tolist() == list(range(700))
    assert all((values[rows] == NAMES.index(name)).all() for name, rows in groups)


def test_blocks_are_of_even_size() -> None:
    assert [len(block) for block in blocks(torch.arange(200))] == [67, 67, 66]
    assert blocks(torch.arange(0)) == ()


def test_pictures_are_put_in_their_places() -> None:
    target = torch.zeros(5, 2)
    put(target, torch.tensor([4, 1]), torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    assert target.tolist() == [[0, 0], [3, 4], [0, 0], [0, 0], [1, 2]]
