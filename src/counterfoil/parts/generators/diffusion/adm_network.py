"""The U-Net of Improved DDPM and ADM (Nichol and Dhariwal, 2021; Dhariwal and Nichol, 2021), named as in their checkpoints."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from counterfoil.parts.generators.diffusion.flags import Flags


class AdmUNet(nn.Module):
    """Noisy pictures and times to guesses of the noise."""

    def __init__(self, flags: Flags, *, classes: int | None) -> None:
        super().__init__()
        self.width = flags.num_channels
        embedding = 4 * self.width
        widths = [int(multiple * self.width) for multiple in flags.multiples]
        self.time_embed = nn.Sequential(nn.Linear(self.width, embedding), nn.SiLU(), nn.Linear(embedding, embedding))
        self.label_emb = None if classes is None else nn.Embedding(classes, embedding)

        def residual(inputs: int, outputs: int, *, resample: str = "") -> Residual:
            return Residual(inputs, outputs, embedding=embedding, modulates=flags.use_scale_shift_norm, resample=resample)

        def blocks(inputs: int, outputs: int, *, factor: int, up: bool) -> list[nn.Module]:
            attention = Attention(outputs, heads=flags.heads(outputs, up=up), interleaved=not flags.use_new_attention_order)
            return [residual(inputs, outputs), *([attention] if factor in flags.attended else [])]

        width, factor = widths[0], 1
        self.input_blocks = nn.ModuleList([Steps(nn.Conv2d(3, width, 3, padding=1))])
        kept = [width]  # widths of what the way down hands over to the way up
        for level, wider in enumerate(widths):
            for _ in range(flags.num_res_blocks):
                self.input_blocks.append(Steps(*blocks(width, wider, factor=factor, up=False)))
                width = wider
                kept.append(width)
            if level < len(widths) - 1:
                halve = residual(width, width, resample="down") if flags.resblock_updown else Halve(width)
                self.input_blocks.append(Steps(halve))
                kept.append(width)
                factor *= 2

        middle = Attention(width, heads=flags.heads(width), interleaved=not flags.use_new_attention_order)
        self.middle_block = Steps(residual(width, width), middle, residual(width, width))

        self.output_blocks = nn.ModuleList()
        for level, narrower in reversed(list(enumerate(widths))):
            for index in range(flags.num_res_blocks + 1):
                layers = blocks(width + kept.pop(), narrower, factor=factor, up=True)
                width = narrower
                if level > 0 and index == flags.num_res_blocks:
                    layers.append(residual(width, width, resample="up") if flags.resblock_updown else Double(width))
                    factor //= 2
                self.output_blocks.append(Steps(*layers))
        outputs = 6 if flags.learn_sigma else 3  # with learned variances, three channels of them follow
        self.out = nn.Sequential(_norm(width), nn.SiLU(), nn.Conv2d(width, outputs, 3, padding=1))

    def forward(self, noisy: Tensor, times: Tensor, classes: Tensor | None = None) -> Tensor:
        """The network's answer.  # (N, 3, H, W), (N,) → (N, 3 or 6, H, W)"""
        condition = self.time_embed(_waves(times, self.width).to(noisy.dtype))
        if self.label_emb is not None:
            condition = condition + self.label_emb(classes)
        features, kept = noisy, []
        for block in self.input_blocks:
            features = block(features, condition)
            kept.append(features)
        features = self.middle_block(features, condition)
        for block in self.output_blocks:
            features = block(torch.cat([features, kept.pop()], dim=1), condition)
        answer: Tensor = self.out(features)
        return answer


class Steps(nn.Sequential):
    """Layers in a row, of which residual blocks are told the time."""

    def forward(self, features: Tensor, condition: Tensor) -> Tensor:  # type: ignore[override]
        for layer in self:
            features = layer(features, condition) if isinstance(layer, Residual) else layer(features)
        return features


class Residual(nn.Module):
    """Two convolutions beside a shortcut, with the time and class mixed in between; may also halve or double the side."""

    def __init__(self, inputs: int, outputs: int, *, embedding: int, modulates: bool, resample: str = "") -> None:
        super().__init__()
        self.modulates, self.resample = modulates, resample
        self.in_layers = nn.Sequential(_norm(inputs), nn.SiLU(), nn.Conv2d(inputs, outputs, 3, padding=1))
        self.emb_layers = nn.Sequential(nn.SiLU(), nn.Linear(embedding, 2 * outputs if modulates else outputs))
        # The third place is that of a dropout layer, which does nothing outside of training.
        last = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.out_layers = nn.Sequential(_norm(outputs), nn.SiLU(), nn.Identity(), last)
        self.skip_connection = nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1)

    def forward(self, features: Tensor, condition: Tensor) -> Tensor:
        norm, activate, first = self.in_layers
        change = first(self._resampled(activate(norm(features))))
        mixed_in = self.emb_layers(condition)[:, :, None, None]
        if self.modulates:
            scale, shift = mixed_in.chunk(2, dim=1)
            norm, *rest = self.out_layers
            change = norm(change) * (1 + scale) + shift
        else:
            change, rest = change + mixed_in, list(self.out_layers)
        for layer in rest:
            change = layer(change)
        out: Tensor = self.skip_connection(self._resampled(features)) + change
        return out

    def _resampled(self, features: Tensor) -> Tensor:
        if self.resample == "up":
            return F.interpolate(features, scale_factor=2, mode="nearest")
        return F.avg_pool2d(features, 2) if self.resample == "down" else features


class Attention(nn.Module):
    """Every place looks at every other one. `interleaved`: query, key and value lie side by side head by head."""

    def __init__(self, width: int, *, heads: int, interleaved: bool) -> None:
        super().__init__()
        self.heads, self.interleaved = heads, interleaved
        self.norm = _norm(width)
        self.qkv = nn.Conv1d(width, 3 * width, 1)
        self.proj_out = nn.Conv1d(width, width, 1)

    def forward(self, features: Tensor) -> Tensor:
        flat = features.flatten(2)  # (N, C, h·w)
        joint = self.qkv(self.norm(flat))
        count, _, places = joint.shape
        if self.interleaved:
            query, key, value = joint.reshape(count, self.heads, 3, -1, places).unbind(2)
        else:
            query, key, value = joint.reshape(count, 3, self.heads, -1, places).unbind(1)
        query, key, value = (part.transpose(2, 3) for part in (query, key, value))  # (N, heads, h·w, C / heads)
        seen = F.scaled_dot_product_attention(query, key, value)
        out: Tensor = flat + self.proj_out(seen.transpose(2, 3).reshape(flat.shape))
        return out.reshape(features.shape)


class Halve(nn.Module):
    """Half the side, by a strided convolution."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.op = nn.Conv2d(width, width, 3, stride=2, padding=1)

    def forward(self, features: Tensor) -> Tensor:
        out: Tensor = self.op(features)
        return out


class Double(nn.Module):
    """Twice the side: every pixel four times, then a convolution."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, features: Tensor) -> Tensor:
        out: Tensor = self.conv(F.interpolate(features, scale_factor=2, mode="nearest"))
        return out


def _norm(width: int) -> nn.GroupNorm:
    return nn.GroupNorm(32, width)


def _waves(times: Tensor, width: int) -> Tensor:
    """Cosines and sines of times at falling frequencies.  # (N,) → (N, width)"""
    half = width // 2
    frequencies = torch.exp(-math.log(10000) * torch.arange(half, dtype=torch.float32, device=times.device) / half)
    angles = times[:, None].float() * frequencies
    return torch.cat([angles.cos(), angles.sin()], dim=1)
