"""Windows drawn by fast layers, against the ones that the networks' own layers draw."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from counterfoil.core.spec import EngineSpec, SearchSpec
from counterfoil.engine.fast import Acceleration
from counterfoil.engine.scheduler import Engine, Job
from counterfoil.parts import registry
from counterfoil.parts.contracts import State
from counterfoil.parts.fast import windows
from counterfoil.parts.generators.latent import LatentGenerator
from counterfoil.parts.generators.sparse import Mask, WindowedGenerator
from counterfoil.parts.generators.sparse.box import Box
from counterfoil.parts.generators.vqgan import Architecture, autoencoder, build
from counterfoil.testing import pictures
from tests.fakes import CommandedOracle, TinyModel
from tests.parts.fast.test_decoder import apart, stirred

pytestmark = pytest.mark.xdist_group("windows")


def held(generator: LatentGenerator, shape: tuple[int, int, int], box: Box) -> WindowedGenerator:
    """The generator held to a rectangle of cells."""
    return WindowedGenerator(generator, Mask(box.cells(grid=shape[1:]).expand(shape).contiguous()))


def vqgan_f16(box: Box, *, gumbel: bool = False) -> WindowedGenerator:
    """The architecture of VQGAN f16, narrow: 64 pixels, 4 × 4 cells."""
    shape = Architecture(
        32, 8, 8, ch=32, ch_mult=(1, 1, 2, 2, 4), num_res_blocks=1, resolution=64, attn_resolutions=(4,), gumbel=gumbel
    )
    return held(LatentGenerator(autoencoder(stirred(build(shape)), shape), size=64), (8, 4, 4), box)


MAKES: dict[str, Callable[[], WindowedGenerator]] = {
    "lab:vqgan": lambda: held(registry.create("generator", "lab:vqgan"), (8, 16, 16), Box(5, 3, 11, 13)),
    "lab:kl": lambda: held(registry.create("generator", "lab:kl"), (4, 16, 16), Box(0, 6, 12, 16)),
    "f16, inside": lambda: vqgan_f16(Box(1, 1, 3, 3)),
    "f16, one cell": lambda: vqgan_f16(Box(2, 1, 3, 2)),
    "f16, from side to side": lambda: vqgan_f16(Box(2, 0, 4, 4)),
    "f16, gumbel, a corner": lambda: vqgan_f16(Box(0, 0, 2, 3), gumbel=True),
}


@pytest.fixture(params=list(MAKES))
def windowed(request: pytest.FixtureRequest) -> WindowedGenerator:
    return MAKES[request.param]()


def begun(generator: Any) -> State:
    zeros = torch.zeros(2, dtype=torch.long)
    state: State = generator.start(pictures(2, 64), zeros, zeros)
    return state


def moved(generator: Any) -> tuple[Tensor, Tensor]:
    """Pictures one step from the start, and the gradient of a sum of their pixels."""
    state, chance = begun(generator), torch.Generator().manual_seed(1)
    signal = torch.randn(state["kept"].shape, generator=chance) * 0.3 * state["scale"][:, None]
    state = generator.step(state, signal)
    leaf = state["kept"].detach().requires_grad_()
    drawn = generator.render({**state, "kept": leaf})
    weights = torch.randn(drawn.shape, generator=chance)
    return drawn.detach(), torch.autograd.grad((drawn * weights).sum(), leaf)[0]


def test_pictures_and_gradients_are_those_of_the_networks_own_layers(windowed: WindowedGenerator) -> None:
    fast = windowed.accelerated(torch.float32)
    assert isinstance(fast, WindowedGenerator) and isinstance(fast.submodel, windows.FastSubmodel)
    for found, wanted in zip(moved(fast), moved(windowed), strict=True):
        assert found.dtype == torch.float32 and apart(found, wanted) < 2e-5
    assert fast.submodel.fast is not None
    assert isinstance(windowed.submodel, type(fast.submodel.plain))  # the one given is left as it was


def test_in_bf16_rounding_is_all_that_differs(windowed: WindowedGenerator) -> None:
    fast: Any = windowed.accelerated(torch.bfloat16)
    with torch.no_grad():
        assert apart(fast.render(begun(fast)), windowed.render(begun(windowed))) < 0.05
    assert fast.submodel.fast is not None


def test_a_window_that_does_not_fit_is_left_to_the_networks_own_layers(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    windowed = MAKES["lab:vqgan"]()
    wanted = moved(windowed)
    monkeypatch.setattr(windows, "add_edge", lambda x, edge: x)  # nothing comes from beyond the edge
    fast: Any = windowed.accelerated(torch.float32)
    with caplog.at_level(logging.WARNING):
        found = moved(fast)
    assert "off that of the whole picture" in caplog.text and fast.submodel.fast is None
    assert all(torch.equal(*both) for both in zip(found, wanted, strict=True))


def test_a_kernel_that_fails_is_not_the_end(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(x: Tensor, edge: Tensor) -> Tensor:
        raise RuntimeError("no compiler was found")

    monkeypatch.setattr(windows, "add_edge", broken)
    fast: Any = MAKES["f16, inside"]().accelerated(torch.float32)
    with caplog.at_level(logging.WARNING):
        moved(fast)
    assert "the network's own layers and not by fused ones: no compiler was found" in caplog.text


def test_a_decoder_that_attends_after_enlarging_has_no_fast_window() -> None:
    shape = Architecture(32, 8, 8, ch=32, ch_mult=(1, 1, 1), num_res_blocks=1, resolution=32, attn_resolutions=(8, 16))
    assert windows.build(build(shape), torch.float32, Box(2, 2, 4, 4)) is None


def test_the_engine_climbs_alike_with_and_without_fast_layers() -> None:
    jobs = [Job(str(number), picture, number, number) for number, picture in enumerate(pictures(3, 64))]
    ends = []
    for fused in (False, True):
        engine = Engine(
            TinyModel(), MAKES["lab:kl"](), CommandedOracle(), columns=range(3), search=SearchSpec(budget=2),
            layout=EngineSpec(slots=2, batch_size=2), acceleration=Acceleration(fused=fused),
        )  # fmt: skip
        assert engine.step.fused == fused
        ends.append({done.job.image_id: done for done in engine.run(jobs)})
    for name, plain in ends[0].items():
        for found, wanted in zip(ends[1][name].images, plain.images, strict=True):
            assert (found - wanted).abs().max() < 1.5 / 255
