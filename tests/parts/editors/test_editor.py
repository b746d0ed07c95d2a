"""The prompt-to-prompt editor as protocols use it: rows in, answers out, each row for itself; and over the lab's pipeline."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from diffusers import StableDiffusionPipeline
from torch import Tensor

from counterfoil.core.errors import BadRun
from counterfoil.parts import registry
from counterfoil.parts.contracts import Editor, EditResult, Inversion, Refusal
from counterfoil.parts.editors.attention import ControlSettings, align, make_control
from counterfoil.parts.editors.diffusion import Diffusion
from counterfoil.parts.editors.inversion import INVERSIONS, Setting
from counterfoil.parts.editors.prompt_to_prompt import Options, PromptToPrompt, phases, redraw
from counterfoil.parts.editors.requests import from_bytes, to_bytes
from counterfoil.testing import pictures
from counterfoil_lab.captions import captions
from counterfoil_lab.captions import replace as reword
from counterfoil_lab.checker import Checker
from counterfoil_lab.drawing.render import render
from counterfoil_lab.world import FACTORS, Scenes, load_shipped, sample
from tests.parts.editors.conftest import CAPTION, EDITED, NONE, networks, scheduler

pytestmark = pytest.mark.xdist_group("lab-diffusion")
ANOTHER = "a sketch of a pink silk bag in a forest"


OWN: dict[str, dict[str, object]] = {
    "null-text": {"refinements": 1, "inner_steps": 2},
    "negative-prompt": {"refinements": 1},
    "ddim": {"refinements": 1},
    "edit-friendly": {"skip": 0.34},
}


def options(inversion: str = "negative-prompt", **more: object) -> Options:
    chosen = {"steps": 3, "guidance": 4.0, "self_replace": (0.0, 0.7), **OWN[inversion], **more}
    return Options(inversion=inversion, **chosen)  # type: ignore[arg-type]


def editor(diffusion: Diffusion, inversion: str = "negative-prompt", **more: object) -> PromptToPrompt:
    return PromptToPrompt(diffusion, options(inversion, **more))


def images(count: int = 3) -> Tensor:
    return pictures(count, 16)


def assert_inverted(made: list[Inversion | Refusal]) -> list[Inversion]:
    assert all(isinstance(row, Inversion) for row in made), made
    return made  # type: ignore[return-value]


def assert_edited(made: list[EditResult | Refusal]) -> list[EditResult]:
    assert all(isinstance(row, EditResult) for row in made), made
    return made  # type: ignore[return-value]


@pytest.mark.parametrize("inversion", INVERSIONS)
@pytest.mark.parametrize(("word_map", "blend_by"), [("refine", "words"), ("replace", "difference")])
def test_an_identical_caption_gives_the_reconstruction(
    make_diffusion: Callable[..., Diffusion], inversion: str, word_map: str, blend_by: str
) -> None:
    part = editor(make_diffusion("v_prediction"), inversion, word_map=word_map, blend=0.3, blend_by=blend_by)
    assert isinstance(part, Editor)
    (made,) = assert_edited(part.edit(assert_inverted(part.invert(images(1), [CAPTION], [7])), [CAPTION]))
    assert made.candidates.shape == (2, 3, 16, 16) and made.reconstruction.shape == (3, 16, 16)
    for candidate in made.candidates:
        torch.testing.assert_close(candidate, made.reconstruction, rtol=0, atol=1e-4)


def test_edits_of_one_picture_share_its_source_in_a_batch(diffusion: Diffusion, monkeypatch: pytest.MonkeyPatch) -> None:
    part = editor(diffusion)
    first, second = assert_inverted(part.invert(images(2), [CAPTION, ANOTHER], [1, 2]))
    apart = assert_edited(part.edit([first, first, second], [EDITED, ANOTHER, CAPTION]))
    monkeypatch.setattr(part, "_rows_per_batch", lambda: (1, 3))
    together = assert_edited(part.edit([first, first, second], [EDITED, ANOTHER, CAPTION]))
    for one, other in zip(apart, together, strict=True):
        torch.testing.assert_close(one.candidates, other.candidates, rtol=0, atol=1e-4)
        torch.testing.assert_close(one.reconstruction, other.reconstruction, rtol=0, atol=1e-4)


def test_pictures_are_decoded_apart_from_others_of_a_batch(diffusion: Diffusion, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if every number of rows rounded in its own way, as on a GPU."""
    part, decode = editor(diffusion), diffusion.decode
    monkeypatch.setattr(diffusion, "decode", lambda latents: decode(latents) + len(latents))
    first, second = assert_inverted(part.invert(images(2), [CAPTION, ANOTHER], [1, 2]))
    apart = assert_edited(part.edit([first, second], [EDITED, CAPTION]))
    monkeypatch.setattr(part, "_rows_per_batch", lambda: (1, 2))
    together = assert_edited(part.edit([first, second], [EDITED, CAPTION]))
    for one, other in zip(apart, together, strict=True):
        torch.testing.assert_close(one.candidates, other.candidates, rtol=0, atol=1e-4)
        torch.testing.assert_close(one.reconstruction, other.reconstruction, rtol=0, atol=1e-4)


def test_candidates_can_have_a_guidance_of_their_own(diffusion: Diffusion) -> None:
    both = editor(diffusion, guidance=(1.5, 6.0))
    assert both.sweep == ("self_replace=0, guidance=1.5", "self_replace=0.7, guidance=6")
    found = assert_inverted(both.invert(images(1), [CAPTION], [7]))
    (made,) = assert_edited(both.edit(found, [ANOTHER]))
    for place, pull in enumerate((1.5, 6.0)):
        (one,) = assert_edited(editor(diffusion, guidance=(pull,)).edit(found, [ANOTHER]))
        torch.testing.assert_close(made.candidates[place], one.candidates[place], rtol=0, atol=1e-4)
    (same,) = assert_edited(both.edit(found, [CAPTION]))
    torch.testing.assert_close(same.candidates, same.reconstruction.expand(2, -1, -1, -1), rtol=0, atol=1e-4)


def test_an_inversion_can_be_kept_as_bytes(diffusion: Diffusion) -> None:
    part = editor(diffusion, "null-text")
    (found,) = assert_inverted(part.invert(images(1), [CAPTION], [1]))
    kept = from_bytes(to_bytes(found))
    assert kept.caption == CAPTION
    (fresh,), (again,) = assert_edited(part.edit([found], [EDITED])), assert_edited(part.edit([kept], [EDITED]))
    assert torch.equal(fresh.candidates, again.candidates)


def test_a_damaged_inversion_is_named() -> None:
    with pytest.raises(BadRun, match=r"bad\.safetensors: not an inversion"):
        from_bytes(b"\x08\0\0\0\0\0\0\0{}", name="bad.safetensors")


@pytest.mark.parametrize(
    ("picture", "reason"),
    [
        (torch.zeros(4, 16, 16), "alpha"),
        (torch.zeros(1, 16, 16), "one channel"),
        (torch.zeros(3, 16, 20), "20×16"),
        (torch.zeros(16, 16), "shape"),
        (torch.full((3, 16, 16), float("nan")), "not numbers"),
        (torch.full((3, 16, 16), 255.0), "divide"),
        (torch.zeros(3, 16, 16, dtype=torch.uint8), "floating point"),
    ],
)
def test_a_picture_that_cannot_be_used_is_refused_alone(diffusion: Diffusion, picture: Tensor, reason: str) -> None:
    part = editor(diffusion)
    first, refused, last = part.invert([images()[0], picture, images()[1]], [CAPTION, CAPTION, ANOTHER], [1, 2, 3])
    assert isinstance(refused, Refusal) and reason in refused.reason and "\n" not in refused.reason
    assert isinstance(first, Inversion) and isinstance(last, Inversion) and last.caption == ANOTHER


@pytest.mark.parametrize(
    ("caption", "reason"),
    [("", "empty"), (" \n", "empty"), ("a red dress " * 20, "tokens"), ("a " * 100_000, "characters")],
)
def test_a_caption_that_cannot_be_used_is_refused_alone(diffusion: Diffusion, caption: str, reason: str) -> None:
    part = editor(diffusion)
    refused, found = part.invert(images(2), [caption, CAPTION], [1, 2])
    assert isinstance(refused, Refusal) and "the caption" in refused.reason and reason in refused.reason
    assert isinstance(found, Inversion)
    wrong, right = part.edit([found, found], [caption, EDITED])
    assert isinstance(wrong, Refusal) and "the edited caption" in wrong.reason and reason in wrong.reason
    assert isinstance(right, EditResult)


@pytest.mark.parametrize("inversion", INVERSIONS)
def test_values_that_are_not_numbers_are_refused_in_their_row_alone(
    diffusion: Diffusion, monkeypatch: pytest.MonkeyPatch, inversion: str
) -> None:
    part = PromptToPrompt(diffusion, options(inversion, batch=3))
    sick = diffusion.embed([ANOTHER])[0]
    healthy = diffusion.predict

    def predict(latents: Tensor, time: int, embeddings: Tensor) -> Tensor:
        broken = (embeddings.detach() == sick).flatten(1).all(1)
        return torch.where(broken[:, None, None, None], float("nan"), healthy(latents, time, embeddings))

    monkeypatch.setattr(diffusion, "predict", predict)
    first, refused, last = part.invert(images(), [CAPTION, ANOTHER, EDITED], [1, 2, 3])
    assert isinstance(refused, Refusal) and "not numbers while inverting" in refused.reason
    assert isinstance(first, Inversion) and isinstance(last, Inversion)
    monkeypatch.setattr(part, "_rows_per_batch", lambda: (1, 2))
    wrong, right = part.edit([first, first], [ANOTHER, EDITED])
    assert isinstance(wrong, Refusal) and "not numbers while redrawing" in wrong.reason
    assert isinstance(right, EditResult) and torch.isfinite(right.candidates).all()


def test_an_inversion_of_another_kind_is_refused(diffusion: Diffusion) -> None:
    (found,) = assert_inverted(editor(diffusion, "ddim").invert(images(1), [CAPTION], [1]))
    (refused,) = editor(diffusion, "edit-friendly").edit([found], [EDITED])
    assert isinstance(refused, Refusal) and "invert the image again" in refused.reason


def test_nothing_asked_is_nothing_answered(diffusion: Diffusion) -> None:
    assert editor(diffusion).invert([], [], []) == [] and editor(diffusion).edit([], []) == []


def test_memory_that_runs_out_is_survived_by_smaller_batches(diffusion: Diffusion, monkeypatch: pytest.MonkeyPatch) -> None:
    part, captions = PromptToPrompt(diffusion, options(batch=4)), [CAPTION, EDITED, ANOTHER]
    wanted = assert_inverted(PromptToPrompt(diffusion, options(batch=1)).invert(images(), captions, [1, 2, 3]))
    encode, asked = diffusion.encode, []

    def little_memory(some: Tensor) -> Tensor:
        asked.append(len(some))
        if len(some) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return encode(some)

    monkeypatch.setattr(diffusion, "encode", little_memory)
    found = assert_inverted(part.invert(images(), captions, [1, 2, 3]))
    assert asked == [4, 2, 1, 1, 1]
    for one, other in zip(found, wanted, strict=True):
        assert one.caption == other.caption and torch.equal(one.tensors["latent"], other.tensors["latent"])
    part.invert(images(1), captions[:1], [1])
    assert asked[5:] == [1]  # what did not fit is not tried again
    monkeypatch.setattr(diffusion, "encode", lambda some: little_memory(torch.cat([some, some])))
    with pytest.raises(torch.OutOfMemoryError):
        part.invert(images(1), captions[:1], [1])


def test_what_is_recorded_is_what_is_used() -> None:
    record = Options(inversion="ddim", refinements=2, batch=3).record()
    assert record["refinements"] == 2
    assert not {"skip", "source_guidance", "inner_steps", "batch", "compiled"} & set(record)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    StableDiffusionPipeline(**networks(), scheduler=scheduler("v_prediction"), **NONE).save_pretrained(tmp_path / "sd")
    return tmp_path / "sd"


def test_a_pipeline_in_a_folder_is_an_editor(folder: Path) -> None:
    options = {"inversion": "edit-friendly", "steps": 2, "self_replace": 0.5, "skip": 0}
    part = registry.create("editor", f"p2p:{folder}", options)
    assert part.sweep == ("self_replace=0.5",) and part.size == 16 and part.schedule.prediction == "v_prediction"
    (made,) = part.edit(part.invert(pictures(1, 16), [CAPTION], [1]), [EDITED])
    assert isinstance(made, EditResult)
    told = part.provenance()
    assert told["settings"]["inversion"] == "edit-friendly" and len(told["unet"]) == 64
    json.dumps(told)


def test_another_precision_changes_the_picture_by_rounding_alone(folder: Path) -> None:
    options = {"inversion": "edit-friendly", "steps": 2, "self_replace": 0.5}
    made = []
    for precision in ("float32", "bfloat16"):
        part = registry.create("editor", f"p2p:{folder}", {**options, "precision": precision})
        made.append(part.edit(part.invert(pictures(1, 16), [CAPTION], [1]), [EDITED])[0].candidates)
    difference = (made[0] - made[1]).abs().mean()
    assert 0 < difference < 0.02  # a random network in two steps; eight bits of mantissa


LEVELS = 5
SHARES = (0.0, 0.4, 0.4, 0.6, 1.0)
OTHER = "a sketch of a red wool dress on a beach"


def redraw_sweep(diffusion: Diffusion, options: Options, *, once: bool) -> tuple[Tensor, Tensor]:
    """Reconstructions of two images, and a sweep for each of three edits."""
    texts, owners, shares = [EDITED, OTHER, EDITED], [0, 0, 1], options.shares
    latents = torch.randn(2, 4, 8, 8, generator=torch.Generator().manual_seed(1))
    walk = options.method.walk(
        Setting(diffusion, diffusion.schedule(LEVELS), options.guidances[0]), {"latent": latents}, [CAPTION, CAPTION]
    )
    control = make_control(
        options.control,
        alignments=[align(CAPTION, text, diffusion.tokens) for text in texts for _ in shares],
        owner=[owner for owner in owners for _ in shares],
        self_shares=shares * len(texts),
        steps=LEVELS,
        length=diffusion.longest,
        device=diffusion.device,
        equal_until=[group for group in zip(owners, texts, strict=True) for _ in shares] if once else (),
        skip_unused_maps=once,
    )
    edited = diffusion.embed(texts).repeat_interleave(len(shares), dim=0)
    pull = torch.full((len(edited),), 4.0)
    return redraw(diffusion, diffusion.schedule(LEVELS), walk, edited=edited, control=control, guidance=pull)


@pytest.mark.parametrize("inversion", ["negative-prompt", "ddim"])
@pytest.mark.parametrize(("blend", "blend_by"), [(0.0, "words"), (0.3, "words"), (0.3, "difference")])
def test_drawing_equals_once_changes_rounding_alone(
    make_diffusion: Callable[..., Diffusion], monkeypatch: pytest.MonkeyPatch, inversion: str, blend: float, blend_by: str
) -> None:
    diffusion = make_diffusion("v_prediction")
    options = Options(
        inversion=inversion,  # type: ignore[arg-type]
        steps=LEVELS,
        self_replace=SHARES,
        blend=blend,
        blend_by=blend_by,  # type: ignore[arg-type]
        cross_replace=0.6,
    )
    calls: list[int] = []
    predict = diffusion.predict

    def counting(latents: Tensor, time: int, embeddings: Tensor) -> Tensor:
        calls.append(len(latents))
        return predict(latents, time, embeddings)

    monkeypatch.setattr(diffusion, "predict", counting)
    each = redraw_sweep(diffusion, options, once=False)
    once = redraw_sweep(diffusion, options, once=True)
    for found, wanted in zip(once, each, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-4)
    assert not torch.equal(once[1][0], once[1][4])  # the sweep is still a sweep
    sources = 2 if inversion == "negative-prompt" else 4
    assert calls[:LEVELS] == [sources + 2 * 15] * LEVELS
    # Of the shares 0, 0.4, 0.4, 0.6 and 1, two images of each edit are distinct at first, three from step 2, four from step 3.
    assert calls[LEVELS:] == [sources + 2 * 3 * count for count in (2, 2, 3, 4, 4)]


def test_phases_end_where_candidates_part(diffusion: Diffusion) -> None:
    control = make_control(
        ControlSettings(),
        alignments=[align(CAPTION, EDITED, diffusion.tokens)] * 3,
        owner=[0, 0, 0],
        self_shares=(0.2, 0.8, 0.8),
        steps=10,
        length=diffusion.longest,
        device=diffusion.device,
        equal_until=("a", "a", "b"),
    )
    found = phases(control, first=0, last=10)
    assert [(phase.steps, phase.drawn, phase.back) for phase in found] == [
        (range(2), (0, 2), (0, 0, 1)),
        (range(2, 8), (0, 1, 2), (0, 1, 2)),
        (range(8, 10), (0, 1, 2), (0, 1, 2)),
    ]
    assert [phase.steps for phase in phases(control, first=5, last=10)] == [range(5, 8), range(8, 10)]
    control.equal_until = ()
    (whole,) = phases(control, first=0, last=10)
    assert whole.steps == range(10) and whole.drawn == whole.back == (0, 1, 2)


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
    fitted = registry.create("editor", "lab:diffusion", {"inversion": "null-text", "self_replace": 0, "steps": 16})
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
