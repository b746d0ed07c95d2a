"""Denoisers below float32: a copy of the network computes, and the compiler is given networks and no ladders."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from counterfoil.parts.contracts import State
from counterfoil.parts.generators.adm import AdmDenoiser, AdmUNet, Flags
from counterfoil.parts.generators.diffusion import DiffusionGenerator, diffusion
from tests.generators.named_weights import named_pictures

HALF = torch.bfloat16


@pytest.fixture
def generator(pipelines: dict[str, Path]) -> DiffusionGenerator:
    return diffusion(str(pipelines["plain"]), steps=4)


def adm_denoiser() -> AdmDenoiser:
    torch.manual_seed(0)
    flags = Flags(image_size=16, num_channels=32, num_res_blocks=1, channel_mult="1,2", attention_resolutions="8")
    return AdmDenoiser(AdmUNet(flags, classes=None), flags)


@pytest.mark.parametrize("make", [lambda pipelines: diffusion(str(pipelines["plain"])).denoiser, lambda _: adm_denoiser()])
def test_under_autocast_the_whole_network_computes_in_its_format(pipelines: dict[str, Path], make: Callable[..., Any]) -> None:
    denoiser = make(pipelines)
    noisy, times, classes = named_pictures(2, 16) * 2 - 1, torch.tensor([3, 700]), torch.zeros(2, dtype=torch.long)
    with torch.no_grad():
        exact = denoiser.predict(noisy, times, classes)
        with torch.autocast("cpu", dtype=HALF):
            rounded = denoiser.predict(noisy, times, classes)
        assert rounded.dtype == HALF and 0 < (rounded.float() - exact).norm() < 0.03 * exact.norm()
        assert torch.equal(denoiser.predict(noisy, times, classes), exact)  # the network itself is as it was


def climbed(generator: DiffusionGenerator, render: Callable[[State], Tensor]) -> Tensor:
    """What is rendered on the way down, each picture with a gradient."""
    images = named_pictures(2, 16)
    state = generator.start(images, torch.zeros(2, dtype=torch.long), torch.arange(2))
    seen = []
    for _ in range(generator.denoising.steps + 1):
        leaf = state["noisy"].detach().requires_grad_()
        pictures = render({**state, "noisy": leaf})
        (slope,) = torch.autograd.grad((pictures * torch.linspace(-1, 1, 16)).sum(), leaf)
        seen.append(pictures.detach())
        state = generator.step(state, 0.01 * slope.sign())
    return torch.stack(seen)


def test_a_compiler_gets_the_network_twice_whatever_the_level(generator: DiffusionGenerator) -> None:
    graphs: list[int] = []

    def counting(graph: Any, inputs: Any) -> Any:
        graphs.append(len(graph.graph.nodes))
        return graph.forward

    torch._dynamo.reset()
    compiled = torch.compile(generator.render, dynamic=False, backend=counting)
    assert torch.equal(climbed(generator, compiled), climbed(generator, generator.render))
    assert sum(nodes > 100 for nodes in graphs) == 2  # with a gradient and without; four levels inside one graph would be more
    torch._dynamo.reset()
