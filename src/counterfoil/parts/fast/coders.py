"""Decoders and encoders of diffusers' autoencoders, read module by module and built again from fast layers with their weights.

One with anything in it that is not known here is not built, and runs as it is. A decoder computes in the dtype that is asked
for. An encoder computes in float32 throughout, as the codes a climb starts with depend on the last digits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from counterfoil.parts.fast import layers


@dataclass(frozen=True)
class FastDecoder:
    """Images of codes, in about [-1, 1], differentiable in the codes; computes in `dtype`, takes and gives float32."""

    first: tuple[tuple[Tensor, Tensor], ...]  # weights and biases of convolutions at the coarsest side, left to the library
    stages: tuple[layers.Stage, ...]
    to_rgb: layers.ToRgb
    dtype: torch.dtype

    def __call__(self, codes: Tensor) -> Tensor:
        with torch.autocast(codes.device.type, enabled=False):
            return self.to_rgb(*layers.run(self.stages, self.begin(codes)), layers.WHOLE)

    def begin(self, codes: Tensor) -> Tensor:
        """The codes through the first convolutions."""
        x = codes.to(self.dtype, memory_format=torch.channels_last)
        for weight, bias in self.first:
            x = F.conv2d(x, weight, bias, padding=weight.shape[2] // 2)
        return x


@dataclass(frozen=True)
class FastEncoder:
    """Latents of images in [-1, 1], before quantisation."""

    first: Tensor  # (C, 3, 3, 3)
    stages: tuple[layers.Stage, ...]
    norm: layers.Norm
    last: tuple[Tensor, Tensor]  # weights and bias
    to_latents: tuple[Tensor, Tensor]  # of the 1×1 convolution after it

    def __call__(self, samples: Tensor) -> Tensor:
        with torch.autocast(samples.device.type, enabled=False):
            x = F.conv2d(samples.float().contiguous(memory_format=torch.channels_last), self.first, padding=1)
            x, partials = layers.run(self.stages, x)
            x = F.conv2d(layers.normalise(x, self.norm, partials, silu=True), *self.last, padding=1)
            return F.conv2d(x, *self.to_latents).contiguous()


class _Unknown(Exception):
    """A module that has no faster layer."""


def build_decoder(network: Any, dtype: torch.dtype) -> FastDecoder | None:
    """The fast decoder of a network; None where it has layers that are not known."""
    if not (hasattr(getattr(network, "decoder", None), "up_blocks") and hasattr(network, "post_quant_conv")):
        return None
    decoder = network.decoder
    try:
        first = [] if network.post_quant_conv is None else [_plain(network.post_quant_conv, side=1)]
        first.append(_plain(decoder.conv_in))
        builder = _Builder(dtype, torch.zeros(first[-1].out_channels, device=first[-1].weight.device))
        stages = builder.middle(decoder.mid_block)
        for level in decoder.up_blocks:
            stages += builder.level(level, "UpDecoderBlock2D")
            stages += [builder.upsample(each) for each in level.upsamplers or ()]
        norm, last = builder.end(decoder)
    except _Unknown:
        return None
    if last.out_channels != 3:
        return None
    convolutions = tuple((builder.weights(each.weight), builder.weights(_bias(each))) for each in first)
    return FastDecoder(convolutions, tuple(stages), layers.ToRgb(norm, builder.weights(last.weight), _bias(last)), dtype)


def build_encoder(network: Any) -> FastEncoder | None:
    """The fast encoder of a network; None where it has layers that are not known."""
    if not hasattr(getattr(network, "encoder", None), "down_blocks") or getattr(network, "quant_conv", None) is None:
        return None
    encoder, stages = network.encoder, []
    try:
        first = _plain(encoder.conv_in)
        builder = _Builder(torch.float32, _bias(first))  # the first convolution's bias is added where it is read
        for level in encoder.down_blocks:
            stages += builder.level(level, "DownEncoderBlock2D")
            stages += [builder.downsample(each) for each in level.downsamplers or ()]
        stages += builder.middle(encoder.mid_block)
        norm, out = builder.end(encoder)
    except _Unknown:
        return None
    last, to_latents = ((builder.weights(each.weight), _bias(each)) for each in (out, network.quant_conv))
    return FastEncoder(builder.weights(first.weight), tuple(stages), norm, last, to_latents)


class _Builder:
    """Turns modules into layers that compute in `dtype`, carrying along the bias that is still to be added (`pending`)."""

    def __init__(self, dtype: torch.dtype, pending: Tensor) -> None:
        self.dtype, self.pending = dtype, pending

    def middle(self, middle: Any) -> list[layers.Stage]:
        """The blocks at the coarsest side."""
        stages: list[layers.Stage] = [self.residual(middle.resnets[0])]
        for attention, block in zip(middle.attentions, middle.resnets[1:], strict=True):
            stages += [] if attention is None else [self.attention(attention)]
            stages.append(self.residual(block))
        return stages

    def level(self, level: Any, name: str) -> list[layers.Stage]:
        """The blocks at one resolution, each followed by attention where there is any."""
        if type(level).__name__ == name:
            return [self.residual(block) for block in level.resnets]
        _check(type(level).__name__ == f"Attn{name}")
        pairs = zip(level.resnets, level.attentions, strict=True)
        return [stage for block, attention in pairs for stage in (self.residual(block), self.attention(attention))]

    def residual(self, block: Any) -> layers.Residual:
        """A residual block."""
        _check(
            type(block).__name__ == "ResnetBlock2D"
            and type(block.nonlinearity) is nn.SiLU
            and block.time_emb_proj is None
            and block.time_embedding_norm in ("default", "group")  # without an embedding both come to nothing
            and block.upsample is None
            and block.downsample is None
            and block.output_scale_factor == 1
        )
        conv1, conv2 = (_plain(each) for each in (block.conv1, block.conv2))
        norm1, norm2 = self._norm(block.norm1, self.pending), self._norm(block.norm2, _bias(conv1))
        shortcut, around = None, self.pending
        if block.conv_shortcut is not None:
            matrix = _matrix(_plain(block.conv_shortcut, side=1))
            shortcut, around = layers.Pointwise(self.weights(matrix)), matrix @ self.pending + _bias(block.conv_shortcut)
        added = around + _bias(conv2)
        self.pending = torch.zeros_like(added)
        convolutions = [layers.Conv(self.weights(each.weight)) for each in (conv1, conv2)]
        return layers.Residual(norm1, convolutions[0], norm2, convolutions[1], shortcut, added)

    def attention(self, block: Any) -> layers.Attention:
        """Attention; projections are linear layers or 1×1 convolutions."""
        _check(
            type(block).__name__ == "Attention"
            and block.heads == 1
            and block.spatial_norm is None
            and block.norm_q is None
            and block.norm_k is None
            and block.residual_connection
            and block.rescale_output_factor == 1
            and type(block.processor).__name__ in ("AttnProcessor", "AttnProcessor2_0")
            and not bool(self.pending.any())  # it would have to be added first
        )
        inward, outward = (block.to_q, block.to_k, block.to_v), block.to_out[0]
        matrices = [_matrix(each) for each in inward]
        return layers.Attention(
            norm=self._norm(block.group_norm, self.pending),
            inward=self.weights(torch.cat(matrices)),
            inward_bias=self.weights(torch.cat([_bias(each) for each in inward])),
            outward=self.weights(_matrix(outward)),
            outward_bias=_bias(outward),
            scale=matrices[0].shape[0] ** -0.5,
        )

    def upsample(self, block: Any) -> layers.Upsample:
        """The convolution after every pixel was repeated four times."""
        _check(type(block).__name__ == "Upsample2D" and not block.use_conv_transpose and block.norm is None and block.interpolate)
        conv = _plain(getattr(block, "conv", None))
        self.pending = _bias(conv)
        weight = conv.weight.detach()
        return layers.Upsample(self.weights(layers.upsample_weight(weight.float())), weight)

    def downsample(self, block: Any) -> layers.Downsample:
        """The convolution of stride two, padded on the right and below."""
        _check(type(block).__name__ == "Downsample2D" and block.norm is None and block.padding == 0)
        conv = _plain(getattr(block, "conv", None), stride=2, padding=0)
        self.pending = _bias(conv)
        return layers.Downsample(self.weights(conv.weight))

    def end(self, coder: Any) -> tuple[layers.Norm, nn.Conv2d]:
        """The last normalisation and convolution."""
        _check(type(coder.conv_act) is nn.SiLU)
        return self._norm(coder.conv_norm_out, self.pending), _plain(coder.conv_out)

    def weights(self, tensor: Tensor) -> Tensor:
        """Weights as the layers want them."""
        layout = torch.channels_last if tensor.dim() == 4 else torch.contiguous_format
        return tensor.detach().to(self.dtype).contiguous(memory_format=layout)

    def _norm(self, module: Any, pending: Tensor) -> layers.Norm:
        _check(type(module) is nn.GroupNorm and module.affine)
        return norm_of(module, pending)


def norm_of(module: nn.GroupNorm, pending: Tensor | None = None) -> layers.Norm:
    """A normalisation of what comes in plus `pending`."""
    gain, bias = (each.detach().float().contiguous() for each in (module.weight, module.bias))
    return layers.Norm(gain, bias, torch.zeros_like(bias) if pending is None else pending, module.num_groups, module.eps)


def _check(known: bool) -> None:
    if not known:
        raise _Unknown


def _plain(module: Any, *, side: int = 3, stride: int = 1, padding: int | None = None) -> nn.Conv2d:
    """The module, if it is a plain convolution; by default one that keeps the size of its input."""
    around = side // 2 if padding is None else padding
    _check(
        type(module) is nn.Conv2d
        and module.kernel_size == (side, side)
        and module.padding == (around, around)
        and module.stride == (stride, stride)
        and module.dilation == (1, 1)
        and module.groups == 1
        and module.bias is not None
        and module.padding_mode == "zeros"
    )
    found: nn.Conv2d = module
    return found


def _matrix(module: nn.Module) -> Tensor:
    """The weights of a linear layer or a 1×1 convolution.  # → (O, I)"""
    weight = module.weight
    assert isinstance(weight, Tensor)
    return weight.detach().float().flatten(1)


def _bias(module: nn.Module) -> Tensor:
    """A layer's bias in float32, zeros where it has none."""
    if module.bias is None:
        return torch.zeros(len(_matrix(module)), device=_matrix(module).device)
    assert isinstance(module.bias, Tensor)
    return module.bias.detach().float().contiguous()
