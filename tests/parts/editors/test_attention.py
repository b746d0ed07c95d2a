"""Injected attention: words that correspond, and the source's maps layer by layer and step by step."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from counterfoil.parts.editors import attention as module
from counterfoil.parts.editors import attention as words
from counterfoil.parts.editors.attention import (
    Control,
    ControlSettings,
    Exchange,
    align,
    changed_tokens,
    control_attention,
    make_control,
)
from counterfoil.parts.editors.diffusion import Diffusion
from tests.parts.editors.conftest import CAPTION, EDITED

LENGTH = 16


def encode(text: str) -> list[int]:
    """Two tokens for words of more than five letters, as a byte-pair tokenizer would have it."""
    return [token for word in text.split() for token in ([len(word)] if len(word) <= 5 else [len(word), 0])]


def test_shared_words_correspond_and_exchanged_ones_are_named() -> None:
    found = align("a red boot on grass", "a checkered boot on grass", encode)
    assert found.exchanges == (Exchange(range(2, 3), range(2, 4)),)
    assert found.kept == ((0, 0), (1, 1), (3, 4), (4, 5), (5, 6), (6, 7))
    assert found.lengths == (7, 8)


def test_insertions_and_deletions_leave_one_side_empty() -> None:
    added = align("a boot", "a boot in fog", encode).exchanges
    assert added == (Exchange(range(3, 3), range(3, 5)),)
    assert align("a boot in fog", "a boot", encode).exchanges == (Exchange(range(3, 5), range(3, 3)),)


@pytest.mark.parametrize(
    "edited", ["a red boot", "a checkered boot", "a boot", "a red boot in fog", "one two three four five six"]
)
@pytest.mark.parametrize("word_map", [words.replacement, words.refinement])
def test_every_edited_token_gets_its_attention_from_somewhere(edited: str, word_map) -> None:  # type: ignore[no-untyped-def]
    source, own = word_map(align("a red boot", edited, encode), LENGTH)
    assert source.shape == (LENGTH, LENGTH) and own.shape == (LENGTH,)
    assert (source >= 0).all() and ((source.sum(0) + own) > 0).all()


def test_a_swap_hands_over_all_of_the_old_phrases_attention() -> None:
    source, own = words.replacement(align("a red boot", "a checkered boot", encode), LENGTH)
    torch.testing.assert_close(source[2], torch.tensor([0.0, 0, 0.5, 0.5] + [0] * 12))  # red → check, ered
    assert own.sum() == 0


def test_refinement_lets_new_words_look_for_themselves() -> None:
    source, own = words.refinement(align("a red boot", "a checkered boot", encode), LENGTH)
    assert own.tolist() == [0, 0, 1, 1] + [0] * 12
    assert source[:, 2:4].sum() == 0 and source[3, 4] == 1  # boot stays boot, one place on


def test_the_same_caption_maps_to_itself() -> None:
    for word_map in (words.replacement, words.refinement):
        source, own = word_map(align("a red boot", "a red boot", encode), LENGTH)
        assert torch.equal(source, torch.eye(LENGTH)) and own.sum() == 0


def test_changed_tokens_are_marked_on_both_sides() -> None:
    went, came = words.changed_tokens(align("a red boot", "a checkered boot", encode), LENGTH)
    assert went.nonzero().flatten().tolist() == [2] and came.nonzero().flatten().tolist() == [2, 3]


STEPS = 5
SHARES = (0.0, 0.4, 1.0)


def control_of(diffusion: Diffusion, settings: ControlSettings, *, edited: str = EDITED) -> Control:
    control = make_control(
        settings,
        alignments=[align(CAPTION, edited, diffusion.tokens)] * len(SHARES),
        owner=[0] * len(SHARES),
        self_shares=SHARES,
        steps=STEPS,
        length=diffusion.longest,
        device=diffusion.device,
    )
    control.lay_out(1 + len(SHARES), sources=torch.tensor([0]), targets=torch.arange(1, 1 + len(SHARES)), side=8)
    return control


def batch(diffusion: Diffusion, edited: str = EDITED) -> tuple[Tensor, Tensor]:
    latents = torch.randn(1 + len(SHARES), 4, 8, 8, generator=torch.Generator().manual_seed(1))
    return latents, diffusion.embed([CAPTION, *[edited] * len(SHARES)])


def test_without_shares_the_denoiser_answers_as_it_always_does(diffusion: Diffusion) -> None:
    latents, texts = batch(diffusion)
    plain = diffusion.predict(latents, 500, texts)
    control = control_of(diffusion, ControlSettings(cross_replace=0.0))
    control.self_shares = torch.zeros(len(SHARES), dtype=torch.float64)
    control.begin(0)
    with control_attention(diffusion.unet, control):
        torch.testing.assert_close(diffusion.predict(latents, 500, texts), plain, rtol=1e-4, atol=1e-5)
    assert torch.equal(diffusion.predict(latents, 500, texts), plain)  # and afterwards everything is as before


@pytest.mark.parametrize("step", range(STEPS))
def test_self_attention_is_the_sources_up_to_the_share_of_steps(
    diffusion: Diffusion, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    latents, texts = batch(diffusion)
    seen: list[tuple[Tensor, Tensor]] = []
    original = module.functional.scaled_dot_product_attention

    def watch(query: Tensor, key: Tensor, value: Tensor, **options: float) -> Tensor:
        seen.append((torch.softmax(query @ key.transpose(-1, -2) * options["scale"], -1), value))
        return original(query, key, value, **options)

    monkeypatch.setattr(module.functional, "scaled_dot_product_attention", watch)
    control = control_of(diffusion, ControlSettings())
    control.begin(step)
    with control_attention(diffusion.unet, control):
        diffusion.predict(latents, 500, texts)
    assert len(seen) == sum(name.endswith("attn1.processor") for name in diffusion.unet.attn_processors)
    for maps, values in seen:
        for row, share in enumerate(SHARES, start=1):
            assert torch.equal(maps[row], maps[0]) == (step < share * STEPS), f"share {share} at step {step}"
            assert not torch.equal(values[row], values[0])  # only the map is borrowed


def test_large_maps_are_left_alone(diffusion: Diffusion) -> None:
    control = control_of(diffusion, ControlSettings(self_side=4))
    assert control.self_attention_rows(5 * 5) is None
    rows = control.self_attention_rows(4 * 4)
    assert rows is not None and rows.tolist() == [0, 1, 0, 0]


@pytest.fixture
def record_injections(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Tensor, Tensor]]:
    """Cross-attention before and after control, a pair a layer."""
    seen: list[tuple[Tensor, Tensor]] = []
    original = Control.inject

    def watch(self: Control, attention: Tensor) -> Tensor:
        after = original(self, attention)
        seen.append((attention, after))
        return after

    monkeypatch.setattr(Control, "inject", watch)
    return seen


@pytest.mark.parametrize("step", range(STEPS))
def test_shared_words_have_the_sources_cross_attention_and_new_ones_their_own(
    diffusion: Diffusion, record_injections: list[tuple[Tensor, Tensor]], step: int
) -> None:
    control = control_of(diffusion, ControlSettings(cross_replace=0.6, reweight=3.0))
    control.begin(step)
    with control_attention(diffusion.unet, control):
        diffusion.predict(*_with_time(batch(diffusion)))
    came = changed_tokens(align(CAPTION, EDITED, diffusion.tokens), diffusion.longest)[1].bool()
    assert record_injections and came.sum() == 1
    for before, after in record_injections:
        assert torch.equal(after[0], before[0])  # the source is never touched
        for row in range(1, 1 + len(SHARES)):
            if step < 3:  # 0.6 of 5
                torch.testing.assert_close(after[row][..., ~came], before[0][..., ~came])
                torch.testing.assert_close(after[row][..., came], 3 * before[row][..., came])
            else:
                assert torch.equal(after[row], before[row])


def test_a_swapped_word_looks_where_the_old_one_did(diffusion: Diffusion, record_injections: list[tuple[Tensor, Tensor]]) -> None:
    control = control_of(diffusion, ControlSettings(word_map="replace", cross_replace=1.0, reweight=1.0))
    with control_attention(diffusion.unet, control):
        diffusion.predict(*_with_time(batch(diffusion)))
    for before, after in record_injections:
        torch.testing.assert_close(after[1:], before[:1].expand(len(SHARES), -1, -1, -1))


def test_the_blend_takes_everything_but_the_words_region_from_the_source(diffusion: Diffusion) -> None:
    control = control_of(diffusion, ControlSettings(blend=0.5))
    sources, targets = torch.zeros(len(SHARES), 4, 8, 8), torch.ones(len(SHARES), 4, 8, 8)
    control.change.added[0, 2, 2] = 1.0  # the new words of the first target are looked for in one corner
    control.begin(0)
    assert torch.equal(control.blend(sources, targets), targets)  # too early to know
    control.begin(STEPS - 1)
    blended = control.blend(sources, targets)
    expected = torch.zeros(8, 8)
    expected[1:4, 1:4] = 1
    assert torch.equal(blended[0, 0], expected)
    assert torch.equal(blended[1:], targets[1:])  # no attention: nothing to hold back


def test_the_blend_by_difference_holds_back_what_is_answered_alike(diffusion: Diffusion) -> None:
    control = control_of(diffusion, ControlSettings(blend=0.7, blend_by="difference"))
    sources, targets = torch.zeros(len(SHARES), 4, 8, 8), torch.ones(len(SHARES), 4, 8, 8)
    answers = torch.zeros(len(SHARES), 4, 8, 8)
    answers[0, :, :, :4] = 1.0  # the captions of the first target are answered differently in the left half alone
    control.begin(STEPS - 1)
    control.compare(torch.zeros(1, 4, 8, 8), answers)
    blended = control.blend(sources, targets)
    expected = torch.zeros(8, 8)
    expected[:, :4] = 1  # at the seam a third differs, below 0.7 of the mean
    assert torch.equal(blended[0, 0], expected)
    assert torch.equal(blended[1:], targets[1:])  # no difference anywhere: nothing to hold back


def test_the_blend_collects_attention_from_the_layers(diffusion: Diffusion) -> None:
    control = control_of(diffusion, ControlSettings(blend=0.5))
    with control_attention(diffusion.unet, control):
        diffusion.predict(*_with_time(batch(diffusion)))
    assert (control.change.removed > 0).all() and (control.change.added > 0).all()


def _with_time(pair: tuple[Tensor, Tensor]) -> tuple[Tensor, int, Tensor]:
    return pair[0], 500, pair[1]
