"""Drawing tools against their plain definitions."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from counterfoil_lab.drawing.canvas import (
    blurred,
    cell,
    ease,
    ink,
    lattice,
    mix,
    odd,
    over,
    per_cell,
    saturated,
    shaded,
    spread,
    step,
    toned,
    wrap,
)

CPU = torch.device("cpu")


@pytest.fixture
def field() -> torch.Tensor:
    return torch.rand((5, 64, 64), generator=torch.Generator().manual_seed(1))


@pytest.fixture
def picture() -> torch.Tensor:
    return torch.rand((5, 3, 64, 64), generator=torch.Generator().manual_seed(2))


def test_tools_leave_what_they_are_given_alone(field: torch.Tensor, picture: torch.Tensor) -> None:
    before, before_picture = field.clone(), picture.clone()
    for tool in (step, odd, spread, blurred, lambda it: ease(it, 0, 1), lambda it: wrap(it, 0.3)):
        tool(field)
    mix(picture, ink(CPU, 1, 0, 0), field)
    shaded(picture, field)
    saturated(picture, 1.5)
    assert torch.equal(field, before)
    assert torch.equal(picture, before_picture)


def test_steps_and_eases_rise_from_nothing_to_one(field: torch.Tensor) -> None:
    assert torch.allclose(step(field, 0.4, 0.5), ((field - 0.4) / 0.5 + 0.5).clamp(0, 1), atol=1e-6)
    assert torch.allclose(step(field, 0.4), (field + 0.1).clamp(max=1), atol=1e-6)
    assert torch.allclose(step(field, field), torch.full_like(field, 0.5), atol=1e-6)
    for low, high in ((0.2, 0.7), (0.0, 0.5), (0.9, 0.1)):
        ramp = ((field - low) / (high - low)).clamp(0, 1)
        assert torch.allclose(ease(field, low, high), ramp**2 * (3 - 2 * ramp), atol=1e-5)


def test_wrapping_counts_periods_below_nothing_too() -> None:
    turn, inside = wrap(torch.tensor([-3.5, -0.5, 0.0, 1.5, 7.0]), 2)
    assert turn.tolist() == [-2, -1, 0, 0, 3]
    assert inside.tolist() == [0.5, 1.5, 0.0, 1.5, 1.0]
    assert odd(torch.tensor([-3.0, -2.0, 0.0, 5.0])).tolist() == [1, 0, 0, 1]


def test_drawing_in_place_gives_what_drawing_anew_does(field: torch.Tensor, picture: torch.Tensor) -> None:
    red = ink(CPU, 0.9, 0.1, 0.2)
    assert torch.equal(over(picture.clone(), red, field), mix(picture, red, field))
    assert torch.equal(over(picture.clone(), red, 0.3), mix(picture, red, 0.3))
    assert torch.equal(over(picture[:1], red, field), mix(picture[:1], red, field))  # one sky for a whole batch
    assert torch.equal(toned(picture.clone(), field), shaded(picture, field))
    assert torch.equal(toned(picture[:1], field), shaded(picture[:1], field))


def test_two_even_colours_mix_like_pictures_of_them(field: torch.Tensor) -> None:
    red, blue = ink(CPU, 0.9, 0.1, 0.2), ink(CPU, 0.1, 0.2, 0.8)
    whole = [colour.expand(5, 3, 64, 64).contiguous() for colour in (red, blue)]
    assert torch.equal(mix(red, blue, field), mix(*whole, field))


def test_neighbourhoods_are_those_of_pooling_and_convolution(field: torch.Tensor) -> None:
    assert torch.equal(spread(field), F.max_pool2d(field.unsqueeze(1), 3, stride=1, padding=1)[:, 0])
    weights = torch.tensor([0.25, 0.5, 0.25])
    smeared = F.conv2d(field.unsqueeze(1), (weights[:, None] * weights).view(1, 1, 3, 3), padding=1)[:, 0]
    assert torch.allclose(blurred(field), smeared, atol=1e-6)


def test_cells_repeat_after_sixteen_rows_and_columns() -> None:
    seeds = torch.arange(3)
    board = lattice(seeds, "board", 16, 16)
    row, column = torch.full((1, 64, 64), -1.0), torch.full((1, 64, 64), 2.0)
    assert torch.equal(per_cell(seeds, "board", cell(row, column)), board[:, 15, 2].view(3, 1, 1).expand(3, 64, 64))
    assert torch.equal(cell(row + 16, column), cell(row, column))
