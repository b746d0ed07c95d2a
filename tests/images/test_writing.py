"""Images are written without loss, known by their pixels, and held to the one convention."""

from __future__ import annotations

import hashlib
import io

import numpy as np
import pytest
import torch
from PIL import Image

from counterfoil.core.errors import BadImage
from counterfoil.parts import images

from .made import scene, tensor


def test_a_written_picture_reads_back_exactly() -> None:
    picture = tensor(scene(33, 21))
    assert torch.equal(images.read(images.png(picture)), picture)


def test_values_are_rounded_to_the_nearest_level() -> None:
    levels = torch.tensor([0.0, 0.4, 0.6, 1.4, 254.6, 255.0]) / 255
    assert images.to_uint8(levels.expand(3, 1, 6))[0, :, 0].tolist() == [0, 0, 1, 1, 255, 255]


def test_the_digest_is_that_of_the_decoded_pixels() -> None:
    picture = tensor(scene(33, 21))
    with Image.open(io.BytesIO(images.png(picture))) as decoded:
        assert images.digest(picture) == hashlib.sha256(np.asarray(decoded).tobytes()).hexdigest()


def test_the_digest_sees_one_level_in_one_pixel() -> None:
    picture = tensor(scene(33, 21))
    other = picture.clone()
    other[2, 20, 32] = (other[2, 20, 32] + 1 / 255) if other[2, 20, 32] < 0.5 else (other[2, 20, 32] - 1 / 255)
    assert images.digest(picture) != images.digest(other)
    assert images.digest(picture) == images.digest(picture + 1e-5)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (torch.zeros(3, 8, 8), "shape"),
        (torch.zeros(1, 1, 8, 8), "shape"),
        (torch.zeros(1, 3, 8, 8, dtype=torch.uint8), "divide 8-bit images by 255"),
        (torch.full((1, 3, 8, 8), 200.0), "divide 8-bit images by 255"),
        (torch.full((1, 3, 8, 8), -0.5), "undo normalisation"),
        (torch.full((1, 3, 8, 8), float("nan")), "must lie in"),
    ],
)
def test_what_breaks_the_convention_is_refused(batch: torch.Tensor, message: str) -> None:
    with pytest.raises(BadImage, match=message):
        images.check(batch)


def test_what_keeps_the_convention_passes() -> None:
    images.check(torch.rand(2, 3, 5, 7))
    images.check(torch.rand(0, 3, 5, 7))
