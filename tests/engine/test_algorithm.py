"""The engine against Algorithm 1 written plainly, image by image and bit by bit."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from counterfoil.core.errors import RunFailed
from counterfoil.core.spec import SearchSpec
from counterfoil.engine.climb import Assessment, Climb, Rules, as_agreement
from counterfoil.engine.guidance import draw, draw_patch
from counterfoil.parts.contracts import Verdicts
from counterfoil.parts.generators.latent import LatentGenerator
from counterfoil.parts.generators.pixels import pixels as pixel_generator
from counterfoil.parts.generators.transforms import transforms
from tests import climbs as reference
from tests.climbs import COLUMNS, climb, jobs
from tests.fakes import CommandedOracle, RuleOracle, TinyAutoencoder, TinyModel, pixels

pytestmark = pytest.mark.rounding

FAMILIES = {
    "latent": (lambda: LatentGenerator(TinyAutoencoder()), SearchSpec(budget=4, step=0.2, control="path")),
    "pixels": (
        lambda: pixel_generator("linf", epsilon=0.2),
        SearchSpec(budget=4, step=0.04, norm="sign", unit="absolute", control="path"),
    ),
    "transforms": (
        lambda: transforms("gaussian-noise,brightness,rotation,defocus-blur"),
        SearchSpec(budget=4, step=0.15, norm="sign", control="path"),
    ),
}


@cache
def trail(family: str, copies: int) -> dict[str, list[str]]:
    """The images each climb would pass through if no oracle stopped it."""
    make, search = FAMILIES[family]
    seen: dict[str, list[str]] = {}
    for job in jobs():
        for budget in range(search.budget + 1):
            plain = reference.Plain(TinyModel(), make(), CommandedOracle(), COLUMNS, copies)
            shorter = search.model_copy(update={"budget": budget})
            outcome = reference.guided_search(plain, job.image, job.label, job.seed, shorter)
            seen.setdefault(job.image_id, []).append(pixels(outcome.image))
    return seen


@pytest.mark.parametrize("slots", [1, 7, 32])
@pytest.mark.parametrize("batch_size", [1, 8])
@pytest.mark.parametrize("family", FAMILIES)
def test_agrees_with_the_plain_algorithm_when_the_oracle_rejects_at_every_possible_step(family, batch_size, slots):
    make, search = FAMILIES[family]
    # image i is rejected at step i mod 6: at the reconstruction, at each step, or (5) never
    rejected = {steps[at % 6] for at, steps in enumerate(trail(family, batch_size).values()) if at % 6 < len(steps)}
    found = climb(make(), CommandedOracle(rejected), search, slots=slots, batch_size=batch_size, order=slots)
    endings = set()
    for job in jobs():
        plain = reference.Plain(TinyModel(), make(), CommandedOracle(rejected), COLUMNS, batch_size)
        done = found[job.image_id]
        reference.assert_agrees(
            done.climbs[0], reference.guided_search(plain, job.image, job.label, job.seed, search), done.images[0]
        )
        reference.assert_agrees(
            done.climbs[1], reference.random_steps(plain, job.image, job.label, job.seed, search), done.images[1]
        )
        endings.add((done.climbs[0].ending, done.climbs[0].steps))
    assert {("unvalidated", 0), ("oracle", 0), ("oracle", 1), ("oracle", 2), ("oracle", 3), ("budget", 4)} <= endings


@pytest.mark.parametrize("family", ["latent", "pixels"])
@pytest.mark.parametrize("slots", [1, 7])
def test_a_control_at_matched_distance_goes_along_a_line_as_far_as_the_guided_climb(family, slots):
    make, search = FAMILIES[family]
    search = search.model_copy(update={"control": "distance"})
    rejected = {steps[at % 6] for at, steps in enumerate(trail(family, 8).values()) if at % 6 < len(steps)}
    found = climb(make(), CommandedOracle(rejected), search, slots=slots, order=slots)
    plain = reference.Plain(TinyModel(), make(), CommandedOracle(rejected), COLUMNS, 8)
    longest = 0
    for job in jobs():
        done = found[job.image_id]
        guided, control = done.climbs
        reference.assert_agrees(guided, reference.guided_search(plain, job.image, job.label, job.seed, search), done.images[0])
        distances = [each.distance for each in guided.kept]
        reference.assert_agrees(control, reference.random_line(plain, job.image, job.label, job.seed, distances), done.images[1])
        assert control.steps <= guided.steps
        longest = max(longest, control.steps)
        if family == "latent":  # pixels are clamped to their range
            assert [each.distance for each in control.kept] == pytest.approx(distances[: len(control.kept)], rel=1e-4)
            assert all(distance > 0 for distance in distances[1:])
    assert longest == search.budget


def test_distances_are_in_the_generators_scale():
    search = SearchSpec(budget=1, step=0.2, control="path")
    for done in climb(LatentGenerator(TinyAutoencoder()), CommandedOracle(), search).values():
        for one in done.climbs:
            assert [each.distance for each in one.kept] == pytest.approx([0, 0.2], rel=1e-4)


@pytest.mark.parametrize("norm", ["sign", "l2", "raw"])
@pytest.mark.parametrize("unit", ["scale", "absolute"])
def test_normalisations_agree_with_the_plain_algorithm(norm, unit):
    search = SearchSpec(budget=3, step=0.05, norm=norm, unit=unit, control="path")
    generator = LatentGenerator(TinyAutoencoder())
    found = climb(generator, CommandedOracle(), search)
    plain = reference.Plain(TinyModel(), generator, CommandedOracle(), COLUMNS, 8)
    for job in jobs():
        done = found[job.image_id]
        reference.assert_agrees(
            done.climbs[0], reference.guided_search(plain, job.image, job.label, job.seed, search), done.images[0]
        )
        reference.assert_agrees(
            done.climbs[1], reference.random_steps(plain, job.image, job.label, job.seed, search), done.images[1]
        )


@pytest.mark.parametrize("queries", [3, 12, None])
@pytest.mark.parametrize("family", FAMILIES)
def test_black_boxes_are_searched_within_the_query_budget(queries, family):
    model = TinyModel(differentiable=False)
    make, climbing = FAMILIES[family]
    search = climbing.model_copy(update={"budget": 3, "queries": queries})
    generator = make()
    found = climb(generator, CommandedOracle(), search, model=model)
    limit = queries or 20 * search.budget + 1
    for job in jobs():
        plain = reference.Plain(model, generator, CommandedOracle(), COLUMNS, 8)
        done = found[job.image_id].climbs[0]
        outcome = reference.random_search(plain, job.image, job.label, job.seed, search, limit)
        reference.assert_agrees(done, outcome, found[job.image_id].images[0])
        assert done.queries <= limit
        assert outcome.losses == sorted(outcome.losses)


def test_a_failed_proposal_is_followed_by_its_opposite_and_then_by_a_new_one():
    climb = Climb("guided", Rules(budget=9, queries=99, climbs_only=True))
    numbers = []
    for loss in (1.0, 0.5, 0.5, 0.5, 2.0, 1.5, 3.0, 4.0):
        climb.record(Assessment(loss, 0, True, 0.5, 0.5, True, 0.5, 0))
        numbers.append(climb.draw_number)
    assert numbers == [1, -1, 3, -3, 5, -5, 7, 8]


def test_draws_with_a_minus_are_opposites_and_patches_hold_together():
    like = torch.zeros(3, 4, 16, 16)
    for drawn in (draw, draw_patch):
        assert torch.equal(drawn(like, [1, 2, 3], [5, 6, 7]), -drawn(like, [1, 2, 3], [-5, -6, -7]))
        assert torch.equal(drawn(like, [1, 2, 3], [5, 6, 7])[1], drawn(like[:1], [2], [6])[0])
    patches = draw_patch(like.expand(3, 4, 16, 16), [1, 2, 3], [5, 6, 7])
    for patch in patches:
        assert 1 <= len(patch[0].unique()) <= 17  # up to sixteen cells, and what lies outside
    sizes = {int((draw_patch(like[:1], [9], [number]) != 0).any(1).sum()) for number in range(40)}
    assert {4, 16, 64, 256} <= sizes


def test_every_bit_of_a_seed_counts_in_a_draw():
    like = torch.zeros(1, 64)
    seeds = [5, 5 + 2**32, 5 + 2**61, 6]
    drawn = {tuple(draw(like, [seed], [1])[0].tolist()) for seed in seeds} | {tuple(draw(like, [5], [1 + 2**32])[0].tolist())}
    assert len(drawn) == len(seeds) + 1


def test_draws_stay_what_they_were_because_runs_are_resumed_and_repeated_by_them():
    like = torch.zeros(1, 3)
    assert draw(like, [7], [2])[0].tolist() == pytest.approx([-0.7218048, -1.5416354, 0.5115297], abs=1e-6)
    control = draw(like, [7], [2], stream="control")
    assert control[0].tolist() == pytest.approx([0.2638517, 1.6534318, 0.1265263], abs=1e-6)


def test_a_search_over_a_differentiable_model_never_asks_for_gradients():
    model = TinyModel()
    black_box = TinyModel(differentiable=False)
    search = SearchSpec(budget=2, step=0.1, guidance="search", control=False)
    by_force = climb(LatentGenerator(TinyAutoencoder()), CommandedOracle(), search, model=model)
    by_nature = climb(LatentGenerator(TinyAutoencoder()), CommandedOracle(), search, model=black_box)
    for name, done in by_force.items():
        assert torch.equal(done.images[0], by_nature[name].images[0])


def test_stop_when_fooled_keeps_the_first_fooling_picture():
    search = SearchSpec(budget=6, step=0.3, stop_when_fooled=True)
    generator = LatentGenerator(TinyAutoencoder())
    found = climb(generator, CommandedOracle(), search)
    plain = reference.Plain(TinyModel(), generator, CommandedOracle(), COLUMNS, 8)
    fooled = 0
    for job in jobs():
        done = found[job.image_id]
        reference.assert_agrees(
            done.climbs[0], reference.guided_search(plain, job.image, job.label, job.seed, search), done.images[0]
        )
        if done.climbs[0].ending == "fooled":
            fooled += 1
            assert not done.climbs[0].kept[-1].correct
            assert all(look.correct for look in done.climbs[0].kept[:-1])
    assert fooled > 0


def test_abstention_is_no_rejection():
    found = climb(LatentGenerator(TinyAutoencoder()), CommandedOracle(abstains=True), SearchSpec(budget=2, step=0.1))
    for done in found.values():
        assert done.climbs[0].ending == "budget"
        assert all(look.keeps_label is None for look in done.climbs[0].kept)


def test_the_reconstruction_is_kept_for_every_image():
    generator = LatentGenerator(TinyAutoencoder())
    oracle = RuleOracle(lambda images, labels: labels % 2 == 0)
    for done in climb(generator, oracle, SearchSpec(budget=1, step=0.1)).values():
        tile = torch.stack([done.job.image] * 8)
        start = generator.start(tile, torch.zeros(8, dtype=torch.long), torch.zeros(8, dtype=torch.long))
        expected = (generator.render(start)[0] * 255).round() / 255
        assert torch.equal(done.reconstruction, expected)
        assert (done.climbs[0].ending == "unvalidated") == (done.job.label % 2 == 1)


def test_logits_that_are_not_finite_are_named():
    class Broken(TinyModel):
        def logits(self, images):
            return super().logits(images) / 0

    with pytest.raises(RunFailed, match=r"image-0.*not finite"):
        climb(LatentGenerator(TinyAutoencoder()), CommandedOracle(), SearchSpec(budget=1), model=Broken())


def test_random_guidance_takes_the_steps_of_the_control_and_needs_no_other():
    generator = LatentGenerator(TinyAutoencoder())
    plain = reference.Plain(TinyModel(), generator, CommandedOracle(), COLUMNS, 8)
    search = SearchSpec(budget=3, step=0.3, guidance="random")
    found = climb(generator, CommandedOracle(), search)
    for job in jobs():
        (only,), (picture,) = found[job.image_id].climbs, found[job.image_id].images
        assert only.arm == "guided"
        reference.assert_agrees(only, reference.random_steps(plain, job.image, job.label, job.seed, search), picture)


def test_by_agreement_a_climb_ends_where_the_oracle_says_something_else_than_of_the_source() -> None:
    class Striped:
        """Sees a class by the brightness of an image, right or wrong."""

        def bind(self, classes: object) -> Striped:
            return self

        def judge(self, images: torch.Tensor, labels: torch.Tensor) -> Verdicts:
            seen = (images.mean((1, 2, 3)) * 24).long() % 4
            return Verdicts((seen == labels).to(torch.int8), seen.float(), seen)

    (make, search), oracle = FAMILIES["pixels"], Striped()
    by_label = climb(make(), oracle, search)
    agreeing = climb(make(), oracle, search.model_copy(update={"accept": "agreement"}))
    assert by_label.keys() == agreeing.keys()
    mistaken = 0
    for name, done in agreeing.items():
        for found in done.climbs:
            assert all(each.seen == done.clean.seen and each.keeps_label for each in found.kept)
            assert found.rejected is None or found.rejected.seen != done.clean.seen
        if done.clean.keeps_label:
            assert [each.kept for each in done.climbs] == [each.kept for each in by_label[name].climbs]
        elif done.climbs[0].kept:
            mistaken += 1  # the oracle is wrong about the source and stays so: Algorithm 1 as printed leaves such an image out
            assert by_label[name].climbs[0].ending == "unvalidated"
    assert mistaken > 0


def test_an_oracle_that_names_no_class_agrees_if_it_accepts_both_or_neither() -> None:
    def assessment(keeps: bool | None, seen: int = -1) -> Assessment:
        return Assessment(0.0, 0, True, 1.0, 1.0, keeps, 0.0, seen)

    assert as_agreement(assessment(True), assessment(True)).keeps_label is True
    assert as_agreement(assessment(False), assessment(False)).keeps_label is True
    assert as_agreement(assessment(False), assessment(True)).keeps_label is False
    assert as_agreement(assessment(None), assessment(True)).keeps_label is None
    assert as_agreement(assessment(False, seen=1), assessment(False, seen=2)).keeps_label is False
