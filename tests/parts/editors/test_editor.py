"""The editor as protocols use it: rows in, answers out, each row for itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from counterfoil.core.errors import BadRun, BadSpec
from counterfoil.parts import registry
from counterfoil.parts.contracts import Editor, EditResult, Inversion, Refusal, describe
from counterfoil.parts.editors.diffusion import Diffusion
from counterfoil.parts.editors.inversion import INVERSIONS
from counterfoil.parts.editors.prompt_to_prompt import Options, PromptToPrompt
from counterfoil.parts.editors.requests import from_bytes, to_bytes
from counterfoil.testing import check_editor, pictures
from tests.parts.editors.conftest import CAPTION, EDITED

OTHER = "a sketch of a pink silk bag in a forest"


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


@pytest.mark.parametrize("inversion", INVERSIONS)
def test_the_contract_holds(diffusion: Diffusion, inversion: str) -> None:
    check_editor(editor(diffusion, inversion), caption=CAPTION, edited=EDITED)


@pytest.mark.parametrize("inversion", INVERSIONS)
def test_another_caption_gives_another_picture_in_range(diffusion: Diffusion, inversion: str) -> None:
    part = editor(diffusion, inversion)
    (made,) = assert_edited(part.edit(assert_inverted(part.invert(images(1), [CAPTION], [7])), [OTHER]))
    assert len(made.candidates) == len(part.sweep) == 2
    assert made.candidates.min() >= 0 and made.candidates.max() <= 1
    assert not torch.equal(made.candidates[0], made.reconstruction)
    assert not torch.equal(made.candidates[0], made.candidates[1])


@pytest.mark.parametrize("inversion", INVERSIONS)
def test_a_row_does_not_depend_on_the_rows_beside_it(diffusion: Diffusion, inversion: str) -> None:
    part, captions = editor(diffusion, inversion), [CAPTION, EDITED, OTHER]
    together = assert_inverted(part.invert(images(), captions, [1, 2, 3]))
    alone = assert_inverted(part.invert(images()[1:2], captions[1:2], [2]))
    for name, tensor in alone[0].tensors.items():
        assert torch.equal(together[1].tensors[name], tensor), name
    many = assert_edited(part.edit([together[0], together[1], together[1]], [OTHER, CAPTION, OTHER]))
    (one,) = assert_edited(part.edit(alone, [OTHER]))
    assert torch.equal(many[2].candidates, one.candidates) and torch.equal(many[2].reconstruction, one.reconstruction)


def test_edits_of_one_picture_share_its_source_in_a_batch(diffusion: Diffusion, monkeypatch: pytest.MonkeyPatch) -> None:
    part = editor(diffusion)
    first, second = assert_inverted(part.invert(images(2), [CAPTION, OTHER], [1, 2]))
    apart = assert_edited(part.edit([first, first, second], [EDITED, OTHER, CAPTION]))
    monkeypatch.setattr(part, "_rows_per_batch", lambda: (1, 3))
    together = assert_edited(part.edit([first, first, second], [EDITED, OTHER, CAPTION]))
    for one, other in zip(apart, together, strict=True):
        torch.testing.assert_close(one.candidates, other.candidates, rtol=0, atol=1e-4)
        torch.testing.assert_close(one.reconstruction, other.reconstruction, rtol=0, atol=1e-4)


def test_pictures_are_decoded_apart_from_others_of_a_batch(diffusion: Diffusion, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if every number of rows rounded in its own way, as on a GPU."""
    part, decode = editor(diffusion), diffusion.decode
    monkeypatch.setattr(diffusion, "decode", lambda latents: decode(latents) + len(latents))
    first, second = assert_inverted(part.invert(images(2), [CAPTION, OTHER], [1, 2]))
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
    (made,) = assert_edited(both.edit(found, [OTHER]))
    for place, pull in enumerate((1.5, 6.0)):
        (one,) = assert_edited(editor(diffusion, guidance=(pull,)).edit(found, [OTHER]))
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
    first, refused, last = part.invert([images()[0], picture, images()[1]], [CAPTION, CAPTION, OTHER], [1, 2, 3])
    assert isinstance(refused, Refusal) and reason in refused.reason and "\n" not in refused.reason
    assert isinstance(first, Inversion) and isinstance(last, Inversion) and last.caption == OTHER


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
    sick = diffusion.embed([OTHER])[0]
    healthy = diffusion.predict

    def predict(latents: Tensor, time: int, embeddings: Tensor) -> Tensor:
        broken = (embeddings.detach() == sick).flatten(1).all(1)
        return torch.where(broken[:, None, None, None], float("nan"), healthy(latents, time, embeddings))

    monkeypatch.setattr(diffusion, "predict", predict)
    first, refused, last = part.invert(images(), [CAPTION, OTHER, EDITED], [1, 2, 3])
    assert isinstance(refused, Refusal) and "not numbers while inverting" in refused.reason
    assert isinstance(first, Inversion) and isinstance(last, Inversion)
    monkeypatch.setattr(part, "_rows_per_batch", lambda: (1, 2))
    wrong, right = part.edit([first, first], [OTHER, EDITED])
    assert isinstance(wrong, Refusal) and "not numbers while redrawing" in wrong.reason
    assert isinstance(right, EditResult) and torch.isfinite(right.candidates).all()


def test_an_inversion_of_another_kind_is_refused(diffusion: Diffusion) -> None:
    (found,) = assert_inverted(editor(diffusion, "ddim").invert(images(1), [CAPTION], [1]))
    (refused,) = editor(diffusion, "edit-friendly").edit([found], [EDITED])
    assert isinstance(refused, Refusal) and "invert the image again" in refused.reason


def test_nothing_asked_is_nothing_answered(diffusion: Diffusion) -> None:
    assert editor(diffusion).invert([], [], []) == [] and editor(diffusion).edit([], []) == []


@pytest.mark.parametrize(
    ("wrong", "names"),
    [
        ({"steps": 0}, "steps"),
        ({"inversion": "magic"}, "null-text, negative-prompt"),
        ({"self_replace": ()}, "self_replace"),
        ({"self_replace": (1.5,)}, "self_replace"),
        ({"guidance": (float("nan"),)}, "guidance"),
        ({"guidance": (1.0, 2.0)}, "one for each"),
        ({"guidance": (1.0, 2.0), "self_replace": (0.4, 0.5)}, "several guidances need"),
        ({"inversion": "edit-friendly", "skip": 1.0}, "skip"),
        ({"word_map": "guess"}, "refine, replace"),
        ({"inversion": "ddim", "skip": 0.9}, "skip is no option of ddim inversion, which takes refinements"),
        ({"inversion": "ddim", "source_guidance": 3.5}, "source_guidance is no option of ddim"),
        ({"inversion": "negative-prompt", "inner_steps": 3}, "inner_steps is no option of negative-prompt"),
        ({"inversion": "edit-friendly", "refinements": 1}, "which takes skip and source_guidance"),
    ],
)
def test_impossible_options_are_named(wrong: dict[str, object], names: str) -> None:
    with pytest.raises(BadSpec, match=names):
        Options(**wrong)  # type: ignore[arg-type]


def test_memory_that_runs_out_is_survived_by_smaller_batches(diffusion: Diffusion, monkeypatch: pytest.MonkeyPatch) -> None:
    part, captions = PromptToPrompt(diffusion, options(batch=4)), [CAPTION, EDITED, OTHER]
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


def test_it_says_at_what_size_it_works(diffusion: Diffusion) -> None:
    traits = {trait.what: trait.value for trait in describe(editor(diffusion))}
    assert traits == {"images": "16×16; larger ones are shrunk to it", "inversion": "negative-prompt, 3 steps"}
    lab = {trait.what: trait for trait in describe(registry.create("editor", "lab:diffusion"))}
    assert "garments" in lab["made for"].value and "boot" in lab["made for"].classes
