"""UNets, pipelines and first convolutions made fast: fused layers, another dtype, and the old state afterwards."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import timm
import torch
from torch import Tensor, nn

from counterfoil.parts.fast import coders, unets
from counterfoil.parts.fast import unets as fast_module
from counterfoil.parts.fast.stems import Stem, Stems
from counterfoil.parts.fast.unets import (
    AcceleratedNetwork,
    FusedDecode,
    FusedNorm,
    FusedResidual,
    PlacedPipeline,
    cast,
    fuse,
    unfuse,
)
from counterfoil.parts.weights import fingerprint
from tests.generators.small import UNET
from tests.parts.editors.conftest import networks, scheduler


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


CPU = torch.device("cpu")


class Network(nn.Module):
    """Two layers that tell the format they are called in."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.seen: list[tuple[torch.dtype, torch.dtype]] = []

    def forward(self, images: Tensor, time: Tensor, *, text: Tensor, return_dict: bool = True) -> Any:
        self.seen.append((images.dtype, time.dtype))
        found = self.norm(self.first(images) + text[:, :, None, None])
        return {"sample": found} if return_dict else (found,)


@pytest.fixture
def network() -> Network:
    return Network().eval().requires_grad_(False)


def inputs() -> dict[str, Any]:
    chance = torch.Generator().manual_seed(1)
    return {
        "images": torch.randn(2, 3, 8, 8, generator=chance),
        "time": torch.tensor(981.0),
        "text": torch.randn(2, 8, generator=chance),
    }


def test_it_computes_in_another_format_and_answers_in_the_callers(network: Network) -> None:
    wanted, mark = network(**inputs())["sample"], fingerprint(network)
    fast = AcceleratedNetwork(network, torch.bfloat16, device=CPU, name="it")
    found = network(**inputs())["sample"]
    assert network.seen[-1] == (torch.bfloat16, torch.float32)  # a time of 981 would be 980 in bf16
    assert found.dtype == torch.float32 and 0 < (found - wanted).abs().max() < 0.05
    assert network(**inputs(), return_dict=False)[0].dtype == torch.float32
    assert fingerprint(network) != mark
    with fast.originals():
        assert fingerprint(network) == mark
    fast.undo()
    assert fingerprint(network) == mark and torch.equal(network(**inputs())["sample"], wanted)


def test_nested_values_are_cast_and_counts_are_not() -> None:
    found = cast({"a": [torch.ones(2, 2), 3], "b": (torch.ones(1), torch.ones(2, dtype=torch.long))}, torch.float16, least=2)
    assert found["a"][0].dtype == torch.float16 and found["a"][1] == 3
    assert [tensor.dtype for tensor in found["b"]] == [torch.float32, torch.int64]


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of what is compiled."""
    named: list[str] = []

    def fake_compile(work: Callable[..., Any], *, name: str) -> Callable[..., Any]:
        named.append(name)
        return lambda *given, **more: {"sample": torch.zeros(1)}

    monkeypatch.setattr(fast_module, "Compiled", fake_compile)
    return named


def test_it_is_compiled_only_if_asked_for_and_never_where_it_changes_or_has_a_gradient(
    network: Network, compilations: list[str]
) -> None:
    plain = AcceleratedNetwork(network, torch.bfloat16, device=CPU, name="the denoiser")
    with torch.no_grad():
        assert network(**inputs())["sample"].shape == (2, 8, 8, 8)
    plain.undo()
    assert compilations == []
    fast = AcceleratedNetwork(network, torch.bfloat16, device=CPU, name="the denoiser", compiled=True)
    with torch.no_grad():
        assert network(**inputs())["sample"].shape == (1,)
        with fast.without_compiler():
            assert network(**inputs())["sample"].shape == (2, 8, 8, 8)
        assert network(**inputs())["sample"].shape == (1,)
    assert network(**inputs())["sample"].shape == (2, 8, 8, 8)
    assert compilations == ["the denoiser"]


HERE = torch.device("cpu")
WITHOUT: dict[str, Any] = {"safety_checker": None, "feature_extractor": None, "requires_safety_checker": False}


@pytest.fixture
def pipeline() -> Any:
    from diffusers import StableDiffusionPipeline

    return StableDiffusionPipeline(**networks(), scheduler=scheduler(), **WITHOUT)


def paint(pipeline: Any) -> torch.Tensor:
    noise = torch.Generator().manual_seed(3)
    found = pipeline("a photo of a red dress", generator=noise, num_inference_steps=3, guidance_scale=4.0, output_type="pt")
    return torch.as_tensor(found.images)


@pytest.mark.parametrize("fused", [True, False])
def test_images_change_by_rounding_alone_and_come_back(pipeline: Any, monkeypatch: pytest.MonkeyPatch, fused: bool) -> None:
    if not fused:
        monkeypatch.setattr(coders, "build_decoder", lambda *given, **more: None)
    placed = PlacedPipeline(pipeline)
    wanted, marks, account = paint(pipeline), [fingerprint(pipeline.unet), fingerprint(pipeline.vae)], placed.provenance()
    placed.accelerate(torch.bfloat16, HERE)
    assert isinstance(pipeline.vae.decode, FusedDecode) == fused
    assert pipeline.unet.dtype == torch.bfloat16 and pipeline.text_encoder.dtype == torch.float32
    found = paint(pipeline)
    assert found.dtype == torch.float32 and 0 < (found - wanted).abs().mean() < 0.02
    assert fingerprint(pipeline.unet) != marks[0] and placed.provenance() == account
    placed.place(HERE)
    assert [fingerprint(pipeline.unet), fingerprint(pipeline.vae)] == marks
    assert torch.equal(paint(pipeline), wanted)


def test_a_fused_decoder_answers_as_the_library_does(pipeline: Any) -> None:
    PlacedPipeline(pipeline).accelerate(torch.bfloat16, HERE)
    codes = torch.randn(1, 4, 8, 8, generator=torch.Generator().manual_seed(1))
    assert torch.equal(pipeline.vae.decode(codes).sample, pipeline.vae.decode(codes, return_dict=False, generator=None)[0])


LOW = torch.bfloat16
SHAPES = [
    (kernel, stride, padding)
    for kernel, stride, padding in itertools.product((2, 3, 4, 7, 8, 16), (2, 3, 4, 16), (0, 1, 2, 3))
    if padding <= kernel // 2
]


def answers(convolution: nn.Module, x: Tensor, slope: Tensor | None = None) -> tuple[Tensor, Tensor]:
    leaf = x.clone().requires_grad_()
    with torch.autocast("cpu", LOW):
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
    with Stems([convolution], LOW):
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
    with Stems([network, network], LOW):  # of model and oracle, say
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
    with torch.autocast("cpu", LOW), Stems([network], LOW):
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
    assert not Stems([convolution.eval()], LOW).convolutions


def test_what_is_trained_is_left_alone() -> None:
    assert not Stems([nn.Conv2d(3, 8, 3, stride=2).train()], LOW).convolutions


def test_what_somebody_else_has_changed_is_left_alone() -> None:
    convolution = nn.Conv2d(3, 8, 3, stride=2).eval()
    convolution.forward = theirs = lambda x: x
    with Stems([convolution], LOW):
        assert convolution.forward is theirs
    assert convolution.forward is theirs
