"""A painter behind HTTP, whose answers the test can spoil."""

from __future__ import annotations

import base64
import io
from typing import Any

import pytest
import torch
from PIL import Image

from counterfoil.core.errors import RunFailed
from counterfoil.parts import registry
from counterfoil.parts.calls import paint
from counterfoil.testing import check_painter
from tests.parts.endpoint import answering, serve

PROMPTS = ["a red mug", "a blue mug", "a green mug"]
SEEDS = torch.tensor([1, 2, 3])


def test_it_paints_in_both_dialects_and_in_any_batch() -> None:
    with serve() as endpoint:
        answering(endpoint)
        own = registry.create("painter", endpoint.url, {"batch": 2})
        both = own.paint(PROMPTS, SEEDS)
        assert endpoint.posts == [2, 1]
        assert torch.equal(both[1], own.paint(PROMPTS[1:2], SEEDS[1:2])[0])
        other = registry.create("painter", endpoint.url, {"api": "openai", "model": "m"})
        assert torch.equal(other.paint(PROMPTS, SEEDS), both)


def test_it_keeps_the_contract() -> None:
    with serve() as endpoint:
        answering(endpoint)
        check_painter(registry.create("painter", endpoint.url, {}))


def test_withheld_pictures_are_flagged() -> None:
    with serve() as endpoint:
        answering(endpoint, flags=True)
        painted = paint(registry.create("painter", endpoint.url, {}), PROMPTS, SEEDS)
        assert painted.flagged == (False, True, False)


@pytest.mark.parametrize(
    "spoiled",
    [
        {"images": []},
        {"pictures": []},
        {"images": ["not base64"] * 3},
        {"images": [base64.b64encode(b"no image").decode()] * 3},
        b"garbage",
        (503, b"busy", {}),
    ],
)
def test_an_endpoint_that_breaks_stops_the_run_so_that_it_can_go_on(spoiled: Any) -> None:
    with serve() as endpoint:
        answering(endpoint, lambda number, answer: spoiled)
        painter = registry.create("painter", endpoint.url, {"retries": 1, "backoff": 0.0})
        with pytest.raises(RunFailed, match="resumes once the endpoint is back") as caught:
            painter.paint(PROMPTS, SEEDS)
        assert "\n" not in str(caught.value)


def test_an_image_larger_than_asked_for_is_refused_by_its_header() -> None:
    side = 13_300  # one bit per pixel: a few kilobytes of PNG, two gigabytes of numbers
    file = io.BytesIO()
    Image.new("1", (side, side)).save(file, "PNG")
    huge = base64.b64encode(file.getvalue()).decode()
    with serve() as endpoint:
        answering(endpoint, lambda number, answer: {"images": [huge]})
        for options, most in (({}, 4096), ({"size": 64}, 64)):
            painter = registry.create("painter", endpoint.url, {"retries": 0, **options})
            with pytest.raises(RunFailed, match=f"13300×13300 pixels, where at most {most}×{most} are taken"):
                painter.paint(PROMPTS[:1], SEEDS[:1])
