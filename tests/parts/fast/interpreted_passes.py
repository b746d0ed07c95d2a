"""The passes over activations, by Triton kernels and by plain PyTorch, against the library's own layers.

Run by `test_passes.py` in a process of its own, where Triton interprets its kernels on the CPU.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from diffusers import VQModel
from torch import Tensor

from counterfoil.parts.fast import codes, passes
from counterfoil.parts.fast.coders import build_decoder
from counterfoil.parts.fast.window import Box, WindowDecoder
from tests.fakes import apart, stir

SHAPES = {"even": (2, 32, 8, 8, 8), "uneven": (1, 24, 9, 7, 8), "several chunks": (2, 12, 40, 33, 4)}  # N, C, H, W, groups
BY = ["plain PyTorch", "Triton"]


def use(monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    for module in (passes, codes):
        monkeypatch.setattr(module, "by_triton", lambda x: by == "Triton")


@pytest.fixture(params=BY)
def by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Interpreter that runs the passes."""
    use(monkeypatch, request.param)
    return str(request.param)


def activations(shape: tuple[int, ...], dtype: torch.dtype, seed: int, *, mean: float = 0.0) -> Tensor:
    drawn = torch.randn(shape[:4], generator=torch.Generator().manual_seed(seed)) * 2 + mean
    return drawn.to(dtype).contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_normalising_agrees_with_the_library_forward_and_backward(by: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    pixels, groups = shape[2] * shape[3], shape[4]
    x, slope = activations(shape, dtype, 1, mean=30.0), activations(shape, dtype, 2)
    gain, bias, pending = torch.randn(3, shape[1], generator=torch.Generator().manual_seed(3))
    exact = x.double().requires_grad_()
    normed = F.group_norm(exact + pending[:, None, None], groups, gain.double(), bias.double(), 1e-6)
    wanted = F.silu(normed)
    gradient = torch.autograd.grad((wanted * slope.double()).sum(), exact)[0] + slope
    near = 1e-4 if dtype is torch.float32 else 1e-2
    found = passes.coefficients(passes.moments(x), gain, bias, pending, pixels=pixels, groups=groups, epsilon=1e-6)
    sums = passes.gradient_sums(x, slope, found, silu=True)
    correction = passes.correction(sums, gain, found, pixels=pixels, groups=groups)
    assert apart(passes.apply(x, found, silu=True), wanted.detach()) < near
    assert apart(passes.apply(x, found, silu=False), normed.detach()) < near
    assert apart(passes.back(x, slope, found, correction, skip=slope, silu=True), gradient) < near


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_joining_gives_the_sum_and_its_moments(by: str, shape: tuple[int, ...]) -> None:
    pixels, groups = shape[2] * shape[3], shape[4]
    kept, change = activations(shape, torch.float32, 1, mean=9.0), activations(shape, torch.float32, 2)
    bias, gain = torch.randn(2, shape[1], generator=torch.Generator().manual_seed(3))
    wanted, nothing = kept + change + bias[:, None, None], torch.zeros_like(bias)
    total, partials = passes.join(kept, change, bias)
    assert apart(total, wanted) < 1e-6
    assert torch.equal(partials, passes.join(kept, change, bias)[1])  # the same every time
    found = passes.coefficients(partials, gain, bias, nothing, pixels=pixels, groups=groups, epsilon=1e-6)
    assert apart(passes.apply(total, found, silu=False), F.group_norm(wanted, groups, gain, bias, 1e-6)) < 1e-5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])  # the interpreter cannot multiply matrices in bfloat16
@pytest.mark.parametrize("shape", [(2, 32, 16, 16, 8), (1, 24, 9, 7, 8), (1, 8, 40, 33, 4)])
def test_the_end_of_a_decoder_gives_its_images_and_gradients(by: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x, chance = activations(shape, dtype, 1, mean=3.0), torch.Generator().manual_seed(3)
    gain, bias, pending = torch.randn(3, shape[1], generator=chance)
    weight, colours = torch.randn(3, shape[1], 3, 3, generator=chance).to(dtype), torch.randn(3, generator=chance)
    exact = F.silu(F.group_norm(x.float() + pending[:, None, None], shape[4], gain, bias, 1e-6)).requires_grad_()
    wanted = F.conv2d(exact, weight.float(), colours, padding=1)
    slope = torch.randn(wanted.shape, generator=chance)
    (steep,) = torch.autograd.grad(wanted, exact, slope)
    pixels, groups = shape[2] * shape[3], shape[4]
    found = passes.coefficients(passes.moments(x), gain, bias, pending, pixels=pixels, groups=groups, epsilon=1e-6)
    near = 1e-3 if dtype is torch.float32 else 2e-2
    images = passes.to_rgb(x, found, weight, colours)
    assert images.dtype == torch.float32 and apart(images, wanted.detach()) < near
    assert apart(passes.to_rgb_back(slope, weight), steep) < near


@pytest.mark.parametrize(("channels", "height", "width"), [(32, 2, 2), (24, 9, 7), (12, 2, 40), (8, 300, 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_edge_of_a_window_is_raised(by: str, channels: int, height: int, width: int, dtype: torch.dtype) -> None:
    x = activations((2, channels, height, width), dtype, 1)
    notes = torch.randn(2, 5 + (2 * height + 2 * width - 4) * channels, generator=torch.Generator().manual_seed(2))
    edge = notes[:, 5:].view(2, -1, channels)  # a part of longer rows, as it is of all notes
    rows = [(0, column) for column in range(width)] + [(height - 1, column) for column in range(width)]
    rows += [(row, column) for column in (0, width - 1) for row in range(1, height - 1)]
    wanted = x.float()
    for place, (row, column) in enumerate(rows):
        wanted[:, :, row, column] += edge[:, place]
    assert apart(passes.add_edge(x, edge), wanted) < (1e-6 if dtype is torch.float32 else 1e-2)


@pytest.mark.parametrize(("dtype", "near"), [(torch.float32, 1e-5), (torch.bfloat16, 2**-6)])  # the interpreter cuts digits off
def test_a_gate_is_one_half_times_gelu_of_the_other(by: str, dtype: torch.dtype, near: float) -> None:
    x = torch.randn(3, 37, 160, generator=torch.Generator().manual_seed(0)).to(dtype)
    value, gate = x.double().chunk(2, dim=-1)
    assert passes.gate_by_gelu(x).dtype == dtype
    assert apart(passes.gate_by_gelu(x).double(), value * F.gelu(gate)) < near


def nearest(cells: Tensor, book: Tensor) -> Tensor:
    return torch.cdist(cells.double(), book.double()).argmin(1)


@pytest.mark.parametrize(("cells", "count", "width"), [(70, 300, 16), (33, 1500, 8), (5, 1024, 40)])
def test_the_nearest_codes_are_found(by: str, cells: int, count: int, width: int) -> None:
    chance = torch.Generator().manual_seed(count)
    places, book = torch.randn(cells, width, generator=chance), torch.randn(count, width, generator=chance)
    assert torch.equal(codes.nearest_codes(places, book), nearest(places, book))


@pytest.mark.parametrize("size", [1e-18, 1e-6, 1e4, 1e15])
def test_codes_are_found_whatever_their_size(monkeypatch: pytest.MonkeyPatch, size: float) -> None:
    use(monkeypatch, "Triton")
    chance = torch.Generator().manual_seed(7)
    places, book = torch.randn(40, 24, generator=chance), torch.randn(600, 24, generator=chance)
    places, book = (each * 10 ** torch.randn(len(each), 1, generator=chance) * size for each in (places, book))
    places[3], book[500] = 0, 0
    assert torch.equal(codes.nearest_codes(places, book), nearest(places, book))


def test_codes_are_told_apart_that_float16_would_take_for_one_another() -> None:
    chance = torch.Generator().manual_seed(11)
    one = torch.randn(32, generator=chance)
    cells, book = (one + 2e-2 * torch.randn(count, 32, generator=chance) for count in (200, 128))  # one part, one candidate
    rounded = (book.square().sum(1) - 2 * cells.half().double() @ book.half().double().T).argmin(1)
    assert (rounded != nearest(cells, book)).sum() > 100
    assert torch.equal(codes.candidates(cells, book)[:, 0], nearest(cells, book))


@pytest.mark.parametrize(("count", "width", "copies"), [(4, 8, 100), (1, 16, 300), (50, 33, 7)])
def test_of_equal_codes_the_first_is_found(by: str, count: int, width: int, copies: int) -> None:
    few = torch.randn(count, width, generator=torch.Generator().manual_seed(0))
    assert codes.nearest_codes(few, few.repeat(copies, 1)).tolist() == list(range(count))


def test_a_decoder_and_its_window_by_kernels_are_those_of_plain_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    network = VQModel(
        block_out_channels=(8, 16), layers_per_block=1, latent_channels=4, vq_embed_dim=4, num_vq_embeddings=8, norm_num_groups=4,
        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
    )  # fmt: skip
    decoder = build_decoder(stir(network), torch.float32)
    assert decoder is not None
    latents = torch.randn(1, 4, 5, 5, generator=torch.Generator().manual_seed(3))
    answers = []
    for by in BY:
        use(monkeypatch, by)
        window = WindowDecoder(decoder, Box(0, 2, 3, 4), (4, 5, 5))
        whole, recorded = window.record(latents)
        leaf = (latents + 0.1).requires_grad_()
        found = [decoder(leaf), window(leaf, recorded)]
        gradients = [torch.autograd.grad(image.square().sum(), leaf)[0] for image in found]
        answers.append((whole, recorded, *(image.detach() for image in found), *gradients))
    for wanted, found in zip(*answers, strict=True):
        assert apart(found, wanted) < 1e-4
