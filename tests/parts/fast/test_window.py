"""Windows of decoders' images, against the whole network with everything around the window held still."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from counterfoil.parts import registry
from counterfoil.parts.fast.window import Box, NoWindow, bounding_box
from counterfoil.parts.generators.vqgan import Architecture, autoencoder, build
from tests.networks import apart, stir

pytestmark = pytest.mark.xdist_group("windows")


def f16(*, gumbel: bool = False, attends: tuple[int, ...] = (4,)) -> Any:
    """The architecture of VQGAN f16, narrow: 64 pixels, 4 × 4 cells."""
    shape = Architecture(
        32, 8, 8, ch=32, ch_mult=(1, 1, 2, 2, 4), num_res_blocks=1, resolution=64, attn_resolutions=attends, gumbel=gumbel
    )
    return autoencoder(stir(build(shape)), shape)


MAKES: dict[str, tuple[Callable[[], Any], tuple[int, int, int], Box]] = {
    "lab:vqgan": (lambda: registry.create("generator", "lab:vqgan").autoencoder, (8, 16, 16), Box(5, 3, 11, 13)),
    "lab:kl": (lambda: registry.create("generator", "lab:kl").autoencoder, (4, 16, 16), Box(0, 6, 12, 16)),
    "f16, inside": (f16, (8, 4, 4), Box(1, 1, 3, 3)),
    "f16, one cell": (f16, (8, 4, 4), Box(2, 1, 3, 2)),
    "f16, from side to side": (f16, (8, 4, 4), Box(2, 0, 4, 4)),
    "f16, gumbel, a corner": (lambda: f16(gumbel=True), (8, 4, 4), Box(0, 0, 2, 3)),
}


@contextmanager
def held_still(network: nn.Module, before: Callable[[], Tensor], box: Box, grid: tuple[int, int]) -> Iterator[None]:
    """After the first doubling, convolutions see what they saw in `before` outside the box, and statistics are those of then."""
    inputs: dict[nn.Module, Tensor] = {}

    def record(module: nn.Module, given: tuple[Any, ...]) -> None:
        if given[0].dim() == 4 and given[0].shape[-1] > grid[1]:
            inputs[module] = given[0].detach()

    def mix(module: nn.Module, given: tuple[Any, ...]) -> Any:
        return (box.paste(box.cut(given[0], grid=grid), inputs[module], grid=grid),) if module in inputs else None

    def by_recorded(module: Any, given: tuple[Any, ...], out: Tensor) -> Tensor:
        if module not in inputs:
            return out
        groups = inputs[module].unflatten(1, (module.num_groups, -1)).flatten(2)
        mean, variance = groups.mean(2), groups.var(2, unbiased=False)  # (N, G)
        centred = given[0].unflatten(1, (module.num_groups, -1)) - mean[..., None, None, None]
        normed = (centred / (variance + module.eps).sqrt()[..., None, None, None]).flatten(1, 2)
        return normed * module.weight[:, None, None] + module.bias[:, None, None]

    wide = [each for each in network.modules() if isinstance(each, nn.Conv2d) and each.kernel_size == (3, 3)]
    norms = [each for each in network.modules() if isinstance(each, nn.GroupNorm)]
    hooks = [each.register_forward_pre_hook(record) for each in (*wide, *norms)]
    before()
    for hook in hooks:
        hook.remove()
    hooks = [each.register_forward_pre_hook(mix) for each in wide] + [each.register_forward_hook(by_recorded) for each in norms]
    yield
    for hook in hooks:
        hook.remove()


def with_gradient(decode: Callable[[Tensor], Tensor], codes: Tensor) -> tuple[Tensor, Tensor]:
    leaf = codes.clone().requires_grad_()
    images = decode(leaf)
    weights = torch.randn(images.shape, generator=torch.Generator().manual_seed(1))
    return images.detach(), torch.autograd.grad((images * weights).sum(), leaf)[0]


@pytest.mark.parametrize("name", MAKES)
def test_a_window_and_its_gradient_are_those_of_the_network_with_the_rest_held_still(name: str) -> None:
    make, shape, box = MAKES[name]
    decoder, grid, chance = make(), shape[1:], torch.Generator().manual_seed(0)
    codes = torch.randn(2, *shape, generator=chance)
    moved = codes + 0.3 * torch.randn(codes.shape, generator=chance)
    window = decoder.window(box, shape, torch.float32)
    whole, recorded = window.record(codes)
    with torch.no_grad():
        assert apart(whole, decoder.decode(codes)) < 1e-5
        assert torch.allclose(window(codes, recorded), box.cut(whole, grid=grid), atol=1e-5)
        assert torch.allclose(window(codes.flip(0), recorded.flip(0)).flip(0), window(codes, recorded), atol=1e-5)
    found = with_gradient(lambda leaf: window(leaf, recorded), moved)
    with held_still(decoder.network.decoder, lambda: decoder.decode(codes), box, grid):
        wanted = with_gradient(lambda leaf: box.cut(decoder.decode(leaf), grid=grid), moved)
    assert apart(found[0], wanted[0]) < 2e-5 and apart(found[1], wanted[1]) < 2e-5
    half = decoder.window(box, shape, torch.bfloat16)
    with torch.no_grad():
        assert apart(half(codes, half.record(codes)[1]), window(codes, recorded)) < 0.05


@pytest.mark.parametrize("attends", [(4, 8), (4, 16)])
def test_a_decoder_that_attends_after_enlarging_has_no_window(attends: tuple[int, ...]) -> None:
    with pytest.raises(NoWindow, match="attends to the whole image"):
        f16(attends=attends).window(Box(1, 1, 3, 3), (8, 4, 4), torch.float32)


def test_boxes_hold_what_they_should() -> None:
    cells = torch.zeros(5, 6, dtype=torch.bool)
    cells[1, 2] = cells[3, 4] = True
    box = bounding_box(cells)
    assert box == Box(1, 2, 4, 5) and box.area == 9
    assert box.dilate(2, grid=(5, 6)) == Box(0, 0, 5, 6)
    assert box.cells(grid=(5, 6)).sum() == 9
    rows = torch.arange(2 * 10 * 12.0).view(2, 1, 10, 12)
    cut = box.cut(rows, grid=(5, 6))
    assert torch.equal(cut, rows[..., 2:8, 4:10])
    assert torch.equal(box.paste(cut, rows, grid=(5, 6)), rows)
