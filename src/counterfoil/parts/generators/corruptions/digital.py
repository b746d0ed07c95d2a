"""What storage does to pictures: pixelation and JPEG. Neither is differentiable: pictures at whole levels are blended."""

from __future__ import annotations

import io

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from counterfoil.parts.generators.corruptions import levels
from counterfoil.parts.generators.straight import straight_through

PIXELATE_SHARE = (1.0, 0.6, 0.5, 0.4, 0.3, 0.25)  # of the side that is left
JPEG_QUALITY = (100, 25, 18, 15, 10, 7)


def pixelate(images: Tensor, severity: Tensor, seeds: Tensor) -> Tensor:
    """Fewer, larger pixels, down to a quarter of the side."""
    height, width = images.shape[-2:]

    def coarsen(image: Tensor, level: int, row: int) -> Tensor:
        share = PIXELATE_SHARE[level]
        small = F.interpolate(image, size=(max(round(height * share), 1), max(round(width * share), 1)), mode="area")
        return F.interpolate(small, size=(height, width), mode="nearest-exact")

    return levels.blend(images, severity, coarsen)


def jpeg(images: Tensor, severity: Tensor, seeds: Tensor) -> Tensor:
    """Compressed by a real JPEG encoder, down to quality 7; gradients pass to the picture as if it had not been."""

    def compress(image: Tensor, level: int, row: int) -> Tensor:
        return straight_through(_through_file(image.detach(), JPEG_QUALITY[level]), image)

    return levels.blend(images, severity, compress)


def _through_file(image: Tensor, quality: int) -> Tensor:
    values = (image[0].permute(1, 2, 0).clamp(0, 1) * 255).round().byte().cpu().numpy()
    file = io.BytesIO()
    Image.fromarray(values).save(file, format="JPEG", quality=quality)
    with Image.open(file) as stored:
        decoded = torch.from_numpy(np.array(stored))
    return decoded.permute(2, 0, 1)[None].to(image) / 255
