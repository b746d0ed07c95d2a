"""Pipelines of diffusers in a lower precision: the same image but for rounding, and the same pipeline afterwards."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from counterfoil.parts.fast import coders
from counterfoil.parts.fast.unets import FusedDecode, PlacedPipeline
from counterfoil.parts.weights import fingerprint
from tests.parts.editors.conftest import networks, scheduler

CPU = torch.device("cpu")
NONE: dict[str, Any] = {"safety_checker": None, "feature_extractor": None, "requires_safety_checker": False}


@pytest.fixture
def pipeline() -> Any:
    from diffusers import StableDiffusionPipeline

    return StableDiffusionPipeline(**networks(), scheduler=scheduler(), **NONE)


def paint(pipeline: Any) -> torch.Tensor:
    noise = torch.Generator().manual_seed(3)
    found = pipeline("a photo of a red dress", generator=noise, num_inference_steps=3, guidance_scale=4.0, output_type="pt")
    return torch.as_tensor(found.images)


@pytest.mark.parametrize("fused", [True, False])
def test_images_change_by_rounding_alone_and_come_back(pipeline: Any, monkeypatch: pytest.MonkeyPatch, fused: bool) -> None:
    if not fused:
        monkeypatch.setattr(coders, "build_decoder", lambda *given, **more: None)
    placed = PlacedPipeline(pipeline)
    wanted, marks, account = paint(pipeline), [fingerprint(pipeline.unet), fingerprint(pipeline.vae)], placed.provenance()
    placed.accelerate(torch.bfloat16, CPU)
    assert isinstance(pipeline.vae.decode, FusedDecode) == fused
    assert pipeline.unet.dtype == torch.bfloat16 and pipeline.text_encoder.dtype == torch.float32
    found = paint(pipeline)
    assert found.dtype == torch.float32 and 0 < (found - wanted).abs().mean() < 0.02
    assert fingerprint(pipeline.unet) != marks[0] and placed.provenance() == account
    placed.place(CPU)
    assert [fingerprint(pipeline.unet), fingerprint(pipeline.vae)] == marks
    assert torch.equal(paint(pipeline), wanted)


def test_a_fused_decoder_answers_as_the_library_does(pipeline: Any) -> None:
    PlacedPipeline(pipeline).accelerate(torch.bfloat16, CPU)
    codes = torch.randn(1, 4, 8, 8, generator=torch.Generator().manual_seed(1))
    assert torch.equal(pipeline.vae.decode(codes).sample, pipeline.vae.decode(codes, return_dict=False, generator=None)[0])
