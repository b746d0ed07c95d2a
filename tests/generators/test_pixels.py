from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from counterfoil.core.errors import BadSpec
from counterfoil.engine.guidance import GradientAscent, Rows, StepLength
from counterfoil.parts.contracts import State
from counterfoil.parts.generators.pixels import PixelGenerator, pixels
from counterfoil.testing import check_generator, pictures
from tests.fakes import TinyModel

LABELS = torch.tensor([0, 1, 2, 3])


def start(generator: PixelGenerator, images: Tensor, seeds: Tensor | None = None) -> State:
    seeds = torch.arange(len(images)) if seeds is None else seeds
    return generator.start(images, torch.zeros(len(images), dtype=torch.long), seeds)


def attack(generator: PixelGenerator, images: Tensor, *, length: StepLength, budget: int) -> Tensor:
    """The search the engine does, without an oracle and without rounding to 8 bits."""
    model, guide, state = TinyModel(), GradientAscent(length), start(generator, images)
    for _ in range(budget):
        leaf = state["pixels"].detach().requires_grad_()
        loss = F.cross_entropy(model.logits(generator.render({**state, "pixels": leaf})), LABELS, reduction="sum")
        gradient = torch.autograd.grad(loss, leaf)[0]
        signal = guide.direction(gradient, Rows(leaf, state["scale"], range(4), [0] * 4))
        state = generator.step(state, signal)
    return generator.render(state).detach()


def loss_gradient(images: Tensor) -> Tensor:
    leaf = images.clone().requires_grad_()
    return torch.autograd.grad(F.cross_entropy(TinyModel()(leaf), LABELS, reduction="sum"), leaf)[0]


@pytest.mark.parametrize(
    "generator", [pixels(""), pixels("linf", epsilon=None), pixels("l2"), pixels("l2", epsilon=1.0, random_start=True)]
)
def test_contract(generator: PixelGenerator) -> None:
    check_generator(generator, size=16, exact=True)


def test_the_reconstruction_is_the_source() -> None:
    images = pictures(size=16)
    assert torch.equal(pixels("linf").render(start(pixels("linf"), images)), images)


def test_fgsm_is_one_step_of_signs() -> None:
    images, epsilon = pictures(size=16), 8 / 255
    made = attack(pixels("linf", epsilon=epsilon), images, length=StepLength(epsilon, "sign", "absolute"), budget=1)
    assert torch.equal(made, (images + epsilon * loss_gradient(images).sign()).clamp(0, 1))
    assert not torch.equal(made, images)


def test_pgd_is_many_projected_steps() -> None:
    images, epsilon, alpha = pictures(size=16), 0.05, 0.02
    made = attack(pixels("linf", epsilon=epsilon), images, length=StepLength(alpha, "sign", "absolute"), budget=5)
    by_hand = images
    for _ in range(5):
        by_hand = by_hand + alpha * loss_gradient(by_hand).sign()
        by_hand = images + (by_hand - images).clamp(-epsilon, epsilon)
        by_hand = by_hand.clamp(0, 1)
    assert torch.allclose(made, by_hand, atol=1e-6)
    assert (made - images).abs().max() == pytest.approx(epsilon, abs=1e-6)  # the ball was reached


def test_l2_pgd_is_many_projected_steps() -> None:
    images, epsilon, alpha = pictures(size=16) * 0.6 + 0.2, 0.5, 0.2
    made = attack(pixels("l2", epsilon=epsilon), images, length=StepLength(alpha, "l2", "absolute"), budget=5)
    by_hand = images
    for _ in range(5):
        gradient = loss_gradient(by_hand)
        change = by_hand + alpha * F.normalize(gradient.flatten(1)).reshape(gradient.shape) - images
        norms = change.flatten(1).norm(dim=1).reshape(-1, 1, 1, 1)
        by_hand = (images + change * (epsilon / norms).clamp(max=1)).clamp(0, 1)
    assert torch.allclose(made, by_hand, atol=1e-6)
    assert (made - images).flatten(1).norm(dim=1).max() == pytest.approx(epsilon, rel=1e-4)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_any_step_ends_inside_the_ball_and_the_range(norm: str) -> None:
    images, generator = pictures(size=16), pixels(norm, epsilon=0.1)
    signal = 3 * torch.randn(images.shape, generator=torch.Generator().manual_seed(0))
    made = generator.render(generator.step(start(generator, images), signal))
    change = (made - images).flatten(1)
    assert (change.abs().amax(1) if norm == "linf" else change.norm(dim=1)).max() <= 0.1 + 1e-6
    assert made.min() >= 0
    assert made.max() <= 1
    assert change.abs().sum() > 0


def test_without_a_ball_only_the_range_holds() -> None:
    images, generator = pictures(size=16), pixels("linf", epsilon=None)
    signal = 3 * torch.randn(images.shape, generator=torch.Generator().manual_seed(0))
    assert torch.equal(generator.step(start(generator, images), signal)["pixels"], (images + signal).clamp(0, 1))


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_random_starts_lie_in_the_ball_and_come_from_the_rows_seed(norm: str) -> None:
    images, generator = pictures(4, 16) * 0.6 + 0.2, pixels(norm, epsilon=0.1, random_start=True)
    drawn = start(generator, images, torch.tensor([5, 6, 7, 8]))["pixels"]
    change = (drawn - images).flatten(1)
    size = change.abs().amax(1) if norm == "linf" else change.norm(dim=1)
    assert (size <= 0.1 + 1e-6).all()
    assert (size > 0.09).all()
    alone = start(generator, images[2:3], torch.tensor([7]))["pixels"]
    assert torch.allclose(alone, drawn[2:3], atol=1e-7)
    other = start(generator, images, torch.tensor([9, 6, 7, 8]))["pixels"]
    assert not torch.equal(other[0], drawn[0])
    assert torch.equal(other[1:], drawn[1:])


def test_the_default_l2_ball_grows_with_the_picture() -> None:
    for size in (16, 32):
        images, generator = torch.full((1, 3, size, size), 0.5), pixels("l2")
        moved = generator.step(start(generator, images), torch.ones_like(images))["pixels"]
        assert float((moved - images).norm()) == pytest.approx(2 / 255 * math.sqrt(3 * size * size), rel=1e-4)


def test_epsilon_may_be_a_fraction() -> None:
    assert pixels("linf", epsilon="4/255").epsilon == pytest.approx(4 / 255)


@pytest.mark.parametrize(
    ("rest", "options", "complaint"),
    [
        ("l1", {}, "no pixel norm named 'l1'"),
        ("linf", {"epsilon": 0}, "a positive number"),
        ("linf", {"epsilon": -0.1}, "a positive number"),
        ("linf", {"epsilon": float("nan")}, "a positive number"),
        ("linf", {"epsilon": "eight"}, "write a number"),
        ("linf", {"epsilon": "8/0"}, "write a number"),
        ("l2", {"epsilon": None, "random_start": True}, "give an epsilon"),
    ],
)
def test_bad_options_are_refused(rest: str, options: dict[str, object], complaint: str) -> None:
    with pytest.raises(BadSpec, match=complaint):
        pixels(rest, **options)  # type: ignore[arg-type]
