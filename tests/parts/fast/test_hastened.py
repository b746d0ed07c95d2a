"""Networks in another dtype: inputs and outputs keep their own, and the old state is restored afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from counterfoil.parts.fast import unets as module
from counterfoil.parts.fast.unets import AcceleratedNetwork, cast
from counterfoil.parts.weights import fingerprint

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

    monkeypatch.setattr(module, "Compiled", fake_compile)
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
