"""A masked search that decodes a window: exact where nothing moved, close where something did, and refused where it can't be."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from counterfoil.core.spec import EngineSpec, SearchSpec
from counterfoil.doctor.gradients import psnr
from counterfoil.engine.scheduler import Engine, Job
from counterfoil.parts import registry
from counterfoil.parts.generators.autoencoders import GaussianAutoencoder, TinyAutoencoder
from counterfoil.parts.generators.latent import LatentGenerator
from counterfoil.parts.generators.sparse import Mask, SparseGenerator, WindowedGenerator, masked
from counterfoil.parts.generators.sparse.box import Box
from counterfoil.parts.generators.sparse.submodel import CannotCrop, Submodel
from counterfoil.parts.generators.vqgan import Architecture, VqganAutoencoder, autoencoder, build
from counterfoil.studies.sparse import _psnr, time_in_turn
from counterfoil.testing import check_generator, pictures
from tests.fakes import CommandedOracle, TinyModel
from tests.fakes import TinyAutoencoder as PlainModule

pytestmark = pytest.mark.xdist_group("windows")


def square(channels: int, cells: int, *, first: int, side: int, halo: int = 1) -> Mask:
    kept = torch.zeros(channels, cells, cells, dtype=torch.bool)
    kept[:, first : first + side, first : first + side] = True
    return Mask(kept, halo=halo)


def small_vqgan(*, gumbel: bool = False, attends: tuple[int, ...] = (8,)) -> LatentGenerator:
    """The authors' architecture with narrow layers: 64 pixels, 8 × 8 cells."""
    shape = Architecture(
        n_embed=64, embed_dim=6, z_channels=6, ch=32, ch_mult=(1, 1, 1, 1), num_res_blocks=1, resolution=64,
        attn_resolutions=attends, gumbel=gumbel,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        network = build(shape)
    return LatentGenerator(autoencoder(network, shape), size=64)


MAKES = {
    "lab:vqgan": lambda: (registry.create("generator", "lab:vqgan"), square(8, 16, first=5, side=6)),
    "lab:kl": lambda: (registry.create("generator", "lab:kl"), square(4, 16, first=5, side=6)),
    "vqgan": lambda: (small_vqgan(), square(6, 8, first=2, side=4)),
    "gumbel": lambda: (small_vqgan(gumbel=True), square(6, 8, first=0, side=5)),
}


@pytest.fixture(params=list(MAKES))
def pair(request):
    inner, mask = MAKES[request.param]()
    return inner, WindowedGenerator(inner, mask)


def begun(generator, count: int = 2):
    zeros = torch.zeros(count, dtype=torch.long)
    with torch.no_grad():
        return generator.start(pictures(count, 64), zeros, zeros)


def test_a_windowed_generator_keeps_the_contract(pair):
    check_generator(pair[1], size=64)


def test_before_anything_has_moved_the_picture_is_the_reconstruction(pair):
    inner, windowed = pair
    with torch.no_grad():
        assert torch.allclose(windowed.render(begun(windowed)), inner.render(begun(inner)), atol=1e-5)


def test_the_window_follows_the_whole_decoder_and_the_rest_stays(pair):
    inner, windowed = pair
    state = begun(windowed)
    source = torch.Generator().manual_seed(0)
    signal = 0.3 * torch.randn(state["kept"].shape, generator=source) * begun(inner)["scale"][:, None]
    moved = windowed.step(state, signal)
    with torch.no_grad():
        before, drawn = windowed.render(state), windowed.render(moved)
        whole = inner.render({**moved, "latent": windowed.filled(moved)})
    # Of what changed, a trained decoder's window misses a third at most. Random weights spread a change much further.
    closer = 1.0 if isinstance(inner.autoencoder, VqganAutoencoder) else 9.0
    assert (psnr(drawn, whole) > psnr(before, whole) + closer).all(), (psnr(drawn, whole), psnr(before, whole))
    outside = ~windowed.window.cells(grid=windowed.grid)
    scale = drawn.shape[-1] // windowed.grid[0]
    outside = outside.repeat_interleave(scale, 0).repeat_interleave(scale, 1)
    assert torch.equal(drawn[..., outside], before[..., outside])
    assert not torch.equal(drawn, before)


def test_the_gradient_is_that_of_the_picture(pair):
    """Against finite differences of the very rendering, in the space that is decoded as it is."""
    inner, mask = pair[0], pair[1].mask
    windowed = WindowedGenerator(
        LatentGenerator(inner.autoencoder, space="code" if "quantise" in dir(inner.autoencoder) else "before"), mask
    )
    state = begun(windowed, 1)
    source = torch.Generator().manual_seed(1)
    weight = torch.randn(1, 3, 64, 64, generator=source, dtype=torch.float64)
    along = torch.randn(state["kept"].shape, generator=source)
    leaf = state["kept"].clone().requires_grad_()
    slope = float((torch.autograd.grad((windowed.render({**state, "kept": leaf}) * weight).sum(), leaf)[0] * along).sum())
    with torch.no_grad():  # unclamped, because the clamp's gradient is meant to pass
        ends = []
        for sign in (1, -1):
            codes = windowed.filled({**state, "kept": state["kept"] + sign * 1e-3 * along})
            drawn = windowed.submodel.decode(codes, state["surroundings"]).double()
            ends.append(float((drawn * windowed.window.cut(weight, grid=windowed.grid)).sum()))
    assert slope == pytest.approx((ends[0] - ends[1]) / 2e-3, rel=0.02, abs=0.02)


def test_rows_keep_what_they_need_when_they_change_places(pair):
    windowed = pair[1]
    state = begun(windowed)
    turned = {name: rows.flip(0) for name, rows in state.items()}
    with torch.no_grad():
        assert torch.allclose(windowed.render(turned).flip(0), windowed.render(state), atol=1e-5)


def test_weights_are_shared_and_the_original_decoder_is_left_alone():
    inner, mask = MAKES["lab:vqgan"]()
    names = [type(layer).__name__ for layer in inner.autoencoder.network.modules()]
    windowed = WindowedGenerator(inner, mask)
    assert [type(layer).__name__ for layer in inner.autoencoder.network.modules()] == names
    assert not any(layer._forward_hooks or layer._forward_pre_hooks for layer in inner.autoencoder.network.modules())
    twins = {each.data_ptr() for each in windowed.submodel._copy.network.parameters()}
    assert twins == {each.data_ptr() for each in inner.autoencoder.network.parameters()}


def test_a_decoder_that_attends_after_enlarging_runs_whole_and_says_why():
    inner = small_vqgan(attends=(8, 16))
    found = masked(inner, square(6, 8, first=2, side=4))
    assert not isinstance(found, WindowedGenerator)
    assert "does not run on a window" in found.provenance()["window"]
    check_generator(found, size=64)


def test_scattered_coordinates_run_whole_and_say_why():
    kept = torch.zeros(6, 8, 8, dtype=torch.bool)
    kept[0, 0, 0] = kept[3, 7, 7] = True
    assert "100 % of the picture" in masked(small_vqgan(), Mask(kept)).provenance()["window"]


def test_a_decoder_without_normalisation_can_be_windowed():
    from diffusers import AutoencoderTiny

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = AutoencoderTiny(
            encoder_block_out_channels=(8, 8, 8), decoder_block_out_channels=(8, 8, 8), num_encoder_blocks=(1, 1, 1),
            num_decoder_blocks=(1, 1, 1), latent_channels=4,
        )  # fmt: skip
    windowed = masked(LatentGenerator(TinyAutoencoder(network), size=64), square(4, 16, first=4, side=6))
    assert isinstance(windowed, WindowedGenerator)
    check_generator(windowed, size=64)


def test_an_autoencoder_that_is_itself_a_module_can_be_windowed():
    windowed = masked(LatentGenerator(PlainModule(), size=16), square(48, 4, first=1, side=2, halo=0))
    assert isinstance(windowed, WindowedGenerator)
    check_generator(windowed, size=16)


def test_something_that_is_not_made_of_modules_cannot_be_cropped():
    class Plain:
        def encode(self, images):
            return images

        def decode(self, latents):
            return latents

    with pytest.raises(CannotCrop, match="not made of torch modules"):
        Submodel(Plain(), torch.Size((3, 8, 8)), Box(0, 0, 4, 4))
    assert type(masked(LatentGenerator(Plain()), square(3, 8, first=0, side=4))) is SparseGenerator


def test_a_decoder_that_enlarges_nothing_cannot_be_cropped():
    class Flat:
        network = nn.Conv2d(3, 3, 3, padding=1)

        def encode(self, images):
            return images

        def decode(self, latents):
            return self.network(latents)

    with pytest.raises(CannotCrop, match="enlarges"):
        Submodel(Flat(), torch.Size((3, 8, 8)), Box(0, 0, 4, 4))


def test_a_mask_for_another_network_is_refused_in_one_line():
    from counterfoil.core.errors import BadSpec

    inner = GaussianAutoencoder(registry.create("generator", "lab:kl").autoencoder.network)
    with pytest.raises(BadSpec, match=r"rows of shape \(9, 16, 16\), which this generator cannot decode"):
        masked(LatentGenerator(inner, size=64), square(9, 16, first=4, side=6))


def test_less_is_decoded():
    """Counted, not timed: the arithmetic of the layers after the first doubling shrinks with the window."""
    from torch.utils.flop_counter import FlopCounterMode

    inner, mask = small_vqgan(), square(6, 8, first=2, side=4, halo=0)
    windowed = WindowedGenerator(inner, mask)
    counts = []
    for generator in (inner, windowed):
        state = begun(generator)
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            generator.render(state)
        counts.append(counter.get_total_flops())
    assert windowed.share == 0.25 and counts[1] < 0.45 * counts[0]


def test_engines_climb_in_turn_for_the_same_images_and_places_are_kept():
    inner, mask = MAKES["vqgan"]()
    parts, search = (TinyModel(), CommandedOracle()), SearchSpec(budget=1, control="none")
    layout = EngineSpec(slots=2, batch_size=2)
    engines = [
        Engine(parts[0], each, parts[1], columns=[0, 1, 2, 3], search=search, layout=layout, keep_places=True)
        for each in (inner, SparseGenerator(inner, mask))  # which decodes all of it, so only rounding to 8 bits is left
    ]
    work = [Job(f"image {at}", image, at, at) for at, image in enumerate(pictures(2, 64))]
    seconds, results = time_in_turn(engines, work, rounds=1)
    assert seconds.shape == (1, 2)
    assert [result.places[0].shape for result in results] == [(int(mask.kept.sum()),)] * 2
    assert all(_psnr(engines[1].step.given, result, "cpu") > 50 for result in results)
