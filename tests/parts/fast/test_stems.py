"""First convolutions without a stride: the same answers and gradients."""

from __future__ import annotations

import itertools

import pytest
import timm
import torch
from torch import Tensor, nn

from counterfoil.parts.fast.stems import Stem, Stems

HALF = torch.bfloat16
SHAPES = [
    (kernel, stride, padding)
    for kernel, stride, padding in itertools.product((2, 3, 4, 7, 8, 16), (2, 3, 4, 16), (0, 1, 2, 3))
    if padding <= kernel // 2
]


def answers(convolution: nn.Module, x: Tensor, slope: Tensor | None = None) -> tuple[Tensor, Tensor]:
    leaf = x.clone().requires_grad_()
    with torch.autocast("cpu", HALF):
        out = convolution(leaf)
    slope = torch.linspace(-1, 1, out.numel()).view_as(out) if slope is None else slope
    return out.detach(), torch.autograd.grad(out.float(), leaf, slope)[0]


@pytest.mark.parametrize(("kernel", "stride", "padding"), SHAPES)
@pytest.mark.parametrize("size", [(32, 33), (37, 48)])
def test_a_convolution_of_pixels_side_by_side_is_the_same(kernel: int, stride: int, padding: int, size: tuple[int, int]) -> None:
    torch.manual_seed(0)
    convolution = nn.Conv2d(3, 8, kernel, stride=stride, padding=padding).eval()
    with torch.no_grad():  # whole numbers, so that no format rounds them
        convolution.weight.copy_(torch.randint(-1, 2, convolution.weight.shape))
        convolution.bias.copy_(torch.randint(-1, 2, convolution.bias.shape))
    x = torch.randint(0, 2, (2, 3, *size)).float()
    slope = torch.randint(-1, 2, convolution(x).shape).float()
    wanted = answers(convolution, x, slope)
    with Stems([convolution], HALF):
        assert isinstance(convolution.forward, Stem)
        found = answers(convolution, x, slope)
    for ours, exact in zip(found, wanted, strict=True):
        assert torch.equal(ours, exact)


@pytest.mark.parametrize("name", ["resnet18", "vit_tiny_patch16_224", "mobilenetv3_small_050"])
def test_the_first_convolution_of_a_network_is_found_and_its_answers_stay(name: str) -> None:
    torch.manual_seed(0)
    network = timm.create_model(name, pretrained=False).eval().requires_grad_(False)
    x, before = torch.rand(1, 3, 224, 224), list(network.state_dict())
    own, exact = answers(network, x), network(x)
    with Stems([network, network], HALF):  # of model and oracle, say
        assert sum(isinstance(module.forward, Stem) for module in network.modules()) == 1
        out, gradient = answers(network, x)
        assert torch.equal(network(x), exact)  # in float32 it is as it was
        assert list(network.state_dict()) == before
    assert (out - own[0]).norm() < 0.02 * own[0].norm()
    assert (gradient - own[1]).norm() < 0.05 * own[1].norm()
    assert not any("forward" in vars(module) for module in network.modules())  # nothing is left behind


def test_a_compiler_sees_through_it() -> None:
    network = nn.Sequential(nn.Conv2d(3, 8, 7, stride=2, padding=3), nn.ReLU()).eval()
    x = torch.rand(1, 3, 32, 32)
    with torch.autocast("cpu", HALF), Stems([network], HALF):
        assert torch.equal(torch.compile(network, backend="eager", fullgraph=True)(x), network(x))


@pytest.mark.parametrize(
    "convolution",
    [
        nn.Conv2d(3, 8, 3, padding=1),
        nn.Conv2d(16, 8, 3, stride=2),
        nn.Conv2d(3, 6, 3, stride=2, groups=3),
        nn.Conv2d(3, 8, 3, stride=2, dilation=2),
        nn.Conv2d(3, 8, 3, stride=(2, 1)),
        nn.Conv2d(3, 8, 3, stride=2, padding=1, padding_mode="reflect"),
        type("Other", (nn.Conv2d,), {})(3, 8, 3, stride=2),
    ],
    ids=["no stride", "no image", "groups", "dilation", "two strides", "reflected", "another class"],
)
def test_other_convolutions_are_left_alone(convolution: nn.Conv2d) -> None:
    assert not Stems([convolution.eval()], HALF).convolutions


def test_what_is_trained_is_left_alone() -> None:
    assert not Stems([nn.Conv2d(3, 8, 3, stride=2).train()], HALF).convolutions


def test_what_somebody_else_has_changed_is_left_alone() -> None:
    convolution = nn.Conv2d(3, 8, 3, stride=2).eval()
    convolution.forward = theirs = lambda x: x
    with Stems([convolution], HALF):
        assert convolution.forward is theirs
    assert convolution.forward is theirs
