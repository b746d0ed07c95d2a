from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from counterfoil.core.errors import BadSpec
from counterfoil.parts.generators import adm as flags
from counterfoil.parts.generators.adm import RELEASED, AdmUNet, Flags

MILLIONS = {  # parameters, as the papers and the files' own names have them
    "64x64_diffusion": 296,
    "128x128_diffusion": 422,
    "256x256_diffusion": 554,
    "256x256_diffusion_uncond": 553,
    "512x512_diffusion": 559,
    "imagenet64_uncond_100M_1500K": 121,
    "imagenet64_cond_270M_250K": 273,
    "cifar10_uncond_50M_500K": 53,
    "lsun_uncond_100M_1200K_bs128": 114,
}


@pytest.mark.parametrize("name", list(RELEASED))
def test_released_flags_build_networks_of_the_right_size(name: str) -> None:
    found = flags.read_flags(None, file=Path(f"models/{name}.pt"))
    with torch.device("meta"):
        network = AdmUNet(found, classes=1000 if found.class_cond else None)
    count = sum(value.numel() for value in network.parameters()) / 1e6
    if name in MILLIONS:
        assert count == pytest.approx(MILLIONS[name], abs=1)
    assert count > 50


def test_text_and_mapping_say_the_same() -> None:
    text = "--image_size 64 --attention_resolutions 32,16 --class_cond True --use_fp16 True --lr=1e-4"
    values = {"image_size": 64, "attention_resolutions": [32, 16], "class_cond": True, "dropout": 0.1}
    assert flags.read_flags(text, file=Path("x")) == flags.read_flags(values, file=Path("x"))
    assert flags.read_flags(text, file=Path("x")) == Flags(image_size=64, attention_resolutions="32,16", class_cond=True)


def test_heads_come_from_their_number_or_their_width() -> None:
    assert Flags(num_heads=4).heads(128) == 4
    assert Flags(num_head_channels=64).heads(256) == 4
    assert Flags(num_heads=4, num_heads_upsample=2).heads(128, up=True) == 2
    assert Flags(num_heads=4).heads(128, up=True) == 4


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ("--image_size", "each with its value"),
        ("image_size 64", "each with its value"),
        ("--image_sise 64", "no flag 'image_sise'; flags are image_size"),
        ("--zzz 64", "no flag 'zzz'; flags are image_size"),
        ("--image_size big", "image_size is a whole number, got 'big'"),
        ("--class_cond maybe", "class_cond is True or False"),
        ("--noise_schedule square", "linear or cosine"),
        ("--image_size 48", "give channel_mult too"),
        ("--num_channels 40", "40 channels; it has to be a multiple of 32"),
        ("--channel_mult 1,x", "numbers with commas between"),
        ("--num_heads 5", "cannot be shared among 5 attention heads"),
        ("--num_head_channels 512", "cannot be shared among 0 attention heads"),
    ],
)
def test_bad_flags_are_refused(given: Any, complaint: str) -> None:
    with pytest.raises(BadSpec, match=complaint):
        flags.read_flags(given, file=Path("x"))
