"""The passes over activations: Triton's kernels against plain PyTorch, and both against the library's normalisation.

Run by `test_kernels.py` in a process of its own, where Triton interprets its kernels on the CPU.
"""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from counterfoil.parts.fast import passes as plain
from counterfoil.parts.generators.sparse.box import Box

SHAPES = {"even": (2, 32, 8, 8, 8), "uneven": (1, 24, 9, 7, 8), "several chunks": (2, 12, 40, 33, 4)}  # N, C, H, W, groups


def activations(shape: tuple[int, ...], kind: torch.dtype, seed: int, *, mean: float = 0.0) -> Tensor:
    drawn = torch.randn(shape[:4], generator=torch.Generator().manual_seed(seed)) * 2 + mean
    return drawn.to(kind).contiguous(memory_format=torch.channels_last)


def both() -> tuple[ModuleType, ModuleType]:
    from counterfoil.parts.fast import fused

    return fused, plain


def apart(found: Tensor, wanted: Tensor) -> float:
    return float((found.float() - wanted.float()).norm() / wanted.float().norm())


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_normalising_agrees_with_the_library_forward_and_backward(shape: tuple[int, ...], kind: torch.dtype) -> None:
    pixels, groups = shape[2] * shape[3], shape[4]
    x, slope = activations(shape, kind, 1, mean=30.0), activations(shape, kind, 2)
    gain, bias, before = torch.randn(3, shape[1], generator=torch.Generator().manual_seed(3))
    exact = x.double().requires_grad_()
    normed = F.group_norm(exact + before[:, None, None], groups, gain.double(), bias.double(), 1e-6)
    wanted = F.silu(normed)
    gradient = torch.autograd.grad((wanted * slope.double()).sum(), exact)[0] + slope
    near = 1e-4 if kind is torch.float32 else 1e-2
    for by in both():
        found = by.coefficients(by.moments(x), gain, bias, before, pixels=pixels, groups=groups, epsilon=1e-6)
        lean = by.slope_coefficients(by.slopes(x, slope, found, silu=True), gain, found, pixels=pixels, groups=groups)
        assert apart(by.apply(x, found, silu=True), wanted.detach()) < near
        assert apart(by.apply(x, found, silu=False), normed.detach()) < near
        assert apart(by.back(x, slope, found, lean, skip=slope, silu=True), gradient) < near


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_joining_gives_the_sum_and_its_moments(shape: tuple[int, ...]) -> None:
    pixels, groups = shape[2] * shape[3], shape[4]
    kept, change = activations(shape, torch.float32, 1, mean=9.0), activations(shape, torch.float32, 2)
    bias, gain = torch.randn(2, shape[1], generator=torch.Generator().manual_seed(3))
    wanted = kept + change + bias[:, None, None]
    normed = F.group_norm(wanted, groups, gain, bias, 1e-6)
    for by in both():
        total, partials = by.join(kept, change, bias)
        assert apart(total, wanted) < 1e-6
        nothing = torch.zeros_like(bias)
        found = by.coefficients(partials, gain, bias, nothing, pixels=pixels, groups=groups, epsilon=1e-6)
        assert apart(by.apply(total, found, silu=False), normed) < 1e-5


def test_results_are_the_same_every_time() -> None:
    from counterfoil.parts.fast import fused

    x = activations(SHAPES["several chunks"], torch.float32, 5)
    assert torch.equal(fused.moments(x), fused.moments(x))


@pytest.mark.parametrize(("cells", "codes", "width"), [(70, 300, 16), (33, 1500, 8), (5, 1024, 40)])
def test_the_kernel_finds_the_nearest_codes(cells: int, codes: int, width: int) -> None:
    from counterfoil.parts.fast.code_kernels import nearest_codes

    chance = torch.Generator().manual_seed(codes)
    places, book = torch.randn(cells, width, generator=chance), torch.randn(codes, width, generator=chance)
    assert torch.equal(nearest_codes(places, book), torch.cdist(places.double(), book.double()).argmin(1))


@pytest.mark.parametrize("size", [1e-18, 1e-6, 1e4, 1e15])
def test_codes_are_found_whatever_their_size(size: float) -> None:
    from counterfoil.parts.fast.code_kernels import nearest_codes

    chance = torch.Generator().manual_seed(7)
    places, book = torch.randn(40, 24, generator=chance), torch.randn(600, 24, generator=chance)
    places, book = (each * 10 ** torch.randn(len(each), 1, generator=chance) * size for each in (places, book))
    places[3], book[500] = 0, 0
    assert torch.equal(nearest_codes(places, book), torch.cdist(places.double(), book.double()).argmin(1))


def test_codes_are_told_apart_that_halves_would_take_for_one_another() -> None:
    from counterfoil.parts.fast.code_kernels import candidates

    chance = torch.Generator().manual_seed(11)
    one = torch.randn(32, generator=chance)
    cells, book = (one + 2e-2 * torch.randn(count, 32, generator=chance) for count in (200, 128))  # one part, one candidate
    exact = torch.cdist(cells.double(), book.double()).argmin(1)
    by_halves = (book.square().sum(1) - 2 * cells.half().double() @ book.half().double().T).argmin(1)
    assert (by_halves != exact).sum() > 100
    assert torch.equal(candidates(cells, book)[:, 0], exact)


@pytest.mark.parametrize(("codes", "width", "copies"), [(4, 8, 100), (1, 16, 300), (50, 33, 7)])
def test_of_equal_codes_the_first_is_found(codes: int, width: int, copies: int) -> None:
    from counterfoil.parts.fast.code_kernels import nearest_codes

    few = torch.randn(codes, width, generator=torch.Generator().manual_seed(0))
    assert nearest_codes(few, few.repeat(copies, 1)).tolist() == list(range(codes))


@pytest.mark.parametrize("kind", [torch.float32, torch.float16])  # the interpreter cannot multiply matrices in bfloat16
@pytest.mark.parametrize("shape", [(2, 32, 16, 16, 8), (1, 24, 9, 7, 8), (1, 8, 40, 33, 4)])
def test_the_end_of_a_decoder_gives_its_pictures_and_gradients(shape: tuple[int, ...], kind: torch.dtype) -> None:
    x = activations(shape, kind, 1, mean=3.0)
    chance = torch.Generator().manual_seed(3)
    gain, bias, before = torch.randn(3, shape[1], generator=chance)
    weight, colours = torch.randn(3, shape[1], 3, 3, generator=chance).to(kind), torch.randn(3, generator=chance)
    exact = F.silu(F.group_norm(x.float() + before[:, None, None], shape[4], gain, bias, 1e-6)).requires_grad_()
    wanted = F.conv2d(exact, weight.float(), colours, padding=1)
    slope = torch.randn(wanted.shape, generator=chance)
    (steep,) = torch.autograd.grad(wanted, exact, slope)
    wanted = wanted.detach()
    pixels, groups = shape[2] * shape[3], shape[4]
    found = plain.coefficients(plain.moments(x), gain, bias, before, pixels=pixels, groups=groups, epsilon=1e-6)
    near = 1e-3 if kind is torch.float32 else 2e-2
    for by in both():
        pictures = by.ending(x, found, weight, colours)
        assert pictures.dtype == torch.float32
        assert apart(pictures, wanted) < near
        assert apart(by.ending_back(slope, weight), steep) < near


@pytest.mark.parametrize(("channels", "height", "width"), [(32, 2, 2), (24, 9, 7), (12, 2, 40), (8, 300, 3)])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_the_edge_of_a_window_is_raised(channels: int, height: int, width: int, kind: torch.dtype) -> None:
    from counterfoil.parts.fast import fused, windows

    x = activations((2, channels, height, width), kind, 1)
    notes = torch.randn(2, 5 + (2 * height + 2 * width - 4) * channels, generator=torch.Generator().manual_seed(2))
    edge = notes[:, 5:].view(2, -1, channels)  # a part of longer rows, as it is of all notes
    wanted = windows.add_edge_plainly(x.clone(), edge)
    assert apart(x, wanted) > 0.1
    assert apart(fused.add_edge(x, edge), wanted) < (1e-6 if kind is torch.float32 else 1e-2)  # the interpreter cuts digits off


def test_a_block_of_a_window_by_kernels_is_that_of_plain_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    from counterfoil.parts.fast import fused, layers, windows

    chance = torch.Generator().manual_seed(0)
    norm1, norm2 = (layers.Norm(*torch.randn(3, 8, generator=chance), groups=2, epsilon=1e-6) for _ in range(2))
    conv1, conv2 = (layers.Conv(torch.randn(8, 8, 3, 3, generator=chance) / 9) for _ in range(2))
    block = layers.Residual(norm1, conv1, norm2, conv2, None, torch.randn(8, generator=chance))
    framed = windows.FramedResidual(block, Box(0, 2, 5, 6))
    x = activations((2, 8, 9, 7), torch.float32, 3)
    answers = []
    for by in (plain, fused):
        for module in (windows, layers, windows):
            monkeypatch.setattr(module, "passes", lambda x, by=by: by)
        whole, _, notes = framed.record(x, None)
        leaf = (x[:, :, 0:5, 2:6] + 0.1).requires_grad_()
        window = framed(leaf, notes)
        answers.append((whole, window.detach(), torch.autograd.grad(window.square().sum(), leaf)[0], *notes))
    for wanted, found in zip(*answers, strict=True):
        assert apart(found, wanted) < 1e-5
