from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from counterfoil.parts.generators.vqgan import GumbelCodes, NearestCodes
from tests.generators.named_weights import named_weights, uniform

Codebook = NearestCodes | GumbelCodes


def codebook(kind: type[Codebook], count: int = 300, width: int = 12) -> Any:
    book = kind(count, width).requires_grad_(False)
    book.load_state_dict(named_weights(book.state_dict()))
    return book


def latents(count: int = 8, width: int = 12) -> Tensor:
    return uniform(count, "latents", width, 5, 4) * 2 - 1


def test_the_nearest_code_is_the_nearest() -> None:
    book, given = codebook(NearestCodes), latents()
    cells = given.permute(0, 2, 3, 1).reshape(-1, 12).double()
    distances = torch.cdist(cells, book.embedding.weight.double(), compute_mode="donot_use_mm_for_euclid_dist")
    assert torch.equal(book.indices(given).flatten(), distances.argmin(1))
    assert torch.equal(book(given).permute(0, 2, 3, 1).reshape(-1, 12), book.embedding.weight[distances.argmin(1)])


def test_codes_about_equally_near_are_told_apart_as_the_authors_do() -> None:
    book, given = codebook(NearestCodes), latents() * 40  # codes so close together that rounding decides
    book.embedding.weight.mul_(1e-5)
    cells = given.permute(0, 2, 3, 1).reshape(-1, 12)
    table = book.embedding.weight
    distances = torch.sum(cells**2, dim=1, keepdim=True) + torch.sum(table**2, dim=1) - 2 * torch.matmul(cells, table.t())
    assert (distances == distances.amin(1, keepdim=True)).sum(1).float().mean() > 2  # many ties
    assert torch.equal(book.indices(given).flatten(), distances.argmin(1))


def test_the_most_probable_code_is_taken() -> None:
    book, given = codebook(GumbelCodes), latents()
    chances = torch.einsum("ndhw,kd->nkhw", given, book.proj.weight[:, :, 0, 0]) + book.proj.bias[:, None, None]
    assert torch.equal(book.indices(given), chances.argmax(1))
    assert len(book.indices(given).unique()) > 20


def test_the_expected_code_and_its_gradient_are_those_of_the_softmax() -> None:
    book, given = codebook(GumbelCodes), latents(3)
    direct, saving = given.clone().requires_grad_(), given.clone().requires_grad_()
    whole = torch.einsum("nkhw,kd->ndhw", book.proj(direct).softmax(1), book.embed.weight)
    expected = book.expected(saving)
    assert torch.allclose(expected, whole, atol=1e-6)
    weighting = latents(3).flip(1)
    gradients = [torch.autograd.grad((out * weighting).sum(), leaf)[0] for out, leaf in ((whole, direct), (expected, saving))]
    assert torch.allclose(*gradients, atol=1e-6)
    assert gradients[0].abs().sum() > 0


class Largest(TorchDispatchMode):
    """Notes the largest tensor that any operation gives."""

    def __init__(self) -> None:
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(tensor, Tensor):
                self.numel = max(self.numel, tensor.numel())
        return result


@pytest.mark.parametrize("kind", [NearestCodes, GumbelCodes])
def test_no_table_of_more_than_one_picture_is_made(kind: type[Codebook]) -> None:
    book, given = codebook(kind, count=1000), latents(16)
    with Largest() as largest:
        book(given)
    assert largest.numel == 1000 * 20


@pytest.mark.parametrize("kind", [NearestCodes, GumbelCodes])
def test_codes_are_chosen_in_full_precision(kind: type[Codebook]) -> None:
    book, given = codebook(kind), latents()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(book.indices(given), book.indices(given.clone()))
        lowered = book(given)
    assert torch.equal(lowered, book(given))
    assert lowered.dtype == torch.float32
