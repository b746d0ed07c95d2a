"""The layers of a VQGAN, named as in the authors' checkpoints so that their weights load by name."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from counterfoil.parts.generators.vqgan.codebooks import GumbelCodes, NearestCodes
from counterfoil.parts.generators.vqgan.configuration import GROUPS, Architecture


class Vqgan(nn.Module):
    """Encoder, codebook and decoder."""

    def __init__(self, shape: Architecture) -> None:
        super().__init__()
        self.encoder = Encoder(shape)
        self.quant_conv = nn.Conv2d(shape.z_channels, shape.embed_dim, 1)
        self.quantize = (GumbelCodes if shape.gumbel else NearestCodes)(shape.n_embed, shape.embed_dim)
        self.post_quant_conv = nn.Conv2d(shape.embed_dim, shape.z_channels, 1)
        self.decoder = Decoder(shape)

    def encode(self, samples: Tensor) -> Tensor:
        """Latents before quantisation.  # (N, 3, H, W) in [-1, 1] → (N, D, h, w)"""
        latents: Tensor = self.quant_conv(self.encoder(samples))
        return latents

    def decode(self, codes: Tensor) -> Tensor:
        """Pictures of codes.  # (N, D, h, w) → (N, 3, H, W), about [-1, 1]"""
        samples: Tensor = self.decoder(self.post_quant_conv(codes))
        return samples


class Encoder(nn.Module):
    """Pictures to latents, halving the side between levels."""

    def __init__(self, shape: Architecture) -> None:
        super().__init__()
        self.conv_in = nn.Conv2d(3, shape.ch, 3, padding=1)
        width, side, last = shape.ch, shape.resolution, len(shape.widths) - 1
        self.down = nn.ModuleList()
        for number, wider in enumerate(shape.widths):
            level = Level(width, wider, blocks=shape.num_res_blocks, attends=side in shape.attn_resolutions)
            if number < last:
                level.downsample = Halve(wider, learned=shape.resamp_with_conv)
                side //= 2
            self.down.append(level)
            width = wider
        self.mid = Middle(width)
        self.norm_out = _norm(width)
        self.conv_out = nn.Conv2d(width, shape.z_channels, 3, padding=1)

    def forward(self, samples: Tensor) -> Tensor:
        features = self.conv_in(samples)
        for level in self.down:
            features = level(features)
        out: Tensor = self.conv_out(F.silu(self.norm_out(self.mid(features))))
        return out


class Decoder(nn.Module):
    """Latents to pictures, doubling the side between levels. Levels are numbered as in the encoder and run backwards."""

    def __init__(self, shape: Architecture) -> None:
        super().__init__()
        width, side = shape.widths[-1], shape.resolution // shape.factor
        self.conv_in = nn.Conv2d(shape.z_channels, width, 3, padding=1)
        self.mid = Middle(width)
        levels: list[Level] = []
        for number, narrower in reversed(list(enumerate(shape.widths))):
            level = Level(width, narrower, blocks=shape.num_res_blocks + 1, attends=side in shape.attn_resolutions)
            if number > 0:
                level.upsample = Double(narrower, learned=shape.resamp_with_conv)
                side *= 2
            levels.insert(0, level)
            width = narrower
        self.up = nn.ModuleList(levels)
        self.norm_out = _norm(width)
        self.conv_out = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, latents: Tensor) -> Tensor:
        features = self.mid(self.conv_in(latents))
        for level in reversed(self.up):
            features = level(features)
        out: Tensor = self.conv_out(F.silu(self.norm_out(features)))
        return out


class Level(nn.Module):
    """The blocks at one resolution, each followed by attention where there is any, then the way to the next one."""

    def __init__(self, inputs: int, outputs: int, *, blocks: int, attends: bool) -> None:
        super().__init__()
        self.block = nn.ModuleList(Residual(outputs if index else inputs, outputs) for index in range(blocks))
        self.attn = nn.ModuleList(Attention(outputs) for _ in range(blocks if attends else 0))
        self.downsample: nn.Module | None = None
        self.upsample: nn.Module | None = None

    def forward(self, features: Tensor) -> Tensor:
        for index, block in enumerate(self.block):
            features = block(features)
            if len(self.attn):
                features = self.attn[index](features)
        for resample in (self.downsample, self.upsample):
            features = features if resample is None else resample(features)
        return features


class Middle(nn.Module):
    """Two blocks around attention at the coarsest resolution."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.block_1, self.attn_1, self.block_2 = Residual(width, width), Attention(width), Residual(width, width)

    def forward(self, features: Tensor) -> Tensor:
        out: Tensor = self.block_2(self.attn_1(self.block_1(features)))
        return out


class Residual(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = _norm(inputs), nn.Conv2d(inputs, outputs, 3, padding=1)
        self.norm2, self.conv2 = _norm(outputs), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.nin_shortcut = None if inputs == outputs else nn.Conv2d(inputs, outputs, 1)

    def forward(self, features: Tensor) -> Tensor:
        change = self.conv1(F.silu(self.norm1(features)))
        change = self.conv2(F.silu(self.norm2(change)))
        kept = features if self.nin_shortcut is None else self.nin_shortcut(features)
        out: Tensor = kept + change
        return out


class Attention(nn.Module):
    """Every place looks at every other one, with a single head."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = _norm(width)
        self.q, self.k, self.v, self.proj_out = (nn.Conv2d(width, width, 1) for _ in range(4))

    def forward(self, features: Tensor) -> Tensor:
        normed = self.norm(features)
        query, key, value = (part(normed).flatten(2).transpose(1, 2)[:, None] for part in (self.q, self.k, self.v))
        seen = F.scaled_dot_product_attention(query, key, value)  # (N, 1, h·w, C)
        out: Tensor = features + self.proj_out(seen[:, 0].transpose(1, 2).reshape(features.shape))
        return out


class Halve(nn.Module):
    """Half the side: by a strided convolution padded on the right and below, or by averaging."""

    def __init__(self, width: int, *, learned: bool) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, stride=2) if learned else None

    def forward(self, features: Tensor) -> Tensor:
        if self.conv is None:
            return F.avg_pool2d(features, 2)
        out: Tensor = self.conv(F.pad(features, (0, 1, 0, 1)))
        return out


class Double(nn.Module):
    """Twice the side: every pixel four times, then a convolution if it is learned."""

    def __init__(self, width: int, *, learned: bool) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1) if learned else None

    def forward(self, features: Tensor) -> Tensor:
        larger = F.interpolate(features, scale_factor=2.0, mode="nearest")
        return larger if self.conv is None else self.conv(larger)


def _norm(width: int) -> nn.GroupNorm:
    return nn.GroupNorm(GROUPS, width, eps=1e-6)
