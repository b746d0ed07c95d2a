"""The first convolution of a network that looks at images, with more channels and no stride.

Three channels leave tensor cores nearly idle, in the gradient of an image most of all. A convolution of stride s sees the same
if each s × s pixels are laid side by side as channels first, and its weights likewise. One whose stride is its side, like that of
a vision transformer, becomes a product of matrices.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from counterfoil.parts.weights import modules_of

COLOURS = 4  # at most, in what is taken for an image
EVEN = 8  # channels that tensor cores want to have a multiple of


class Stems:
    """First convolutions of parts' networks, where they are plain and not trained: while entered, they run so under autocast."""

    def __init__(self, parts: Iterable[object], kind: torch.dtype) -> None:
        """`kind`: what autocast computes in."""
        modules = (module for part in parts for network in modules_of(part) for module in network.modules())
        first = {id(module): module for module in modules if isinstance(module, nn.Conv2d) and _is_first(module)}
        self.convolutions = [Stem(module, kind) for module in first.values()]

    def __enter__(self) -> None:
        for each in self.convolutions:
            each.module.forward = each  # type: ignore[method-assign, assignment]

    def __exit__(self, *_: object) -> None:
        for each in self.convolutions:
            del each.module.forward


def _is_first(module: nn.Conv2d) -> bool:
    return (
        type(module) is nn.Conv2d
        and module.in_channels <= COLOURS
        and module.groups == 1
        and module.stride[0] == module.stride[1] > 1
        and module.dilation == (1, 1)
        and not isinstance(module.padding, str)
        and module.padding_mode == "zeros"
        and not module.training
        and "forward" not in vars(module)  # another part's
    )


class Stem:
    """Stands in for the `forward` of a convolution with a stride."""

    def __init__(self, module: nn.Conv2d, kind: torch.dtype) -> None:
        self.own, self.module, self.kind = module.forward, module, kind
        self.stride = stride = module.stride[0]
        assert not isinstance(module.padding, str)
        (tall, wide), (above, left) = module.kernel_size, module.padding
        self.tall, self.wide = Side(tall, stride, above), Side(wide, stride, left)
        self.weight = self._weight()

    def __call__(self, x: Tensor) -> Tensor:
        device = x.device.type
        if x.dim() != 4 or not torch.is_autocast_enabled(device) or torch.get_autocast_dtype(device) != self.kind:
            return self.own(x)
        height, width = x.shape[2:]
        even = F.pad(x.to(self.kind), (0, -width % self.stride, 0, -height % self.stride))
        apart = F.pixel_unshuffle(even, self.stride)  # (N, C s², h, w)
        idle = self.weight.shape[1] - apart.shape[1]
        apart = F.pad(apart, (*self.wide.padding(width), *self.tall.padding(height), 0, idle))
        return F.conv2d(apart.contiguous(memory_format=torch.channels_last), self.weight, self.module.bias)

    @torch.no_grad()
    def _weight(self) -> Tensor:
        """The convolution's weights for pixels laid side by side.  # (O, C, k, l) → (O, ≥ C s², K, L)"""
        weight = F.pad(self.module.weight, (*self.wide.around, *self.tall.around))  # (O, C, K s, L s)
        blocks = weight.unflatten(3, (-1, self.stride)).unflatten(2, (-1, self.stride))  # (O, C, K, s, L, s)
        weight = blocks.permute(0, 1, 3, 5, 2, 4).flatten(1, 3)
        weight = F.pad(weight, (0, 0, 0, 0, 0, -weight.shape[1] % EVEN))
        return weight.to(self.kind).contiguous(memory_format=torch.channels_last)


class Side:
    """One side of the convolution: output i sees the pixels s · i − p … s · i − p + k − 1."""

    def __init__(self, kernel: int, stride: int, padding: int) -> None:
        self.kernel, self.stride, self.pad = kernel, stride, padding
        self.before = -(-padding // stride)  # blocks of s pixels that begin before the image
        missing = self.before * stride - padding
        self.blocks = -(-(missing + kernel) // stride)  # that an output sees
        self.around = (missing, self.blocks * stride - missing - kernel)  # weights of zero

    def padding(self, length: int) -> tuple[int, int]:
        """Blocks to be added before and after those of an image; fewer than none are taken off."""
        outputs = (length + 2 * self.pad - self.kernel) // self.stride + 1
        return self.before, outputs + self.blocks - 1 - self.before - -(-length // self.stride)
