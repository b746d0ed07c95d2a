"""Nearest codes, against the whole table of distances."""

from __future__ import annotations

import pytest
import torch

from counterfoil.parts.generators.nearest import GROUP, first_least, nearest_codes


@pytest.mark.parametrize("codes", [5, GROUP, 4 * GROUP, 4 * GROUP + 1])
def test_finds_what_the_whole_table_of_distances_says(codes: int) -> None:
    chance = torch.Generator().manual_seed(codes)
    cells, book = torch.randn(150, 8, generator=chance), torch.randn(codes, 8, generator=chance)
    assert torch.equal(nearest_codes(cells, book), torch.cdist(cells.double(), book.double()).argmin(1))


def test_the_first_of_equal_entries_is_taken() -> None:
    table = torch.ones(2, 3 * GROUP)
    table[0, [GROUP + 7, GROUP + 9, 2 * GROUP]] = 0
    table[1, [3, 2 * GROUP + 1]] = -1
    assert first_least(table).tolist() == [GROUP + 7, 3]
