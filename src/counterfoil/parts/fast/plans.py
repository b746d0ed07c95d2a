"""Reads from a decoder's modules what it computes, so that it can be built again from faster layers.

Two families are read: the VQGAN authors' networks (`generators/vqgan`) and the decoders of diffusers' autoencoders. A decoder
with anything in it that is not known here has no plan, and runs as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import nn

from counterfoil.parts.generators.vqgan import network as vqgan


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
    try:
        if isinstance(network, vqgan.Vqgan):
            return _to_colours(_checked(_vqgan(network)))
        if hasattr(network, "decoder") and hasattr(network.decoder, "up_blocks") and hasattr(network, "post_quant_conv"):
            return _to_colours(_checked(_diffusers(network)))
    except Unknown:
        pass
    return None


def encoder_plan(network: Any) -> Plan | None:
    """The plan of a VQGAN's encoder, up to its last convolution; None for other networks, or where something is not known."""
    if not isinstance(network, vqgan.Vqgan):
        return None
    encoder = network.encoder
    stages: list[StagePlan] = []
    try:
        for level in encoder.down:
            assert isinstance(level, vqgan.Level)
            stages += _vqgan_level(level)
            if level.downsample is not None:
                halve = getattr(level.downsample, "conv", None)
                if type(level.downsample) is not vqgan.Halve or halve is None:
                    raise Unknown
                stages.append(HalvePlan(halve))
        stages += _vqgan_middle(encoder.mid)
        return _checked(Plan((encoder.conv_in,), tuple(stages), encoder.norm_out, encoder.conv_out))
    except Unknown:
        return None


def _vqgan(network: vqgan.Vqgan) -> Plan:
    decoder = network.decoder
    stages: list[StagePlan] = [*_vqgan_middle(decoder.mid)]
    for level in reversed(decoder.up):
        assert isinstance(level, vqgan.Level)
        stages += _vqgan_level(level)
        if level.upsample is not None:
            stages.append(DoublePlan(_conv(getattr(level.upsample, "conv", None))))
    return Plan((network.post_quant_conv, decoder.conv_in), tuple(stages), decoder.norm_out, decoder.conv_out)


def _vqgan_level(level: vqgan.Level) -> Iterator[StagePlan]:
    for index, block in enumerate(level.block):
        yield _vqgan_block(block)
        if len(level.attn):
            yield _vqgan_attention(level.attn[index])


def _vqgan_middle(middle: vqgan.Middle) -> Iterator[StagePlan]:
    yield _vqgan_block(middle.block_1)
    yield _vqgan_attention(middle.attn_1)
    yield _vqgan_block(middle.block_2)


def _vqgan_block(block: nn.Module) -> ResidualPlan:
    if type(block) is not vqgan.Residual:
        raise Unknown
    return ResidualPlan(block.norm1, block.conv1, block.norm2, block.conv2, block.nin_shortcut)


def _vqgan_attention(block: nn.Module) -> AttentionPlan:
    if type(block) is not vqgan.Attention:
        raise Unknown
    return AttentionPlan(block.norm, (block.q, block.k, block.v), block.proj_out)


def _diffusers(network: Any) -> Plan:
    decoder = network.decoder
    first = () if network.post_quant_conv is None else (_conv(network.post_quant_conv, side=1),)
    middle = decoder.mid_block
    stages: list[StagePlan] = [_diffusers_block(middle.resnets[0])]
    for attention, block in zip(middle.attentions, middle.resnets[1:], strict=True):
        stages += [] if attention is None else [_diffusers_attention(attention)]
        stages.append(_diffusers_block(block))
    for level in decoder.up_blocks:
        if type(level).__name__ != "UpDecoderBlock2D":
            raise Unknown
        stages += [_diffusers_block(block) for block in level.resnets]
        stages += [_diffusers_double(each) for each in level.upsamplers or ()]
    if type(decoder.conv_act) is not nn.SiLU or type(decoder.conv_norm_out) is not nn.GroupNorm:
        raise Unknown
    return Plan((*first, decoder.conv_in), tuple(stages), decoder.conv_norm_out, decoder.conv_out)


def _diffusers_block(block: Any) -> ResidualPlan:
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


def _diffusers_attention(block: Any) -> AttentionPlan:
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


def _diffusers_double(block: Any) -> DoublePlan:
    if type(block).__name__ != "Upsample2D" or block.use_conv_transpose or block.norm is not None or not block.interpolate:
        raise Unknown
    return DoublePlan(_conv(getattr(block, "conv", None)))


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
