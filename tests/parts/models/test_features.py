"""Features of images from a TorchScript program, such as FID's Inception."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from counterfoil.core.errors import BadPart
from counterfoil.parts import registry


class Corners(nn.Module):
    """The first and the last pixel of each image, as the program gets them."""

    def forward(self, pictures: Tensor) -> Tensor:
        return torch.stack([pictures[:, :, 0, 0], pictures[:, :, -1, -1]], dim=2)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    torch.jit.script(Corners()).save(tmp_path / "corners.pt")
    return tmp_path / "corners.pt"


@pytest.mark.parametrize(("options", "low", "high"), [({}, 0.0, 255.0), ({"scale": 1.9921875, "shift": -1.0}, -1.0, 0.9921875)])
def test_pictures_come_in_the_range_that_the_program_wants(program: Path, options: dict, low: float, high: float) -> None:
    encoder = registry.create("encoder", f"torchscript:{program}", {"size": 8, **options})
    pictures = torch.stack([torch.zeros(3, 16, 16), torch.ones(3, 16, 16)])
    assert torch.equal(encoder.embed_images(pictures), torch.tensor([[low] * 6, [high] * 6]))


def test_it_knows_no_words(program: Path) -> None:
    with pytest.raises(BadPart, match="images only"):
        registry.create("encoder", f"torchscript:{program}", {}).embed_texts(["a dog"])
