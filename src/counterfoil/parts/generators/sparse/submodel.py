"""The part of a decoder that a window of the latent needs: what the sparse search runs instead of the whole.

A decoder first works at the latent's own resolution, where a layer may look at everything (attention), and then doubles the
side again and again, where nearly all the time goes. The submodel runs the first part whole and the second on a window of it.
Around the window the picture stays the reconstruction, and so does what the window's layers see of it; so before anything has
moved the submodel's picture is the decoder's own, and afterwards it differs by what would have changed outside.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from counterfoil.core.errors import one_line
from counterfoil.parts.fast.dtypes import computing
from counterfoil.parts.generators.latent import Autoencoder
from counterfoil.parts.generators.sparse.box import Box
from counterfoil.parts.generators.sparse.framed import Cropped, Surroundings, replaceable, replacement

TOLERANCE = 1e-3  # of the range of a picture: a quarter of a grey level


class CannotCrop(Exception):
    """Why a decoder cannot be run on a window."""


class Submodel:
    """A decoder that only draws a window."""

    def __init__(self, autoencoder: Autoencoder, shape: torch.Size, box: Box) -> None:
        """`shape` is that of a latent, `box` the window in its cells. Raises CannotCrop where that does not work."""
        network = _network(autoencoder)
        device = next((each.device for each in network.parameters()), torch.device("cpu"))
        latents = torch.randn(1, *shape, generator=torch.Generator().manual_seed(0)).to(device)
        order = _survey(autoencoder, network, latents)
        self.around = Surroundings(box, (shape[1], shape[2]))
        self._copy = _twin(autoencoder)
        self._replace(order)
        self._check(latents)

    @torch.no_grad()
    def record(self, latents: Tensor) -> tuple[Tensor, Tensor]:
        """The whole pictures, and what their windows will need of them.  # (N, C, h, w) → (N, 3, H, W), (N, L)"""
        self.around.recording, self.around.notes = True, []
        try:
            pictures = self._copy.decode(latents)
            return pictures, self.around.flat(pictures)
        finally:
            self.around.recording, self.around.notes = False, []

    def decode(self, latents: Tensor, surroundings: Tensor) -> Tensor:
        """The windows' parts of the pictures of whole latents.  # (N, C, h, w), (N, L) → (N, 3, window)"""
        self.around.recall(surroundings)
        window: Tensor = self._copy.decode(latents)
        self.around.notes = []
        return window

    def _replace(self, order: _Order) -> None:
        """Put layers that know of the rest in the place of those that would miss it."""
        network = _network(self._copy)
        for place, name in enumerate(order.later):
            _put(network, name, replacement(network.get_submodule(name), self.around, place))
        _put(network, order.doubling, Cropped(network.get_submodule(order.doubling), self.around))

    @torch.no_grad()
    def _check(self, latents: Tensor) -> None:
        """The window of an unmoved latent is that of the whole picture; whatever is not known here shows in it."""
        try:
            with computing("float32", latents.device):  # or the rounding of TF32 would show as well
                whole, notes = self.record(latents)
                window, wanted = self.decode(latents, notes), self.around.cut(whole)
        except (RuntimeError, TypeError, ValueError) as error:
            raise CannotCrop(f"its decoder does not run on a window ({one_line(error)})") from None
        if window.shape != wanted.shape or not torch.allclose(window, wanted, rtol=0, atol=TOLERANCE * float(wanted.abs().max())):
            raise CannotCrop("its decoder has layers that look at more than a window once it has begun to enlarge")


@dataclass(frozen=True)
class _Order:
    """What a decoder calls, by name."""

    doubling: str  # the first layer whose output is larger than its input
    later: tuple[str, ...]  # what has to be replaced from there on, in the order in which it is called


@torch.no_grad()
def _survey(autoencoder: Autoencoder, network: nn.Module, latents: Tensor) -> _Order:
    """Decode once and watch."""
    called: list[str] = []
    doubling: list[str] = []

    def enter(name: str) -> Callable[..., None]:
        return lambda module, given: called.append(name)

    def leave(name: str) -> Callable[..., None]:
        def look(module: nn.Module, given: tuple[Any, ...], out: Any) -> None:
            maps = bool(given) and all(isinstance(each, Tensor) and each.dim() == 4 for each in (given[0], out))
            if maps and not doubling and out.shape[-1] > given[0].shape[-1] == latents.shape[-1]:
                doubling.append(name)

        return look

    hooks: list[Any] = []
    for name, module in network.named_modules():
        if name:
            hooks += [module.register_forward_pre_hook(enter(name)), module.register_forward_hook(leave(name))]
    try:
        autoencoder.decode(latents)
    finally:
        for hook in hooks:
            hook.remove()
    if not doubling:
        raise CannotCrop("none of its decoder's layers enlarges the latent")
    later = [name for name in called[called.index(doubling[0]) + 1 :] if replaceable(network.get_submodule(name))]
    if any(called.count(name) > 1 for name in (doubling[0], *later)):
        raise CannotCrop("its decoder calls a layer more than once")
    return _Order(doubling[0], tuple(later))


def _network(autoencoder: Any) -> nn.Module:
    """The modules of an autoencoder that has some or is one."""
    network = autoencoder if isinstance(autoencoder, nn.Module) else getattr(autoencoder, "network", None)
    if not isinstance(network, nn.Module):
        raise CannotCrop("the generator's decoder is not made of torch modules")
    return network


def _twin(autoencoder: Any) -> Any:
    """A copy with the same weights, not copies of them, so that layers can be replaced in it alone."""
    network = _network(autoencoder)
    twin = copy.deepcopy(network, {id(each): each for each in (*network.parameters(), *network.buffers())})
    if network is autoencoder:
        return twin
    other = copy.copy(autoencoder)
    other.network = twin
    return other


def _put(network: nn.Module, name: str, layer: nn.Module) -> None:
    parent, _, last = name.rpartition(".")
    setattr(network.get_submodule(parent), last, layer)
