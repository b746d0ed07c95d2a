"""A network made fast in its place: it computes in another number format, and is compiled if that is asked for.

What comes and goes keeps its format, so whoever calls the network need not know. On a GPU convolutions' weights are laid out with
channels last and blocks of UNets run fused. The weights as they were are kept aside; `undo` puts them back bit for bit.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from counterfoil.engine.fast import Compiled
from counterfoil.parts.fast import unets


class Hastened:
    """Stands in for the `forward` of a network.

    Calls with a gradient are never compiled: their rows leave one by one, and each number of them would be compiled for.
    """

    def __init__(self, network: nn.Module, kind: torch.dtype, *, device: torch.device, name: str, compiled: bool = False) -> None:
        self.network, self.kind = network, kind
        self._originals = _floating(network)
        nn.Module.to(network, device=device, dtype=kind)  # classes of libraries may warn of a format that they did not choose
        if device.type == "cuda" and all(tensor.dim() < 5 for tensor in network.parameters()):
            nn.Module.to(network, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._fused = unets.fuse_on(network, device, kind)
        self._forward: Callable[..., Any] = network.forward
        self._compiled: Callable[..., Any] = Compiled(network.forward, name=name) if compiled else network.forward
        self._aside = False
        network.forward = self

    def __call__(self, *given: Any, **named: Any) -> Any:
        values = (*given, *named.values())
        work = self._forward if self._aside or torch.is_grad_enabled() else self._compiled
        answer = work(*cast(given, self.kind, least=2), **cast(named, self.kind, least=2))
        return cast(answer, _format(values))

    @contextlib.contextmanager
    def uncompiled(self) -> Iterator[None]:
        """The network as it is, for those who change it from call to call and would have it compiled each time."""
        before, self._aside = self._aside, True
        try:
            yield
        finally:
            self._aside = before

    @contextlib.contextmanager
    def originals(self) -> Iterator[None]:
        """The weights as they were, for those who hash them."""
        mine = _floating(self.network)
        _assign(self.network, self._originals)
        try:
            yield
        finally:
            _assign(self.network, mine)

    def undo(self) -> None:
        """The network as it was."""
        del self.network.forward
        unets.unfuse(self._fused)
        _assign(self.network, self._originals)


def cast(value: Any, kind: torch.dtype, *, least: int = 0) -> Any:
    """The same with every floating-point tensor in it in another format.

    Tensors of fewer dimensions than `least` are left: the time of a diffusion is one, and in bf16 981 would be 980.
    """
    if isinstance(value, Tensor):
        return value.to(kind) if value.is_floating_point() and value.dim() >= least else value
    if isinstance(value, Mapping):
        return type(value)(**{name: cast(item, kind, least=least) for name, item in value.items()})
    if isinstance(value, list | tuple):
        return type(value)(cast(item, kind, least=least) for item in value)
    return value


def _floating(network: nn.Module) -> dict[str, Tensor]:
    """A network's weights and buffers as they are now, without those that count."""
    named = (*network.named_parameters(), *network.named_buffers())
    return {name: tensor.data for name, tensor in named if tensor.is_floating_point()}


def _assign(network: nn.Module, values: Mapping[str, Tensor]) -> None:
    for name, tensor in (*network.named_parameters(), *network.named_buffers()):
        if name in values:
            tensor.data = values[name]


def _format(values: Sequence[Any]) -> torch.dtype:
    """The format in which answers go back: that of the first batch given."""
    floating = (value for value in values if isinstance(value, Tensor) and value.is_floating_point() and value.dim() >= 2)
    return next((value.dtype for value in floating), torch.float32)
