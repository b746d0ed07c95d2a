from __future__ import annotations

import pytest
import torch

from counterfoil.core.errors import BadPart, BadSpec
from counterfoil.parts.generators.diffusion import NoiseLevels, Prediction, Process, add_noise
from tests.generators.diffusion.conftest import linear_process
from tests.generators.named_weights import named_pictures


@pytest.mark.parametrize("prediction", ["epsilon", "sample", "v_prediction"])
def test_a_right_guess_gives_picture_and_noise_back(prediction: Prediction) -> None:
    clean, noise = named_pictures(3, 8) * 2 - 1, named_pictures(3, 8, name="noise") * 4 - 2
    kept = torch.tensor([0.95, 0.5, 0.1]).reshape(3, 1, 1, 1)
    guess = {"epsilon": noise, "sample": clean, "v_prediction": kept.sqrt() * noise - (1 - kept).sqrt() * clean}
    found = linear_process(prediction).split(guess[prediction], add_noise(clean, noise, kept), kept)
    assert torch.allclose(found[0], clean, atol=1e-5)
    assert torch.allclose(found[1], noise, atol=1e-5)


def test_a_guess_out_of_range_is_cut_and_keeps_its_gradient() -> None:
    process, kept = linear_process("sample", limit=1.0), torch.full((1, 1, 1, 1), 0.5)
    guess = torch.tensor([-3.0, 0.5, 2.0]).reshape(1, 3, 1, 1).requires_grad_()
    noisy = torch.tensor([0.1, 0.2, 0.3]).reshape(1, 3, 1, 1)
    clean, noise = process.split(guess, noisy, kept)
    assert clean.flatten().tolist() == [-1.0, 0.5, 1.0]
    assert torch.allclose(add_noise(clean, noise, kept), noisy)  # both still add up to what was seen
    assert torch.autograd.grad(clean.sum(), guess)[0].flatten().tolist() == [1.0, 1.0, 1.0]


def test_the_ladder_starts_at_the_strength_and_is_even_in_time() -> None:
    process = linear_process()
    strength = float((1 - process.alphas_cumprod[399]).sqrt())
    ladder = NoiseLevels.down_from(strength, 10, process)
    assert ladder.times.tolist() == list(range(399, 0, -40))
    assert torch.equal(ladder.kept, process.alphas_cumprod[ladder.times])
    assert ladder.last == 9
    assert NoiseLevels.down_from(strength, 1, process).times.tolist() == [399]
    assert NoiseLevels.down_from(strength, 400, process).times.tolist() == list(range(399, -1, -1))


@pytest.mark.parametrize(
    ("strength", "steps", "complaint"),
    [(0.0, 10, "between 0 and 1"), (1.0, 10, "between 0 and 1"), (0.4, 0, "at least one"), (0.05, 40, "take fewer")],
)
def test_an_impossible_ladder_is_refused(strength: float, steps: int, complaint: str) -> None:
    with pytest.raises(BadSpec, match=complaint):
        NoiseLevels.down_from(strength, steps, linear_process())


def test_an_unknown_prediction_is_refused() -> None:
    with pytest.raises(BadPart, match="predicts 'flow'"):
        Process(torch.ones(3), "flow")  # type: ignore[arg-type]
