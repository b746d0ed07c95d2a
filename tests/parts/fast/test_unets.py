"""Fused blocks of UNets against the library's own: answers, gradients, and a compiler that does not see them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from counterfoil.parts.fast import unets
from counterfoil.parts.fast.unets import FusedNorm, FusedResidual, fuse, unfuse
from tests.generators.diffusion.conftest import UNET
from tests.parts.editors.conftest import networks


def conditional() -> tuple[Any, dict[str, Any]]:
    unet = networks()["unet"].eval().requires_grad_(False)
    return unet, {"encoder_hidden_states": torch.randn(2, 7, 16, generator=torch.Generator().manual_seed(2))}


def unconditional() -> tuple[Any, dict[str, Any]]:
    from diffusers import UNet2DModel

    torch.manual_seed(0)
    return UNet2DModel(**UNET).eval().requires_grad_(False), {}


def answer_and_gradient(unet: Any, more: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """An answer, and the gradient of some of it for what was asked."""
    shape = (2, int(unet.config.in_channels), int(unet.config.sample_size), int(unet.config.sample_size))
    leaf = torch.randn(shape, generator=torch.Generator().manual_seed(1)).requires_grad_()
    answer = unet(leaf, torch.tensor([5, 900]), **more).sample
    return answer.detach(), torch.autograd.grad((answer * torch.linspace(-1, 1, shape[-1])).sum(), leaf)[0]


@pytest.mark.parametrize("make", [conditional, unconditional])
@pytest.mark.parametrize("widest", [1024, 16])
def test_answers_and_gradients_are_the_librarys(make: Any, widest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unets, "WIDEST", widest)
    unet, more = make()
    wanted = answer_and_gradient(unet, more)
    changed = fuse(unet)
    blocks = [module for module in unet.modules() if type(module).__name__ == "ResnetBlock2D"]
    assert blocks and all(isinstance(block.forward, FusedResidual) for block in blocks)
    assert any(isinstance(module.forward, FusedNorm) for module, _ in changed)
    assert any(name == "_get_output_for_continuous_inputs" for _, name in changed) == (make is conditional)
    for found, expected in zip(answer_and_gradient(unet, more), wanted, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(unet(*_rows(unet), **more).sample, wanted[0], rtol=1e-3, atol=1e-5)
    unfuse(changed)
    assert all(torch.equal(found, expected) for found, expected in zip(answer_and_gradient(unet, more), wanted, strict=True))


def test_a_compiler_gets_one_graph_of_the_librarys_blocks() -> None:
    unet, more = conditional()
    graphs: list[Any] = []

    def keeping(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    with torch.no_grad():
        wanted = unet(*_rows(unet), **more).sample
        fuse(unet)
        torch._dynamo.reset()
        found = torch.compile(unet.forward, backend=keeping, fullgraph=True)(*_rows(unet), **more).sample
        torch._dynamo.reset()
    assert len(graphs) == 1 and torch.equal(found, wanted)


def test_blocks_that_do_more_are_left_alone() -> None:
    from diffusers.models.resnet import ResnetBlock2D

    options = {"in_channels": 8, "temb_channels": 8, "groups": 4}
    for more in ({"up": True}, {"time_embedding_norm": "scale_shift"}, {"output_scale_factor": 1.4}, {"non_linearity": "gelu"}):
        block = ResnetBlock2D(**options, **more).eval()
        assert all(type(module) is torch.nn.GroupNorm for module, _ in fuse(block)), more
    assert any(isinstance(module, ResnetBlock2D) for module, _ in fuse(ResnetBlock2D(**options).eval()))


def _rows(unet: Any) -> tuple[Tensor, Tensor]:
    side = int(unet.config.sample_size)
    rows = torch.randn(2, int(unet.config.in_channels), side, side, generator=torch.Generator().manual_seed(1))
    return rows, torch.tensor([5, 900])
