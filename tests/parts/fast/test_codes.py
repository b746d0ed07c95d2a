"""Nearest codes, against the whole table of distances."""

from __future__ import annotations

import pytest
import torch

from counterfoil.parts.fast.codes import GROUP, first_least, first_of_equals, nearest_codes
from counterfoil.parts.generators.vqgan import NearestCodes

pytestmark = pytest.mark.rounding


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


@pytest.mark.parametrize(("codes", "width"), [(1, 1), (4, 8), (8, 3), (100, 64)])
@pytest.mark.parametrize("copies", [2, 37, 128])
def test_of_equal_codes_the_first_is_found_however_products_are_rounded(
    codes: int, width: int, copies: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    product = torch.addmm

    def rounded_by_column(*given: torch.Tensor) -> torch.Tensor:
        table = product(*given)
        return table - torch.linspace(0, 1e-5, table.shape[1])  # later columns come out a little less

    monkeypatch.setattr(torch, "addmm", rounded_by_column)
    few = torch.randn(codes, width, generator=torch.Generator().manual_seed(codes))
    assert nearest_codes(few, few.repeat(copies, 1)).tolist() == list(range(codes))


@pytest.mark.parametrize(("side", "width", "copies"), [(2, 8, 100), (3, 4, 5), (7, 16, 64)])
def test_a_codebook_of_vqgan_takes_the_first_of_equal_codes(side: int, width: int, copies: int) -> None:
    latents = torch.randn(2, width, side, side, generator=torch.Generator().manual_seed(side))
    few = latents.permute(0, 2, 3, 1).reshape(-1, width)
    codebook = NearestCodes(len(few) * copies, width).requires_grad_(False)
    codebook.embedding.weight.copy_(few.repeat(copies, 1))
    assert codebook.indices(latents).flatten().tolist() == list(range(len(few)))


def test_equal_codes_are_told_from_codes_of_the_same_hash() -> None:
    book = torch.tensor([[0.0, 1.0], [1.0, 0.0], [-0.0, 1.0], [2.0, 2.0], [1.0, -0.0], [float("inf"), 0.0], [2.0, 2.0]])
    assert first_of_equals(book).tolist() == [0, 1, 0, 3, 1, 5, 3]
    every = torch.randn(5000, 3, generator=torch.Generator().manual_seed(0)).round()
    assert torch.equal(every[first_of_equals(every)], every)
    assert len(first_of_equals(every).unique()) == len(every.unique(dim=0))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="TF32 is a GPU's")
def test_codes_are_compared_in_float32_where_triton_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("counterfoil.parts.fast.codes.by_triton", lambda x: False)
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", True)
    chance = torch.Generator().manual_seed(1)
    cells, book = torch.randn(4096, 256, generator=chance), torch.randn(4096, 256, generator=chance)
    wanted = torch.cdist(cells.double(), book.double()).argmin(1)
    assert torch.equal(nearest_codes(cells.cuda(), book.cuda()).cpu(), wanted)
