"""Layers of a decoder that work on a window of the picture as if the rest of it were there.

Each layer has two ways of working. While it records, it sees the whole picture, answers as ever, and notes what the window will
need of the rest. Afterwards it sees the window alone. A convolution's output depends on the rest at its very edge only, and by
a constant: what the pixels beyond the edge contributed. A normalisation depends on it through its means and variances.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from counterfoil.parts.generators.sparse.box import Box


@dataclass
class Surroundings:
    """What the layers of one decoder know of the rest of the picture."""

    box: Box
    grid: tuple[int, int]  # cells of the whole
    recording: bool = False
    notes: list[Tensor] = field(default_factory=list)  # in the order of the layers  # each (N, …)
    shapes: list[torch.Size] = field(default_factory=list)  # of one row of each

    def cut(self, rows: Tensor) -> Tensor:
        """The window's part of feature maps of the whole."""
        return self.box.cut(rows, grid=self.grid)

    def note(self, rows: Tensor) -> None:
        """Keep what a layer will need."""
        self.notes.append(rows)

    def flat(self, pictures: Tensor) -> Tensor:
        """All that was noted of some pictures, one row each; nothing, where no layer needs any of it.  # (N, L)"""
        self.shapes = [rows.shape[1:] for rows in self.notes]
        return torch.cat([pictures.new_zeros(len(pictures), 0).float(), *(rows.float().flatten(1) for rows in self.notes)], 1)

    def recall(self, flat: Tensor) -> None:
        """Notes that were taken before, perhaps of other pictures."""
        parts = flat.split([shape.numel() for shape in self.shapes], 1)
        self.notes = [part.view(len(flat), *shape) for part, shape in zip(parts, self.shapes, strict=True)]


class Cropped(nn.Module):
    """The layer from which on only the window is worked on."""

    def __init__(self, inner: nn.Module, around: Surroundings) -> None:
        super().__init__()
        self.inner, self.around = inner, around

    def forward(self, features: Tensor, *others: Any, **options: Any) -> Tensor:
        out: Tensor = self.inner(features if self.around.recording else self.around.cut(features), *others, **options)
        return out


class FramedConvolution(nn.Module):
    """A 3×3 convolution of a window, with what lies just outside contributing what it did when it was recorded."""

    def __init__(self, inner: nn.Conv2d, around: Surroundings, place: int) -> None:
        super().__init__()
        self.inner, self.around, self.place = inner, around, place

    def forward(self, features: Tensor) -> Tensor:
        out: Tensor = self.inner(features)
        if not self.around.recording:
            framed: Tensor = _Frame.apply(out, self.around.notes[self.place])
            return framed
        self.around.note(_edge(self.around.cut(out)) - self._alone(self.around.cut(features)))
        return out

    def _alone(self, window: Tensor) -> Tensor:
        """The edge of what comes of a window with nothing around it, from the two outermost pixels on each side."""
        upper, lower = self.inner(window[:, :, :2])[:, :, 0], self.inner(window[:, :, -2:])[:, :, -1]
        left, right = self.inner(window[..., :2])[:, :, 1:-1, 0], self.inner(window[..., -2:])[:, :, 1:-1, -1]
        return torch.cat([upper, lower, left, right], 2)


class FrozenNorm(nn.Module):
    """A group normalisation with the means and variances of the recorded picture: a scale and a shift for each channel."""

    def __init__(self, inner: nn.GroupNorm, around: Surroundings, place: int) -> None:
        super().__init__()
        self.inner, self.around, self.place = inner, around, place

    def forward(self, features: Tensor) -> Tensor:
        if not self.around.recording:
            scale, shift = self.around.notes[self.place][..., None, None].unbind(1)  # (N, C, 1, 1) each, float32
            return torch.addcmul(shift, features.float(), scale).to(features.dtype)
        count, channels, height, width = features.shape
        groups, weight, bias = self.inner.num_groups, self.inner.weight, self.inner.bias
        out, mean, steepness = torch.native_group_norm(
            features.float().contiguous(), weight, bias, count, channels, height * width, groups, self.inner.eps
        )  # the function under F.group_norm, which keeps what it found: (N, G) each
        scale, middle = (each.repeat_interleave(channels // groups, 1) for each in (steepness, mean))  # (N, C) each
        scale = scale if weight is None else scale * weight
        shift = -middle * scale if bias is None else bias - middle * scale
        self.around.note(torch.stack([scale, shift], 1))
        return out.to(features.dtype)


class _Frame(torch.autograd.Function):
    """Adds constants to the outermost pixels, in place, because only those few change; gradients pass as they are."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, edge: Tensor) -> Tensor:
        ctx.mark_dirty(features)
        for part, (rows, columns) in zip(_parts(edge, features.shape), _EDGES, strict=True):
            features[:, :, rows, columns] += part
        return features

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0], None


_ALL, _INNER = slice(None), slice(1, -1)
_EDGES: Sequence[tuple[Any, Any]] = ((0, _ALL), (-1, _ALL), (_INNER, 0), (_INNER, -1))


def _edge(features: Tensor) -> Tensor:
    """The outermost pixels: upper and lower row, then the rest of both columns.  # (N, C, h, w) → (N, C, 2h + 2w - 4)"""
    return torch.cat([features[:, :, rows, columns] for rows, columns in _EDGES], 2)


def _parts(edge: Tensor, shape: torch.Size) -> tuple[Tensor, ...]:
    height, width = shape[-2:]
    return torch.split(edge, [width, width, height - 2, height - 2], 2)


def replaceable(layer: nn.Module) -> bool:
    """Whether a layer looks beyond single pixels in a way that is known here."""
    return isinstance(layer, nn.GroupNorm) or (
        isinstance(layer, nn.Conv2d)
        and (layer.kernel_size, layer.stride, layer.padding, layer.dilation) == ((3, 3), (1, 1), (1, 1), (1, 1))
        and layer.padding_mode == "zeros"
    )


def replacement(layer: nn.Module, around: Surroundings, place: int) -> nn.Module:
    """The layer that does the same for a window."""
    if isinstance(layer, nn.GroupNorm):
        return FrozenNorm(layer, around, place)
    assert isinstance(layer, nn.Conv2d)
    return FramedConvolution(layer, around, place)
