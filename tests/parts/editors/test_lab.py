"""The editor over the lab's trained pipeline: reconstructions in decibels, and one edit read by the attribute checker."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from counterfoil.parts import registry
from counterfoil.parts.contracts import EditResult
from counterfoil.parts.editors.prompt_to_prompt import PromptToPrompt
from counterfoil_lab.captions import captions
from counterfoil_lab.captions import replace as reword
from counterfoil_lab.checker import Checker
from counterfoil_lab.drawing.render import render
from counterfoil_lab.world import FACTORS, Scenes, load_shipped, sample

pytestmark = pytest.mark.xdist_group("lab-diffusion")


def some_scenes(count: int) -> tuple[Scenes, Tensor, list[str]]:
    shapes = load_shipped("tune")
    drawn = sample(count, garments=shapes, distribution="narrow", seed=3)
    return drawn, render(drawn, shapes)[0], captions(drawn)


def psnr(made: Tensor, images: Tensor) -> float:
    return float(-10 * torch.log10((made - images).square().mean()))


def reconstruction(editor: PromptToPrompt, image: Tensor, caption: str) -> Tensor:
    (made,) = editor.edit(editor.invert([image], [caption], [0]), [caption])
    assert isinstance(made, EditResult)
    return made.reconstruction


def test_null_text_comes_back_under_guidance_where_plain_inversion_strays() -> None:
    _, images, texts = some_scenes(1)
    fitted = registry.create("editor", "lab:diffusion", {"inversion": "null-text", "self_replace": 0})
    plain = PromptToPrompt(fitted.diffusion, replace(fitted.options, inversion="ddim", rate=None))
    limit = psnr(fitted.diffusion.decode(fitted.diffusion.encode(images))[0], images[0])
    reached = psnr(reconstruction(fitted, images[0], texts[0]), images[0])
    assert reached > psnr(reconstruction(plain, images[0], texts[0]), images[0]) + 1
    assert reached > limit - 0.5


def test_the_asked_for_background_is_there_and_the_garment_too() -> None:
    drawn, images, texts = some_scenes(2)
    editor = registry.create("editor", "lab:diffusion", {"self_replace": 0.3, "guidance": 1.6})
    beach = [reword(text, "background", "beach") for text in texts]
    made = editor.edit(editor.invert(images, texts, [0, 1]), beach)
    read = Checker().read(torch.stack([one.candidates[0] for one in made]))
    assert [FACTORS["background"][int(row)] for row in read["background"]] == ["beach", "beach"]
    assert torch.equal(read["garment"], drawn.factors["garment"])
    assert torch.equal(read["colour"], drawn.factors["colour"])
