from __future__ import annotations

import pytest
import torch

from counterfoil.core.errors import BadPart
from counterfoil.parts.editors.diffusion import make_schedule
from tests.parts.editors.conftest import scheduler

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


def test_levels_lose_noise_and_end_at_the_schedulers_last() -> None:
    schedule = make_schedule(scheduler().config, 20)
    assert list(schedule.kept) == sorted(schedule.kept) and len(schedule.kept) == 21
    assert schedule.kept[-1] == pytest.approx(float(scheduler().final_alpha_cumprod))


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
