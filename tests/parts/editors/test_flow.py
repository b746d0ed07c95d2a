"""FlowEdit, held against the paper's equations with velocities that are known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from counterfoil.core.errors import BadPart, BadSpec
from counterfoil.parts.contracts import Editor, EditResult
from counterfoil.parts.editors.flow import FlowEditor, FlowOptions
from counterfoil.testing import check_editor, pictures
from tests.parts.editors.conftest import CAPTION, EDITED
from tests.parts.editors.today import flux_1, kontext, sd3


def editor(make: Callable[[], Any], **more: Any) -> FlowEditor:
    return FlowEditor(make(), FlowOptions(**{"steps": 4, "strength": (0.5, 1.0), "size": 32, **more}))


@pytest.mark.parametrize("make", [sd3, flux_1])
def test_the_contract_holds(make: Callable[[], Any]) -> None:
    part = editor(make)
    check_editor(part, caption=CAPTION, edited=EDITED)
    assert isinstance(part, Editor) and part.sweep == ("strength=0.5", "strength=1")
    (made,) = part.edit(part.invert(pictures(1, 32), [CAPTION], [1]), [EDITED])
    assert isinstance(made, EditResult) and made.candidates.shape == (2, 3, 32, 32)
    assert not torch.equal(*made.candidates)


@pytest.mark.parametrize("make", [sd3, flux_1])
def test_the_same_words_and_guidance_leave_the_image_as_it_is(make: Callable[[], Any]) -> None:
    part = editor(make, source_guidance=3.0, guidance=3.0)
    (made,) = part.edit(part.invert(pictures(1, 32), [CAPTION], [1]), [CAPTION])
    assert isinstance(made, EditResult)
    torch.testing.assert_close(made.candidates, made.reconstruction.expand(2, -1, -1, -1), rtol=0, atol=1e-5)


class Between:
    """The straight flow from noise to one point per text: v(z, t) = (z − point) / t."""

    def velocity(self, latents: Tensor, time: Tensor, texts: dict[str, Tensor], guidance: float) -> Tensor:
        return (latents - texts["point"]) / (time / 1000)


def test_over_the_whole_walk_the_edit_moves_by_the_difference_of_the_two_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of that flow the walk is known: where image and source point agree, it ends at the edited point."""
    part = editor(sd3, steps=50)
    monkeypatch.setattr(part.flow, "velocity", Between().velocity)
    one, other = torch.full((1, 4, 16, 16), 0.3), torch.full((1, 4, 16, 16), -0.8)
    made = part.walk(one, ({"point": one}, {"point": other}), share=1.0, seed=3)
    torch.testing.assert_close(made, other, rtol=0, atol=1e-4)
    untouched = part.walk(one, ({"point": one}, {"point": other}), share=0.0, seed=3)
    assert torch.equal(untouched, one)


def test_more_noises_per_step_are_averaged(monkeypatch: pytest.MonkeyPatch) -> None:
    part, calls = editor(sd3, steps=2, average=3), []
    monkeypatch.setattr(part.flow, "velocity", lambda latents, *_: calls.append(latents) or torch.ones_like(latents))
    source = torch.zeros(1, 4, 16, 16)
    assert torch.equal(part.walk(source, ({}, {}), share=1.0, seed=1), source)  # equal velocities move nothing
    assert len(calls) == 2 * 3 * 2 and not torch.equal(calls[0], calls[2])


def test_packed_latents_come_back_where_they_were() -> None:
    """As diffusers packs and unpacks them."""
    part = editor(flux_1)
    latents = torch.arange(4 * 8 * 8).float().reshape(1, 4, 8, 8)
    seen = []
    part.pipeline.transformer.forward = lambda **given: seen.append(given) or (given["hidden_states"],)
    made = part.flow.velocity(latents, torch.tensor(500.0), part.flow.embed(CAPTION), 2.0)
    assert torch.equal(made, latents)
    assert seen[0]["timestep"].item() == 0.5 and seen[0]["guidance"].item() == 2.0


def test_times_are_those_of_the_pipeline() -> None:
    part, latents = editor(sd3), torch.zeros(1, 4, 16, 16)
    part.pipeline.scheduler.set_timesteps(4)
    torch.testing.assert_close(part._schedule(latents).sigmas, part.pipeline.scheduler.sigmas)
    shifted = editor(flux_1)._schedule(latents)
    assert len(shifted.timesteps) == 4 and shifted.sigmas[0] == 1 and shifted.sigmas[-1] == 0


def test_only_flow_models_are_taken(tmp_path: Path) -> None:
    with pytest.raises(BadPart, match="is none of StableDiffusion3Pipeline, FluxPipeline"):
        FlowEditor(kontext())
    with pytest.raises(BadSpec, match="strength"):
        FlowOptions(strength=(1.5,))
