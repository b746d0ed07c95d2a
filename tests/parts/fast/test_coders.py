"""Decoders rebuilt from fast layers, windows of their images, and nearest codes, against the networks they were read from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from counterfoil.core.errors import BadSpec
from counterfoil.parts import registry
from counterfoil.parts.fast import coders, layers
from counterfoil.parts.fast.codes import GROUP, first_least, first_of_equals, nearest_codes
from counterfoil.parts.fast.window import Box, NoWindow, bounding_box
from counterfoil.parts.generators.autoencoders import VectorAutoencoder
from counterfoil.parts.generators.latent import LatentGenerator
from counterfoil.parts.generators.masked import Mask, MaskedGenerator
from counterfoil.parts.generators.vqgan import Architecture, NearestCodes, VqganAutoencoder, autoencoder, build
from tests.fakes import apart, stir

pytestmark = pytest.mark.rounding


def vqgan() -> Any:
    shape = Architecture(64, 16, 16, ch=32, ch_mult=(1, 1, 2), num_res_blocks=1, resolution=32, attn_resolutions=(8,))
    return stir(build(shape))


def diffusers_vq() -> Any:
    from diffusers import VQModel

    return stir(
        VQModel(
            down_block_types=("DownEncoderBlock2D",) * 2,
            up_block_types=("UpDecoderBlock2D",) * 2,
            block_out_channels=(12, 24),
            norm_num_groups=4,
            latent_channels=16,
            vq_embed_dim=16,
            num_vq_embeddings=64,
        )
    )


def image_and_gradient(decode: Any, codes: Tensor) -> tuple[Tensor, Tensor]:
    codes = codes.clone().requires_grad_()
    images = decode(codes)
    weights = torch.randn(images.shape, generator=torch.Generator().manual_seed(1))
    return images.detach(), torch.autograd.grad((images * weights).sum(), codes)[0]


@pytest.mark.parametrize(("kind", "near"), [(torch.float32, 1e-5), (torch.bfloat16, 0.1)])
@pytest.mark.parametrize("make", [vqgan, diffusers_vq])
def test_images_and_gradients_are_those_of_the_network(make: Any, kind: torch.dtype, near: float) -> None:
    network = make()
    codes = torch.randn(2, 16, 8, 8, generator=torch.Generator().manual_seed(2))
    fast = coders.build_decoder(network, kind)
    assert fast is not None
    plain = image_and_gradient(lambda codes: network.decoder(network.post_quant_conv(codes)), codes)
    for found, wanted in zip(image_and_gradient(fast, codes), plain, strict=True):
        assert found.dtype == torch.float32
        assert apart(found, wanted) < near


def test_doubling_and_convolving_is_one_transposed_convolution() -> None:
    chance = torch.Generator().manual_seed(0)
    x, weight = torch.randn(2, 5, 4, 3, generator=chance), torch.randn(7, 5, 3, 3, generator=chance)
    wanted = F.conv2d(F.interpolate(x, scale_factor=2.0), weight, padding=1)
    assert torch.allclose(layers.Upsample(layers.upsample_weight(weight), weight)(x, None, layers.WHOLE)[0], wanted, atol=1e-5)


def test_a_network_with_an_unknown_layer_is_not_built() -> None:
    network = vqgan()
    network.decoder.up_blocks[0].resnets[0] = nn.Identity()
    network.encoder.mid_block.attentions[0].heads = 2
    for each in (network, nn.Linear(2, 2)):
        assert coders.build_decoder(each, torch.float32) is None and coders.build_encoder(each) is None


def test_a_generator_is_accelerated_and_left_as_it_was() -> None:
    generator = LatentGenerator(VqganAutoencoder(vqgan()), size=32)
    fast = generator.accelerate(torch.float32)
    assert fast is not None
    assert fast.autoencoder.decoder is not None and fast.autoencoder.encoder is not None
    images = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(4))
    zeros = torch.zeros(2, dtype=torch.long)
    state = generator.start(images, zeros, zeros)
    assert apart(fast.start(images, zeros, zeros)["latent"], state["latent"]) < 1e-5
    with pytest.raises(BadSpec, match="images of 30 by 30 pixels"):
        fast.start(images[..., :30, :30], zeros, zeros)
    assert apart(fast.render(state), generator.render(state)) < 1e-5
    assert generator.autoencoder.decoder is generator.autoencoder.encoder is None


@pytest.mark.parametrize("name", ["lab:vqgan", "lab:kl"])
def test_the_labs_autoencoders_are_accelerated_with_their_encoders(name: str) -> None:
    generator = registry.create("generator", name)
    fast = generator.accelerate(torch.float32)
    images = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(4))
    zeros = torch.zeros(2, dtype=torch.long)
    state = generator.start(images, zeros, zeros)
    assert fast.autoencoder.encoder is not None
    assert apart(fast.start(images, zeros, zeros)["latent"], state["latent"]) < 1e-5
    assert apart(fast.render(state), generator.render(state)) < 1e-5


def test_a_masked_generator_is_accelerated_inside() -> None:
    inner = LatentGenerator(VectorAutoencoder(diffusers_vq()), size=16)
    mask = Mask(torch.rand(16, 8, 8, generator=torch.Generator().manual_seed(0)) < 0.5)
    masked = MaskedGenerator(inner, mask)
    fast = masked.accelerate(torch.float32)
    assert isinstance(fast, MaskedGenerator)
    zeros = torch.zeros(1, dtype=torch.long)
    state = masked.start(torch.rand(1, 3, 16, 16, generator=torch.Generator().manual_seed(4)), zeros, zeros)
    assert apart(fast.render(state), masked.render(state)) < 1e-5


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


@pytest.mark.parametrize("count", [5, GROUP, 4 * GROUP, 4 * GROUP + 1])
def test_finds_what_the_whole_table_of_distances_says(count: int) -> None:
    chance = torch.Generator().manual_seed(count)
    cells, book = torch.randn(150, 8, generator=chance), torch.randn(count, 8, generator=chance)
    assert torch.equal(nearest_codes(cells, book), torch.cdist(cells.double(), book.double()).argmin(1))


def test_the_first_of_equal_entries_is_taken() -> None:
    table = torch.ones(2, 3 * GROUP)
    table[0, [GROUP + 7, GROUP + 9, 2 * GROUP]] = 0
    table[1, [3, 2 * GROUP + 1]] = -1
    assert first_least(table).tolist() == [GROUP + 7, 3]


@pytest.mark.parametrize(("count", "width"), [(1, 1), (4, 8), (8, 3), (100, 64)])
@pytest.mark.parametrize("copies", [2, 37, 128])
def test_of_equal_codes_the_first_is_found_however_products_are_rounded(
    count: int, width: int, copies: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    product = torch.addmm

    def rounded_by_column(*given: torch.Tensor) -> torch.Tensor:
        table = product(*given)
        return table - torch.linspace(0, 1e-5, table.shape[1])  # later columns come out a little less

    monkeypatch.setattr(torch, "addmm", rounded_by_column)
    few = torch.randn(count, width, generator=torch.Generator().manual_seed(count))
    assert nearest_codes(few, few.repeat(copies, 1)).tolist() == list(range(count))


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
