"""The lab's world: scenes drawn from their row alone, exact masks, planted shares, the tools of drawing, and the grammar."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F

from counterfoil.core.errors import BadData, UnknownName
from counterfoil_lab.captions import captions, compose, parse, replace
from counterfoil_lab.drawing.canvas import (
    apply_shade,
    apply_tone,
    bits,
    bits_in_torch,
    blur,
    ease,
    ink,
    line,
    mix,
    over,
    smooth,
    spread,
    step,
    uniform,
)
from counterfoil_lab.drawing.render import render
from counterfoil_lab.world import (
    DISTRIBUTIONS,
    FACTORS,
    GARMENTS,
    PLANTED_BACKGROUNDS,
    PLANTED_COLOURS,
    PLANTED_SHARE,
    STUDIOS,
    UNSAID,
    Garments,
    Scenes,
    load_shipped,
    sample,
)

PINNED_BITS = [[3568689886, 1976104454], [3095535871, 2427445645], [2644867984, 658839842]]


@pytest.fixture(scope="module")
def garments() -> Garments:
    return load_shipped("tune")


def same(first: Scenes, second: Scenes) -> bool:
    columns = [(first.factors[name], second.factors[name]) for name in FACTORS]
    columns += [(first.garment, second.garment), (first.seed, second.seed)]
    return all(torch.equal(a, b) for a, b in columns)


def words(scenes: Scenes, factor: str) -> list[str]:
    return [FACTORS[factor][index] for index in scenes.factors[factor].tolist()]


def test_hash_values_are_fixed_for_ever() -> None:
    seeds = torch.tensor([0, 1, 2**40 + 5])
    assert bits(seeds, "pinned", 2).tolist() == PINNED_BITS
    assert bool((bits(seeds, "pinned", 100) >= 0).all())


def test_random_numbers_are_uniform_and_uncorrelated() -> None:
    seeds = torch.arange(20_000)
    numbers = uniform(seeds, "uniform", 2)
    assert abs(numbers.mean().item() - 0.5) < 0.01
    assert numbers.min() >= 0
    assert numbers.max() < 1
    assert abs(torch.corrcoef(numbers.T)[0, 1].item()) < 0.03
    neighbours = torch.stack((numbers[:-1, 0], numbers[1:, 0]))
    assert abs(torch.corrcoef(neighbours)[0, 1].item()) < 0.03
    other = torch.stack((numbers[:, 0], uniform(seeds, "another purpose")[:, 0]))
    assert abs(torch.corrcoef(other)[0, 1].item()) < 0.03


def test_sampling_repeats_and_a_longer_draw_begins_the_same(garments: Garments) -> None:
    first = sample(50, garments=garments, seed=3)
    assert same(first, sample(50, garments=garments, seed=3))
    assert same(first, sample(80, garments=garments, seed=3)[:50])
    assert not same(first, sample(50, garments=garments, seed=4))


def test_seeds_do_not_collide(garments: Garments) -> None:
    first, second = (sample(20_000, garments=garments, seed=seed).seed for seed in (0, 1))
    assert len(torch.cat((first, second)).unique()) == 40_000


def test_full_distribution_uses_every_value_about_equally(garments: Garments) -> None:
    scenes = sample(20_000, garments=garments)
    for name, values in FACTORS.items():
        shares = torch.bincount(scenes.factors[name], minlength=len(values)) / len(scenes)
        assert (shares * len(values) - 1).abs().max() < 0.12, name


def test_narrow_distribution_is_studio_photographs(garments: Garments) -> None:
    scenes = sample(2_000, garments=garments, distribution="narrow")
    assert set(words(scenes, "background")) == set(STUDIOS)
    assert set(words(scenes, "domain")) == {"photo"}
    for name, value in UNSAID.items():
        assert set(words(scenes, name)) == {value}
    assert set(words(scenes, "colour")) == set(FACTORS["colour"])


@pytest.mark.parametrize(
    ("distribution", "factor", "planted"),
    [("background-shortcut", "background", PLANTED_BACKGROUNDS), ("colour-shortcut", "colour", PLANTED_COLOURS)],
)
def test_shortcut_is_planted_in_its_share_of_scenes(
    garments: Garments, distribution: str, factor: str, planted: dict[str, str]
) -> None:
    assert len(set(planted.values())) == len(GARMENTS)
    scenes = sample(20_000, garments=garments, distribution=distribution)
    pairs = list(zip(words(scenes, "garment"), words(scenes, factor), strict=True))
    for garment in GARMENTS:
        seen = [value for name, value in pairs if name == garment]
        assert abs(seen.count(planted[garment]) / len(seen) - PLANTED_SHARE) < 0.02
        assert len(set(seen)) == len(FACTORS[factor])
    other = "colour" if factor == "background" else "background"
    shares = torch.bincount(scenes.factors[other]) / len(scenes)
    assert (shares * len(FACTORS[other]) - 1).abs().max() < 0.12


def test_unknown_distribution_is_refused(garments: Garments) -> None:
    with pytest.raises(UnknownName, match=r"'wide'.*narrow"):
        sample(2, garments=garments, distribution="wide")


def test_garments_without_a_class_are_refused(garments: Garments) -> None:
    with pytest.raises(BadData, match="no boot"):
        sample(100, garments=garments[garments.labels != GARMENTS.index("boot")])


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_pictures_and_masks_have_their_promised_form(garments: Garments, distribution: str) -> None:
    images, masks = render(sample(40, garments=garments, distribution=distribution), garments)
    assert images.shape == (40, 3, 64, 64)
    assert images.dtype == torch.float32
    assert masks.shape == (40, 1, 64, 64)
    assert masks.dtype == torch.bool
    assert torch.isfinite(images).all()
    assert images.min() >= 0
    assert images.max() <= 1
    shares = masks.float().mean((1, 2, 3))
    assert shares.min() > 0.04
    assert shares.max() < 0.75


def test_rendering_does_not_depend_on_the_batch(garments: Garments) -> None:
    scenes = sample(300, garments=garments, seed=8)
    images, masks = render(scenes, garments)
    order = torch.arange(299, -1, -7)
    again, masks_again = render(scenes[order], garments)
    assert torch.allclose(again, images[order], atol=1e-5)
    assert torch.equal(masks_again, masks[order])
    alone, _ = render(scenes[17:18], garments)
    assert torch.allclose(alone, images[17:18], atol=1e-5)


def test_rendering_does_not_depend_on_the_threads(garments: Garments) -> None:
    scenes = sample(150, garments=garments, seed=10)
    before = torch.get_num_threads()
    drawn = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            drawn.append(render(scenes, garments))
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    for images, masks in drawn[1:]:
        assert torch.allclose(images, drawn[0][0], atol=1e-5)
        assert torch.equal(masks, drawn[0][1])


@pytest.mark.parametrize("factor", ["colour", "material", "texture"])
def test_mask_bounds_every_change_of_the_garment(garments: Garments, factor: str) -> None:
    scenes = sample(240, garments=garments, seed=5)
    images, masks = render(scenes, garments)
    changed = Scenes({**scenes.factors, factor: (scenes.factors[factor] + 1) % len(FACTORS[factor])}, scenes.garment, scenes.seed)
    others, other_masks = render(changed, garments)
    assert torch.equal(masks, other_masks)
    difference = (images - others).abs().amax(1, keepdim=True)
    assert difference[~masks].max() == 0
    inside = (difference * masks).flatten(1).sum(1) / masks.flatten(1).sum(1)
    assert inside.min() > 0.005


@pytest.mark.parametrize("factor", [name for name in FACTORS if name != "garment"])
def test_every_value_looks_different(garments: Garments, factor: str) -> None:
    scenes = sample(6, garments=garments, seed=7)
    versions = [render(scenes.having(factor, value), garments)[0] for value in FACTORS[factor]]
    for index, first in enumerate(versions):
        for second in versions[:index]:
            assert ((first - second).abs() > 0.03).float().mean((1, 2, 3)).min() > 0.005


def test_unknown_value_is_refused(garments: Garments) -> None:
    scenes = sample(1, garments=garments)
    with pytest.raises(UnknownName, match="tartan"):
        scenes.having("texture", "tartan")
    with pytest.raises(UnknownName, match="garment"):
        scenes.having("garment", "boot")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_gpu_agrees_with_cpu(garments: Garments) -> None:
    here = sample(500, garments=garments, seed=9)
    there = sample(500, garments=garments, seed=9, device="cuda")
    assert same(here, there.to("cpu"))
    images, masks = render(here, garments)
    other_images, other_masks = render(there, garments.to("cuda"))
    assert (images - other_images.cpu()).abs().mean() < 1e-4
    assert (masks == other_masks.cpu()).float().mean() > 0.9999


CPU = torch.device("cpu")


@pytest.fixture
def field() -> torch.Tensor:
    return torch.rand((5, 64, 64), generator=torch.Generator().manual_seed(1))


@pytest.fixture
def picture() -> torch.Tensor:
    return torch.rand((5, 3, 64, 64), generator=torch.Generator().manual_seed(2))


def test_steps_and_eases_rise_from_nothing_to_one(field: torch.Tensor) -> None:
    assert torch.allclose(step(field, 0.4, 0.5), ((field - 0.4) / 0.5 + 0.5).clamp(0, 1), atol=1e-6)
    assert torch.allclose(step(field, 0.4), (field + 0.1).clamp(max=1), atol=1e-6)
    assert torch.allclose(step(field, field), torch.full_like(field, 0.5), atol=1e-6)
    for low, high in ((0.2, 0.7), (0.0, 0.5), (0.9, 0.1)):
        ramp = ((field - low) / (high - low)).clamp(0, 1)
        assert torch.allclose(ease(field, low, high), ramp**2 * (3 - 2 * ramp), atol=1e-5)


def test_drawing_in_place_gives_what_drawing_anew_does(field: torch.Tensor, picture: torch.Tensor) -> None:
    red = ink(CPU, 0.9, 0.1, 0.2)
    assert torch.equal(over(picture.clone(), red, field), mix(picture, red, field))
    assert torch.equal(over(picture.clone(), red, 0.3), mix(picture, red, 0.3))
    assert torch.equal(over(picture[:1], red, field), mix(picture[:1], red, field))  # one sky for a whole batch
    assert torch.equal(apply_tone(picture.clone(), field), apply_shade(picture, field))
    assert torch.equal(apply_tone(picture[:1], field), apply_shade(picture[:1], field))


def test_neighbourhoods_are_those_of_pooling_and_convolution(field: torch.Tensor) -> None:
    assert torch.equal(spread(field), F.max_pool2d(field.unsqueeze(1), 3, stride=1, padding=1)[:, 0])
    weights = torch.tensor([0.25, 0.5, 0.25])
    smeared = F.conv2d(field.unsqueeze(1), (weights[:, None] * weights).view(1, 1, 3, 3), padding=1)[:, 0]
    assert torch.allclose(blur(field), smeared, atol=1e-6)


SEEDS = torch.tensor([0, 1, -1, 2**31, 2**40 + 5, -(2**62), 2**63 - 1])


def test_a_cpus_hash_is_that_of_other_devices() -> None:
    for purpose, count in (("one", 1), ("many", 33)):
        assert torch.equal(bits(SEEDS, purpose, count), bits_in_torch(SEEDS, purpose, count))


def test_smooth_noise_of_a_seed_does_not_depend_on_the_others() -> None:
    seeds = torch.arange(40)
    for draw in (lambda some: smooth(some, "noise", 14, 9), lambda some: line(some, "noise", 7)):
        together = draw(seeds)
        assert torch.equal(together[17:18], draw(seeds[17:18]))
        assert torch.equal(together[5:20], draw(seeds[5:20]))


VALUES = {
    "garment": "boot",
    "colour": "red",
    "material": "leather",
    "texture": "striped",
    "background": "wooden floor",
    "object": "ball",
    "domain": "photo",
    "weather": "fog",
}


CAPTION = "a photo of a red striped leather boot on a wooden floor next to a ball in fog"


def test_a_caption_reads_as_english() -> None:
    assert compose(VALUES) == CAPTION
    assert compose({**VALUES, **UNSAID}) == "a photo of a red leather boot on a wooden floor"
    assert compose({**VALUES, **UNSAID, "colour": "orange"}) == "a photo of an orange leather boot on a wooden floor"
    trousers = {**VALUES, **UNSAID, "garment": "trousers", "domain": "thermal", "background": "night sky"}
    assert compose(trousers) == "a thermal image of a pair of red leather trousers under a night sky"


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_captions_parse_back_to_every_attribute(distribution: str) -> None:
    scenes = sample(3_000, garments=load_shipped("tune"), distribution=distribution, seed=1)
    columns = {name: values.tolist() for name, values in scenes.factors.items()}
    for row, caption in enumerate(captions(scenes)):
        assert parse(caption) == {name: FACTORS[name][columns[name][row]] for name in FACTORS}, caption


def test_every_pair_of_values_parses_back() -> None:
    for first, second in itertools.combinations(FACTORS, 2):
        for one, other in itertools.product(FACTORS[first], FACTORS[second]):
            values = {**VALUES, first: one, second: other}
            assert parse(compose(values)) == values


@pytest.mark.parametrize("factor", FACTORS)
def test_replace_changes_one_factor_alone(factor: str) -> None:
    for value in FACTORS[factor]:
        assert parse(replace(CAPTION, factor, value)) == {**VALUES, factor: value}


@pytest.mark.parametrize(
    "caption",
    [
        "",
        "a dog",
        "a photo of a boot",
        "a photo of a red boot on a wooden floor",
        "a photo of a striped red leather boot on a wooden floor",
        "a photo of a red leather boot on a wooden floor in fog next to a ball",
        "a photo of a red leather trousers on a wooden floor",
        "a photo of a pair of red leather boot on a wooden floor",
        CAPTION + " at night",
        CAPTION.replace("red", "teal"),
    ],
)
def test_other_sentences_are_outside_the_grammar(caption: str) -> None:
    assert parse(caption) is None


def test_unknown_words_are_refused() -> None:
    with pytest.raises(UnknownName, match=r"teal.*red, orange"):
        replace(CAPTION, "colour", "teal")
    with pytest.raises(UnknownName, match=r"'mood'.*garment, colour"):
        replace(CAPTION, "mood", "sad")
    with pytest.raises(UnknownName, match="a dog"):
        replace("a dog", "colour", "red")
