"""A network made fast in its place: it computes in another number format, and is compiled once that pays.

What comes and goes keeps its format, so whoever calls the network need not know. On a GPU convolutions' weights are laid out with
channels last and blocks of UNets run fused. The weights as they were are kept aside; `undo` puts them back bit for bit.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from counterfoil.acceleration import unets
from counterfoil.acceleration.compiling import Compiled

ANSWERS_WORTH_COMPILING = 2 * 10**17
"""Weights times places answered: some three minutes of Stable Diffusion 1 on an H200, after which compiling has paid for itself
by the time that as much again is done."""


class Hastened:
    """Stands in for the `forward` of a network. `compiled` None: once enough was asked of it, on a GPU and below float32.

    Calls with a gradient are never compiled: their rows leave one by one, and each number of them would be compiled for.
    """

    def __init__(
        self, network: nn.Module, kind: torch.dtype, *, device: torch.device, name: str, compiled: bool | None = None
    ) -> None:
        self.network, self.kind, self.name = network, kind, name
        self._originals = _floating(network)
        nn.Module.to(network, device=device, dtype=kind)  # classes of libraries may warn of a format that they did not choose
        if device.type == "cuda" and all(tensor.dim() < 5 for tensor in network.parameters()):
            nn.Module.to(network, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._fused = unets.fuse_on(network, device, kind)
        self._weights = sum(tensor.numel() for tensor in network.parameters())
        self.patience = patience(kind, device, compiled)
        self._forward: Callable[..., Any] = network.forward
        self._compiled: Compiled | None = None
        self._aside = False
        if compiled:
            self.compile()
        network.forward = self

    def __call__(self, *given: Any, **named: Any) -> Any:
        values = (*given, *named.values())
        plainly = self._aside or torch.is_grad_enabled()
        if self.patience is not None and not plainly:
            self.patience -= self._weights * _places(values)
            if self.patience < 0:
                self.compile()
        work = self._forward if plainly or self._compiled is None else self._compiled
        answer = work(*cast(given, self.kind, least=2), **cast(named, self.kind, least=2))
        return cast(answer, _format(values))

    def compile(self) -> None:
        """Compile the network at its next call."""
        self.patience, self._compiled = None, Compiled(self._forward, name=self.name)

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


def patience(kind: torch.dtype, device: torch.device, compiled: bool | None) -> int | None:
    """How much a network has to be asked before it is compiled; None if it never is for that."""
    return ANSWERS_WORTH_COMPILING if compiled is None and device.type == "cuda" and kind != torch.float32 else None


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


def _places(values: Sequence[Any]) -> int:
    """Pixels or tokens of the first batch of them among the values, over all its rows."""
    first = next((value for value in values if isinstance(value, Tensor) and value.dim() >= 3), None)
    return 0 if first is None else first.numel() // first.shape[1 if first.dim() == 4 else -1]
