from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from counterfoil.core.errors import BadSpec
from counterfoil.engine.guidance import GradientAscent, RandomSteps, Rows, StepLength
from counterfoil.parts.contracts import State
from counterfoil.parts.generators import transforms as module
from counterfoil.parts.generators.corruptions import COMMON, FAMILIES, GROUPS
from counterfoil.parts.generators.transforms import TransformGenerator, transforms
from counterfoil.testing import check_generator

Photos = Callable[..., Tensor]

Loss = Callable[[Tensor], Tensor]


def start(generator: TransformGenerator, images: Tensor, seeds: Tensor | None = None) -> State:
    seeds = torch.arange(len(images)) if seeds is None else seeds
    return generator.start(images, torch.zeros(len(images), dtype=torch.long), seeds)


def severities(generator: TransformGenerator, state: State, **doses: float) -> State:
    severity = state["severity"].clone()
    for name, dose in doses.items():
        severity[:, generator.families.index(name.replace("_", "-"))] = dose
    return {**state, "severity": severity}


def gradient_of(generator: TransformGenerator, state: State, loss: Loss) -> Tensor:
    leaf = state["severity"].clone().requires_grad_()
    return torch.autograd.grad(loss(generator.render({**state, "severity": leaf})).sum(), leaf)[0]


def climb(generator: TransformGenerator, images: Tensor, loss: Loss, *, step: float, budget: int) -> State:
    state, guide = start(generator, images), GradientAscent(StepLength(step, "l2", "scale"))
    for _ in range(budget):
        signal = guide.direction(gradient_of(generator, state, loss), Rows(state["severity"], state["scale"], [], []))
        state = generator.step(state, signal)
    return state


def brightness(images: Tensor) -> Tensor:
    return images.sum((1, 2, 3))


def flatness(images: Tensor) -> Tensor:
    return -images.var((2, 3)).sum(1)


@pytest.mark.parametrize(
    "generator", [transforms(""), transforms("fog"), transforms("blur,hue", choose="all"), transforms("", kinds=3)]
)
def test_contract(generator: TransformGenerator) -> None:
    check_generator(generator, exact=True)


def test_names_groups_and_lists_choose_families() -> None:
    assert transforms("").families == tuple(FAMILIES)
    assert set(transforms("imagenet-c").families) == set(COMMON)
    assert transforms("fog, noise").families == ("fog", *GROUPS["noise"])
    assert transforms("", families=["hue", "rotation", "hue"]).families == ("rotation", "hue")


@pytest.mark.parametrize(
    ("rest", "options", "complaint"),
    [
        ("fogg", {}, "no family of transforms named 'fogg'; did you mean 'fog'"),
        ("zzzz", {}, "they are rotation, .*imagenet-c"),
        ("fog", {"families": ["hue"]}, "give one of them"),
        ("", {"families": []}, "at least one family"),
        ("", {"choose": "some"}, "choose is 'one' .* or 'all'"),
        ("", {"kinds": 0}, "at least one family"),
    ],
)
def test_bad_options_are_refused(rest: str, options: dict[str, object], complaint: str) -> None:
    with pytest.raises(BadSpec, match=complaint):
        transforms(rest, **options)  # type: ignore[arg-type]


def test_severity_zero_is_the_source_to_the_last_bit(photos: Photos) -> None:
    images, generator = photos(8), transforms("")
    state = start(generator, images)
    assert torch.equal(generator.render(state), images)
    leaf = state["severity"].clone().requires_grad_()
    assert torch.equal(generator.render({**state, "severity": leaf}), images)


@pytest.mark.parametrize("name", list(FAMILIES))
def test_at_zero_the_gradient_is_the_chord_to_the_first_level(name: str, photos: Photos) -> None:
    images, weighting = photos(4), photos(4, seed=30)
    alone, all_of_them = transforms(name), transforms("")
    gradient = gradient_of(alone, start(alone, images), lambda made: made * weighting)[:, 0]
    first = alone.render({**start(alone, images), "severity": torch.full((4, 1), 0.2)})
    expected = ((first - images).double() / 0.2 * weighting).sum((1, 2, 3))
    assert (gradient != 0).all()
    assert gradient.tolist() == pytest.approx(expected.tolist(), rel=1e-3, abs=1e-2)
    among = gradient_of(all_of_them, start(all_of_them, images), lambda made: made * weighting)
    assert torch.allclose(among[:, all_of_them.families.index(name)], gradient, rtol=1e-4, atol=1e-3)


def test_a_family_at_work_is_felt_together_with_those_not_yet(photos: Photos) -> None:
    images, weighting, generator = photos(2), photos(2, seed=30), transforms("contrast,brightness", choose="all")
    state = severities(generator, start(generator, images), contrast=0.5)
    rendered = generator.render(state)
    assert torch.allclose(rendered, images + 0.475 * (images.mean((2, 3), keepdim=True) - images), atol=1e-6)
    gradient = gradient_of(generator, state, lambda made: made * weighting)
    by_brightness = 0.5 * weighting.sum((1, 2, 3))
    by_contrast = (0.95 * (images.mean((2, 3), keepdim=True) - images) * weighting).sum((1, 2, 3))
    assert torch.allclose(gradient[:, generator.families.index("brightness")], by_brightness, rtol=1e-3)
    assert torch.allclose(gradient[:, generator.families.index("contrast")], by_contrast, rtol=1e-3)


@pytest.mark.parametrize(("loss", "family"), [(brightness, "brightness"), (flatness, "contrast")])
def test_each_picture_gets_the_family_that_raises_its_loss_most(loss: Loss, family: str, photos: Photos) -> None:
    generator = transforms("brightness,contrast,hue,rotation")
    state = climb(generator, photos(3), loss, step=0.1, budget=4)
    expected = torch.zeros(3, 4)
    expected[:, generator.families.index(family)] = 0.4
    assert torch.allclose(state["severity"], expected, atol=1e-6)


def test_the_choice_is_made_picture_by_picture(photos: Photos) -> None:
    generator, sign = transforms("brightness,contrast"), torch.tensor([1.0, 0.0])
    state = climb(generator, photos(2), lambda x: sign * brightness(x) + (1 - sign) * flatness(x), step=0.1, budget=1)
    columns = [generator.families.index(name) for name in ("brightness", "contrast")]
    assert state["severity"].argmax(1).tolist() == columns


def test_a_step_moves_one_family_by_the_signals_length() -> None:
    generator = transforms("hue,fog,jpeg")  # applied, and held, in the order fog, hue, jpeg
    state = generator.step(start(generator, torch.zeros(1, 3, 8, 8)), torch.tensor([[-0.4, 0.3, 0.0]]))
    assert generator.families == ("fog", "hue", "jpeg")
    assert torch.allclose(state["severity"], torch.tensor([[0.0, 0.5, 0.0]]))


def test_the_family_once_chosen_keeps_growing_up_to_one() -> None:
    generator = transforms("hue,fog,jpeg")
    state = generator.step(start(generator, torch.zeros(1, 3, 8, 8)), torch.tensor([[0.0, 0.4, 0.0]]))
    for signal, dose in (([0.4, 0.0, 0.0], 0.8), ([0.0, -0.1, 0.0], 0.9), ([0.3, 0.0, 0.0], 1.0), ([0.3, 0.0, 0.0], 1.0)):
        state = generator.step(state, torch.tensor([signal]))
        assert torch.allclose(state["severity"], torch.tensor([[0.0, dose, 0.0]]))


def test_as_many_kinds_are_taken_up_as_allowed() -> None:
    generator = transforms("hue,fog,jpeg", kinds=2)
    state = start(generator, torch.zeros(1, 3, 8, 8))
    for column in (1, 0, 2, 2):  # the third kind is not taken up; the steepest of the two at work moves instead
        signal = torch.full((1, 3), 0.0)
        signal[0, column], signal[0, 0] = 0.3, signal[0, 0] + 0.01 if column else 0.3
        state = generator.step(state, signal)
    assert (state["severity"] > 0).tolist() == [[True, True, False]]
    assert state["severity"][0, 0] > 0.85


def test_a_family_at_its_end_makes_room_for_the_other_one() -> None:
    generator = transforms("hue,fog,jpeg", kinds=2)
    state = start(generator, torch.zeros(1, 3, 8, 8))
    state["severity"] = torch.tensor([[1.0, 0.25, 0.0]])
    assert torch.allclose(generator.step(state, torch.tensor([[0.5, 0.0, 0.0]]))["severity"], torch.tensor([[1.0, 0.75, 0.0]]))


def test_all_follow_the_signal_when_asked_and_stay_in_range() -> None:
    generator = transforms("hue,fog,jpeg", choose="all")
    state = generator.step(start(generator, torch.zeros(1, 3, 8, 8)), torch.tensor([[0.5, -0.5, 1.5]]))
    assert state["severity"].tolist() == [[0.5, 0.0, 1.0]]


def test_signs_leave_the_choice_to_the_seed() -> None:
    generator = transforms("")
    state = start(generator, torch.zeros(200, 3, 8, 8), torch.arange(200))
    chosen = generator.step(state, torch.full_like(state["severity"], 0.1))["severity"].argmax(1)
    assert len(chosen.unique()) == len(FAMILIES)
    assert torch.equal(chosen, generator.step(state, torch.full_like(state["severity"], 0.1))["severity"].argmax(1))


def test_random_steps_are_as_long_as_guided_ones(photos: Photos) -> None:
    generator, images = transforms(""), photos(4)
    length = StepLength(0.1, "l2", "scale")
    state = start(generator, images)
    for draw in range(5):
        signal = RandomSteps(length).direction(None, Rows(state["severity"], state["scale"], range(4), [draw] * 4))
        state = generator.step(state, signal)
    guided = climb(generator, images, brightness, step=0.1, budget=5)
    assert torch.allclose(state["severity"].sum(1), torch.full((4,), 0.5), atol=1e-5)
    assert torch.allclose(guided["severity"].sum(1), torch.full((4,), 0.5), atol=1e-5)
    assert ((state["severity"] > 0).sum(1) == 1).all()


def test_only_families_that_may_move_are_rendered(photos: Photos, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    for name, family in list(FAMILIES.items()):
        monkeypatch.setitem(FAMILIES, name, lambda *given, name=name, family=family: (seen.append(name), family(*given))[1])
    generator = transforms("")
    state = severities(generator, start(generator, photos(1)), fog=0.3)
    gradient_of(generator, state, brightness)
    assert seen == ["fog"]
    generator.render(start(generator, photos(1)))
    assert seen == ["fog"]  # nothing at work, and no gradient asked for
    gradient_of(generator, start(generator, photos(1)), brightness)
    assert seen == ["fog", *FAMILIES]


def mixed_state(generator: TransformGenerator, images: Tensor) -> State:
    """Two families at work in every image, others in every one."""
    state, count = start(generator, images, torch.arange(len(images)) + 100), len(generator.families)
    severity = torch.zeros_like(state["severity"])
    for row in range(len(images)):
        severity[row, (3 * row) % count] = 0.15 + 0.1 * row
        severity[row, (3 * row + 7) % count] = 0.9 - 0.1 * row
    return {**state, "severity": severity}


def test_rows_rendered_together_look_as_alone(photos: Photos, monkeypatch: pytest.MonkeyPatch) -> None:
    generator, images, weighting = transforms("", kinds=3), photos(8), photos(1, seed=30)
    state = mixed_state(generator, images)
    alone = generator.render(state), gradient_of(generator, state, lambda made: made * weighting)

    def together(chosen: Tensor) -> Iterator[list[int]]:  # as on a GPU
        if chosen.any():
            yield chosen.nonzero().flatten().tolist()

    monkeypatch.setattr(module, "_batches", together)
    assert torch.allclose(generator.render(state), alone[0], atol=1e-5)
    assert torch.allclose(gradient_of(generator, state, lambda made: made * weighting), alone[1], rtol=1e-3, atol=0.05)


def test_pictures_come_from_seeds_alone(photos: Photos) -> None:
    generator, images = transforms(""), photos(4)
    state = mixed_state(generator, images)
    before = torch.get_rng_state()
    first = generator.render(state)
    torch.manual_seed(99)
    assert torch.equal(generator.render(state), first)
    torch.set_rng_state(before)
    noisy = severities(generator, start(generator, images), gaussian_noise=0.5)
    assert not torch.equal(generator.render(noisy), generator.render({**noisy, "seed": noisy["seed"] + 1}))


def test_provenance_names_the_families() -> None:
    assert transforms("fog,hue", kinds=2).provenance() == {"families": "fog, hue", "choose": "one", "kinds": "2"}
