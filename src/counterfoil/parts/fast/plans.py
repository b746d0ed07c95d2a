"""Plans of autoencoders of diffusers, read module by module, by which they are built again from faster layers.

A decoder or encoder with anything in it that is not known here has no plan, and runs as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn


@dataclass(frozen=True)
class ResidualPlan:
    """The modules of a residual block."""

    norm1: nn.GroupNorm
    conv1: nn.Conv2d
    norm2: nn.GroupNorm
    conv2: nn.Conv2d
    shortcut: nn.Conv2d | None


@dataclass(frozen=True)
class AttentionPlan:
    """The modules of attention with a single head; projections are linear layers or 1×1 convolutions."""

    norm: nn.GroupNorm
    inward: tuple[nn.Module, nn.Module, nn.Module]  # query, key, value
    outward: nn.Module


@dataclass(frozen=True)
class DoublePlan:
    """The convolution after every pixel was repeated four times."""

    conv: nn.Conv2d


@dataclass(frozen=True)
class HalvePlan:
    """The convolution of stride two, padded on the right and below."""

    conv: nn.Conv2d


StagePlan = ResidualPlan | AttentionPlan | DoublePlan | HalvePlan


@dataclass(frozen=True)
class Plan:
    """A decoder or encoder: some convolutions, stages, and a normalised last convolution."""

    first: tuple[nn.Conv2d, ...]
    stages: tuple[StagePlan, ...]
    norm: nn.GroupNorm
    last: nn.Conv2d


class Unknown(Exception):
    """A module of a kind that has no faster layer."""


def plan(network: Any) -> Plan | None:
    """The plan of a network's decoder, with the convolution of codes before it; None where something in it is not known."""
    if not (hasattr(network, "decoder") and hasattr(network.decoder, "up_blocks") and hasattr(network, "post_quant_conv")):
        return None
    try:
        return _to_colours(_checked(_decoder(network)))
    except Unknown:
        return None


def encoder_plan(network: Any) -> Plan | None:
    """The plan of a network's encoder, up to its last convolution; None where something in it is not known."""
    if not (hasattr(network, "encoder") and hasattr(network.encoder, "down_blocks")):
        return None
    if getattr(network, "quant_conv", None) is None:
        return None
    encoder = network.encoder
    stages: list[StagePlan] = []
    try:
        for level in encoder.down_blocks:
            stages += _level(level, "DownEncoderBlock2D")
            stages += [_halve(each) for each in level.downsamplers or ()]
        stages += _middle(encoder.mid_block)
        return _checked(_ended(encoder, (_conv(encoder.conv_in),), stages))
    except Unknown:
        return None


def _decoder(network: Any) -> Plan:
    decoder = network.decoder
    first = () if network.post_quant_conv is None else (_conv(network.post_quant_conv, side=1),)
    stages = _middle(decoder.mid_block)
    for level in decoder.up_blocks:
        stages += _level(level, "UpDecoderBlock2D")
        stages += [_double(each) for each in level.upsamplers or ()]
    return _ended(decoder, (*first, _conv(decoder.conv_in)), stages)


def _ended(coder: Any, first: tuple[nn.Conv2d, ...], stages: list[StagePlan]) -> Plan:
    if type(coder.conv_act) is not nn.SiLU or type(coder.conv_norm_out) is not nn.GroupNorm:
        raise Unknown
    return Plan(first, tuple(stages), coder.conv_norm_out, coder.conv_out)


def _middle(middle: Any) -> list[StagePlan]:
    stages: list[StagePlan] = [_residual(middle.resnets[0])]
    for attention, block in zip(middle.attentions, middle.resnets[1:], strict=True):
        stages += [] if attention is None else [_attention(attention)]
        stages.append(_residual(block))
    return stages


def _level(level: Any, kind: str) -> list[StagePlan]:
    """The blocks at one resolution, each followed by attention where there is any."""
    if type(level).__name__ == kind:
        return [_residual(block) for block in level.resnets]
    if type(level).__name__ != f"Attn{kind}":
        raise Unknown
    pairs = zip(level.resnets, level.attentions, strict=True)
    return [stage for block, attention in pairs for stage in (_residual(block), _attention(attention))]


def _residual(block: Any) -> ResidualPlan:
    plain = (
        type(block).__name__ == "ResnetBlock2D"
        and type(block.nonlinearity) is nn.SiLU
        and block.time_emb_proj is None
        and block.time_embedding_norm in ("default", "group")  # without an embedding both come to nothing
        and block.upsample is None
        and block.downsample is None
        and block.output_scale_factor == 1
    )
    if not plain:
        raise Unknown
    return ResidualPlan(block.norm1, block.conv1, block.norm2, block.conv2, block.conv_shortcut)


def _attention(block: Any) -> AttentionPlan:
    plain = (
        type(block).__name__ == "Attention"
        and block.heads == 1
        and type(block.group_norm) is nn.GroupNorm
        and block.spatial_norm is None
        and block.norm_q is None
        and block.norm_k is None
        and block.residual_connection
        and block.rescale_output_factor == 1
        and type(block.processor).__name__ in ("AttnProcessor", "AttnProcessor2_0")
    )
    if not plain:
        raise Unknown
    return AttentionPlan(block.group_norm, (block.to_q, block.to_k, block.to_v), block.to_out[0])


def _double(block: Any) -> DoublePlan:
    if type(block).__name__ != "Upsample2D" or block.use_conv_transpose or block.norm is not None or not block.interpolate:
        raise Unknown
    return DoublePlan(_conv(getattr(block, "conv", None)))


def _halve(block: Any) -> HalvePlan:
    conv = getattr(block, "conv", None)
    if type(block).__name__ != "Downsample2D" or block.norm is not None or block.padding != 0 or type(conv) is not nn.Conv2d:
        raise Unknown
    if (conv.kernel_size, conv.stride, conv.padding, conv.groups) != ((3, 3), (2, 2), (0, 0), 1) or conv.bias is None:
        raise Unknown
    return HalvePlan(conv)


def _conv(module: Any, *, side: int = 3) -> nn.Conv2d:
    """The module, if it is a plain convolution that keeps the size of its input."""
    plain = (
        type(module) is nn.Conv2d
        and module.kernel_size == (side, side)
        and module.padding == (side // 2, side // 2)
        and module.stride == module.dilation == (1, 1)
        and module.groups == 1
        and module.bias is not None
        and module.padding_mode == "zeros"
    )
    if not plain:
        raise Unknown
    found: nn.Conv2d = module
    return found


def _checked(found: Plan) -> Plan:
    for before, stage in zip((None, *found.stages), found.stages, strict=False):
        if isinstance(stage, AttentionPlan) and not isinstance(
            before, ResidualPlan | AttentionPlan
        ):  # attention would have to add a bias first
            raise Unknown
        if isinstance(stage, ResidualPlan):
            _conv(stage.conv1), _conv(stage.conv2)
            if stage.shortcut is not None:
                _conv(stage.shortcut, side=1)
    _conv(found.last)
    return found


def _to_colours(found: Plan) -> Plan:
    if found.last.out_channels != 3:
        raise Unknown
    return found
