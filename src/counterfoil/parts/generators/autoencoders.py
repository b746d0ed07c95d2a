"""Autoencoders in diffusers format as latent generators: VQModel, AutoencoderKL and AutoencoderTiny.

`encode`, `quantise` and `decode` are separate, so that each can be studied, replaced or sped up alone. Images in
[0, 1] are mapped to the [-1, 1] these networks were trained on and back.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from counterfoil.core.errors import BadPart, BadSpec
from counterfoil.parts import pretrained, weights
from counterfoil.parts.fast.coders import FastDecoder, FastEncoder, build_decoder, build_encoder
from counterfoil.parts.fast.codes import nearest_codes
from counterfoil.parts.fast.window import Box, NoWindow, WindowDecoder
from counterfoil.parts.generators.latent import LatentGenerator, Space, check_side, must_divide

PLACEHOLDER = 32  # the sample_size diffusers writes into a config by default


class DiffusersAutoencoder(pretrained.Network):
    """Range and sizes, which the three networks have in common."""

    blocks: ClassVar[str] = "block_out_channels"
    """The entry of the configuration with one item per resolution."""

    def __init__(self, network: Any, *, sha256: str = "") -> None:
        super().__init__(network, sha256=sha256)
        self.factor = 2 ** (len(network.config[self.blocks]) - 1)  # pixels per side for one latent cell
        self.decoder: FastDecoder | None = None  # of fused layers
        self.encoder: FastEncoder | None = None

    def encode(self, images: Tensor) -> Tensor:
        """Latents of images, before any quantisation.  # (N, 3, H, W) in [0, 1] → (N, C, H / factor, W / factor)"""
        height, width = images.shape[-2:]
        if height % self.factor or width % self.factor:
            raise BadSpec(f"images of {width} by {height} pixels: {must_divide(self.factor, width)}")
        samples = images * 2 - 1
        return self.latents(samples) if self.encoder is None else self.read(self.encoder(samples))

    def decode(self, latents: Tensor) -> Tensor:
        """Images of latents (of codes, where the network quantises); they may overshoot [0, 1]."""
        samples = self.samples(latents) if self.decoder is None else self.decoder(latents)
        return (samples + 1) / 2

    def accelerate(self, dtype: torch.dtype) -> Self | None:
        """The same with a decoder of fused layers that computes in `dtype`, and an encoder of such layers in float32.

        None where the decoder has a layer that is not known.
        """
        decoder = build_decoder(self.network, dtype)
        if decoder is None:
            return None
        changed = copy(self)
        changed.decoder, changed.encoder = decoder, build_encoder(self.network)
        return changed

    def window(self, box: Box, shape: Sequence[int], dtype: torch.dtype) -> WindowDecoder:
        """A decoder of a window of images of codes of this shape. Raises NoWindow where there is none."""
        decoder = build_decoder(self.network, dtype)
        if decoder is None:
            raise NoWindow("its decoder has layers that are not known")
        return WindowDecoder(decoder, box, shape)

    def read(self, encoded: Tensor) -> Tensor:
        """The latents in what the network's encoder gives."""
        return encoded

    def latents(self, samples: Tensor) -> Tensor:
        """The network's encoding of images in [-1, 1]."""
        raise NotImplementedError

    def samples(self, latents: Tensor) -> Tensor:
        """The network's images of latents, in [-1, 1]."""
        decoded: Tensor = self.network.decode(latents).sample
        return decoded


class GaussianAutoencoder(DiffusersAutoencoder):
    """AutoencoderKL. The latent is the mode of the posterior, so that a reconstruction is the same every time."""

    def latents(self, samples: Tensor) -> Tensor:
        mode: Tensor = self.network.encode(samples).latent_dist.mode()
        return mode

    def read(self, encoded: Tensor) -> Tensor:
        return encoded.chunk(2, dim=1)[0]  # the mean, and what is left is the variance


class TinyAutoencoder(DiffusersAutoencoder):
    """AutoencoderTiny, the distilled networks of the TAESD family."""

    blocks = "encoder_block_out_channels"

    def latents(self, samples: Tensor) -> Tensor:
        latents: Tensor = self.network.encode(samples).latents
        return latents


class VectorAutoencoder(DiffusersAutoencoder):
    """VQModel. `decode` takes codes and never quantises; `quantise` finds them."""

    def latents(self, samples: Tensor) -> Tensor:
        latents: Tensor = self.network.encode(samples).latents
        return latents

    def quantise(self, latents: Tensor) -> Tensor:
        """The nearest code of the codebook in every cell.  # (N, C, h, w) → (N, C, h, w)"""
        book: Tensor = self.network.quantize.embedding.weight
        with torch.no_grad(), torch.autocast(latents.device.type, enabled=False):
            cells = latents.float().permute(0, 2, 3, 1)  # (N, h, w, C)
            numbers = nearest_codes(cells.reshape(-1, cells.shape[-1]), book.float())
            return F.embedding(numbers, book.float()).view(cells.shape).permute(0, 3, 1, 2).contiguous()

    def samples(self, latents: Tensor) -> Tensor:
        # Not `network.decode`: with `lookup_from_codebook` set it takes an unquantised input for indices.
        spatial = self.network.config.norm_type == "spatial"
        decoded: Tensor = self.network.decoder(self.network.post_quant_conv(latents), latents if spatial else None)
        return decoded


NETWORKS: dict[str, type[DiffusersAutoencoder]] = {
    "VQModel": VectorAutoencoder,
    "AutoencoderKL": GaussianAutoencoder,
    "AutoencoderTiny": TinyAutoencoder,
}


def autoencoder(
    rest: str,
    *,
    space: Space = "before",
    size: int | None = None,
    sha256: str | None = None,
    revision: str | None = None,
    subfolder: str | None = None,
) -> LatentGenerator:
    """Latent ascent over a diffusers autoencoder (VQModel, AutoencoderKL, AutoencoderTiny), from a folder or the hub.

    `size` is the side of the images, by default the network's own; `sha256` is checked against the weight file;
    `revision` and `subfolder` (as in `vae`) say where on the hub, or in the folder, the network is.
    """
    inside = f"{subfolder}/" if subfolder else ""
    files = [inside + name for name in (pretrained.CONFIG, pretrained.DIFFUSERS_WEIGHTS)]
    found = pretrained.open_checkpoint(weights.hub_folder(rest, files, revision=revision) / inside)
    kind = NETWORKS.get(str(found.config.get("_class_name")))
    if kind is None:
        raise BadPart(
            f"{found.folder}: config.json names the class {found.config.get('_class_name')!r}; "
            f"autoencoders are {', '.join(NETWORKS)}"
        )
    channels = found.config.get("in_channels", 3), found.config.get("out_channels", 3)
    if channels != (3, 3):
        raise BadPart(f"{found.folder}: takes {channels[0]} channels and gives {channels[1]}; images have three")
    loaded = kind(found.load(sha256), sha256=weights.file_sha256(found.weights))
    return LatentGenerator(loaded, space=space, size=_side(size, found.config.get("sample_size"), factor=loaded.factor))


def _side(asked: int | None, sample_size: object, *, factor: int) -> int | None:
    """The side of the images: what was asked for, else the network's own, else None for any."""
    if asked is not None:
        return check_side(asked, factor=factor)
    if isinstance(sample_size, (list, tuple)) and len(set(sample_size)) == 1:
        sample_size = sample_size[0]
    if not isinstance(sample_size, int) or sample_size % factor:
        return None
    if sample_size == PLACEHOLDER and sample_size < 8 * factor:  # an image of less than eight cells per side, which is not meant
        return None
    return sample_size
