"""Candidates that are still one image are drawn once, and come out as if each had been drawn for itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from counterfoil.parts.editors.attention import ControlSettings, align, make_control
from counterfoil.parts.editors.diffusion import Diffusion
from counterfoil.parts.editors.inversion import Setting
from counterfoil.parts.editors.prompt_to_prompt import Options, phases, redraw
from tests.parts.editors.conftest import CAPTION, EDITED

STEPS = 5
SHARES = (0.0, 0.4, 0.4, 0.6, 1.0)
OTHER = "a sketch of a red wool dress on a beach"


def redraw_sweep(diffusion: Diffusion, options: Options, *, once: bool) -> tuple[Tensor, Tensor]:
    """Reconstructions of two images, and a sweep for each of three edits."""
    texts, owners, shares = [EDITED, OTHER, EDITED], [0, 0, 1], options.shares
    latents = torch.randn(2, 4, 8, 8, generator=torch.Generator().manual_seed(1))
    walk = options.method.walk(
        Setting(diffusion, diffusion.schedule(STEPS), options.guidances[0]), {"latent": latents}, [CAPTION, CAPTION]
    )
    control = make_control(
        options.control,
        alignments=[align(CAPTION, text, diffusion.tokens) for text in texts for _ in shares],
        owner=[owner for owner in owners for _ in shares],
        self_shares=shares * len(texts),
        steps=STEPS,
        length=diffusion.longest,
        device=diffusion.device,
        equal_until=[group for group in zip(owners, texts, strict=True) for _ in shares] if once else (),
        skip_unused_maps=once,
    )
    edited = diffusion.embed(texts).repeat_interleave(len(shares), dim=0)
    pull = torch.full((len(edited),), 4.0)
    return redraw(diffusion, diffusion.schedule(STEPS), walk, edited=edited, control=control, guidance=pull)


@pytest.mark.parametrize("inversion", ["negative-prompt", "ddim"])
@pytest.mark.parametrize(("blend", "blend_by"), [(0.0, "words"), (0.3, "words"), (0.3, "difference")])
def test_drawing_equals_once_changes_rounding_alone(
    make_diffusion: Callable[..., Diffusion], monkeypatch: pytest.MonkeyPatch, inversion: str, blend: float, blend_by: str
) -> None:
    diffusion = make_diffusion("v_prediction")
    options = Options(
        inversion=inversion,  # type: ignore[arg-type]
        steps=STEPS,
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
    assert calls[:STEPS] == [sources + 2 * 15] * STEPS
    # Of the shares 0, 0.4, 0.4, 0.6 and 1, two images of each edit are distinct at first, three from step 2, four from step 3.
    assert calls[STEPS:] == [sources + 2 * 3 * count for count in (2, 2, 3, 4, 4)]


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
