"""Schedules and inversions: steps of the library, what leads back to the image, and a reference straight from the paper."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from counterfoil.core.errors import BadPart
from counterfoil.parts.editors.diffusion import Diffusion, Schedule, guide, make_schedule
from counterfoil.parts.editors.inversion import Adam, Ddim, EditFriendly, Fitted, NullText, Setting
from tests.parts.editors.conftest import CAPTION, EDITED, scheduler

PREDICTIONS = ("epsilon", "v_prediction", "sample")


def rows(seed: int) -> torch.Tensor:
    return torch.randn(2, 4, 8, 8, generator=torch.Generator().manual_seed(seed)).double()


@pytest.mark.parametrize("prediction", PREDICTIONS)
@pytest.mark.parametrize("to_one", [False, True])
def test_a_ddim_step_is_that_of_diffusers(prediction: str, to_one: bool) -> None:
    theirs = scheduler(prediction, set_alpha_to_one=to_one)
    theirs.set_timesteps(10)
    ours = make_schedule(theirs.config, 10)
    assert ours.times == tuple(theirs.timesteps.tolist())
    for level, time in enumerate(theirs.timesteps):
        latents, output = rows(level), rows(100 + level)
        wanted = theirs.step(output, time, latents).prev_sample
        torch.testing.assert_close(ours.towards(ours.estimate(output, latents, level), level + 1), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("prediction", PREDICTIONS)
def test_a_ddpm_step_is_the_full_noise_step_of_diffusers(prediction: str) -> None:
    theirs = scheduler(prediction)
    theirs.set_timesteps(10)
    ours = make_schedule(theirs.config, 10)
    for level, time in enumerate(theirs.timesteps):
        latents, output, noise = rows(level), rows(100 + level), rows(200 + level)
        wanted = theirs.step(output, time, latents, eta=1.0, variance_noise=noise).prev_sample
        mean, deviation = ours.posterior(ours.estimate(output, latents, level), level)
        torch.testing.assert_close(mean + deviation * noise, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("prediction", PREDICTIONS)
def test_an_estimate_puts_the_latents_together_again(prediction: str) -> None:
    schedule = make_schedule(scheduler(prediction).config, 7)
    for level in range(7):
        latents = rows(level)
        estimate = schedule.estimate(rows(50 + level), latents, level)
        torch.testing.assert_close(schedule.towards(estimate, level), latents)


def test_a_step_to_the_clean_end_needs_no_noise() -> None:
    schedule = make_schedule(scheduler(set_alpha_to_one=True).config, 5)
    assert schedule.posterior(schedule.estimate(rows(0), rows(1), 4), 4)[1] == 0


@pytest.mark.parametrize("steps", [0, 1001])
def test_impossible_steps_are_named(steps: int) -> None:
    with pytest.raises(BadPart, match="from 1 to 1000"):
        make_schedule(scheduler().config, steps)


def test_pure_noise_needs_another_prediction() -> None:
    with pytest.raises(BadPart, match="v_prediction"):
        make_schedule(scheduler(rescale_betas_zero_snr=True, timestep_spacing="trailing").config, 10)
    assert (
        make_schedule(scheduler("v_prediction", rescale_betas_zero_snr=True, timestep_spacing="trailing").config, 10).kept[0] == 0
    )


STEPS = 3
INNER = 4
TEXTS = [CAPTION, EDITED, "a sketch of a pink silk bag in a forest"]


@pytest.fixture(params=["epsilon", "v_prediction"])
def either(request: pytest.FixtureRequest, make_diffusion: Callable[..., Diffusion]) -> Diffusion:
    return make_diffusion(request.param)


def some_latents(count: int = 3) -> Tensor:
    return torch.randn(count, 4, 8, 8, generator=torch.Generator().manual_seed(3))


def walk_down(diffusion: Diffusion, schedule: Schedule, latents: Tensor, texts: Tensor) -> Tensor:
    with torch.no_grad():
        for step in range(schedule.steps):
            output = diffusion.predict(latents, schedule.times[step], texts)
            latents = schedule.towards(schedule.estimate(output, latents, step), step + 1)
    return latents


def test_refinements_make_the_unguided_walk_lead_back(either: Diffusion) -> None:
    with torch.no_grad():
        either.unet.conv_out.weight.mul_(0.2)  # a trained network changes little from level to level; a random one too, so scaled
    schedule, latents, texts = either.schedule(6), some_latents(), either.embed(TEXTS)
    errors = [
        (walk_down(either, schedule, Ddim(count).levels(Setting(either, schedule, 1.0), latents, texts)[0], texts) - latents)
        .abs()
        .max()
        for count in (0, 3, 12)
    ]
    assert errors[2] < 1e-3 and errors[2] <= errors[1] < errors[0]


def test_edit_friendly_noise_leads_back_exactly(either: Diffusion) -> None:
    schedule, latents, texts = either.schedule(STEPS), some_latents(), either.embed(TEXTS)
    method = EditFriendly(skip=1 / STEPS, source_guidance=3.5)
    assert method.first(schedule) == 1
    found = method.invert(Setting(either, schedule, 1.0), latents, TEXTS, [1, 2, 3])
    here, noises = found["latent"], found["noises"]
    with torch.no_grad():
        for place, level in enumerate(range(1, STEPS)):
            answers = [either.predict(here, schedule.times[level], side) for side in (either.embed([""] * 3), texts)]
            mean, deviation = schedule.posterior(schedule.estimate(guide(*answers, 3.5), here, level), level)
            here = mean + deviation * noises[:, place]
    torch.testing.assert_close(here, latents, rtol=1e-4, atol=1e-4)


def test_edit_friendly_levels_are_noised_each_on_its_own(diffusion: Diffusion) -> None:
    setting, latents = Setting(diffusion, diffusion.schedule(STEPS), 1.0), some_latents()

    def invert(seeds: list[int]) -> tuple[Tensor, Tensor]:
        found = EditFriendly(skip=0).invert(setting, latents, TEXTS, seeds)
        return found["latent"], found["noises"]

    start, noises = invert([1, 2, 3])
    assert noises.shape == (3, STEPS, 4, 8, 8)
    again = invert([1, 2, 9])
    assert torch.equal(again[0][:2], start[:2]) and not torch.equal(again[0][2], start[2])  # by the row's own seed


def fit(diffusion: Diffusion, rows: list[int], method: NullText | None = None) -> tuple[Fitted, list[Tensor]]:
    setting, texts = Setting(diffusion, diffusion.schedule(STEPS), 7.5), diffusion.embed([TEXTS[row] for row in rows])
    levels = Ddim().levels(setting, some_latents()[rows], texts)
    empty = diffusion.embed([""] * len(rows))
    return (method or NullText(inner_steps=INNER)).fit(setting, levels, conditional=texts, empty=empty), levels


def reference(diffusion: Diffusion, row: int) -> Tensor:
    """Null-text optimisation of one image, straight from the paper, with torch's own optimiser."""
    schedule, text = diffusion.schedule(STEPS), diffusion.embed([TEXTS[row]])
    levels = Ddim().levels(Setting(diffusion, schedule, 7.5), some_latents()[[row]], text)
    empty, latents = diffusion.embed([""]), levels[0]
    for step in range(STEPS):
        empty = empty.detach().clone().requires_grad_()
        optimiser = torch.optim.Adam([empty], lr=1e-2 * (1 - step / 100))
        with torch.no_grad():
            told = diffusion.predict(latents, schedule.times[step], text)
        for _ in range(INNER):
            output = guide(diffusion.predict(latents, schedule.times[step], empty), told, 7.5)
            reached = schedule.towards(schedule.estimate(output, latents, step), step + 1)
            loss = torch.nn.functional.mse_loss(reached, levels[step + 1])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            if loss.item() < 1e-5 + step * 2e-5:
                break
        with torch.no_grad():
            output = guide(diffusion.predict(latents, schedule.times[step], empty), told, 7.5)
            latents = schedule.towards(schedule.estimate(output, latents, step), step + 1)
    return latents


def test_batched_null_text_is_the_papers_algorithm_row_by_row(either: Diffusion) -> None:
    together = fit(either, [0, 1, 2])[0].latents
    for row in (0, 2):
        torch.testing.assert_close(together[row], reference(either, row)[0], rtol=1e-2, atol=1e-2)  # embeddings kept as halves


def test_a_row_that_is_near_enough_stops_and_leaves_the_others_going(diffusion: Diffusion) -> None:
    schedule, texts = diffusion.schedule(1), diffusion.embed([TEXTS[0], TEXTS[0]])
    setting = Setting(diffusion, schedule, 7.5)
    empty = torch.cat([texts[:1], diffusion.embed([""])])  # the first row needs no fitting: both sides are its caption
    start = Ddim().levels(setting, some_latents(2), texts)[0]
    goal = torch.cat([walk_down(diffusion, schedule, start[:1], texts[:1]), some_latents(2)[1:] + 1])
    made = NullText().fit(setting, [start, goal], conditional=texts, empty=empty)
    assert made.inner_steps.tolist() == [1, 10]


def test_adam_is_torchs() -> None:
    ours, theirs = torch.zeros(2, 3), torch.zeros(2, 3, requires_grad=True)
    adam, optimiser = Adam(torch.zeros(2, 3), torch.zeros(2, 3)), torch.optim.Adam([theirs], lr=0.01)
    for count in range(1, 6):
        gradient = torch.randn(2, 3, generator=torch.Generator().manual_seed(count))
        ours = ours - 0.01 * adam.direction(gradient, count)
        theirs.grad = gradient
        optimiser.step()
    torch.testing.assert_close(ours, theirs.detach())
