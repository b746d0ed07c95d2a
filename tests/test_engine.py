"""The engine against Algorithm 1 written plainly, image by image and bit by bit."""

from __future__ import annotations

import random
from functools import cache

import pytest
import torch

from counterfoil import ascent as ascent_module
from counterfoil import engine as engine_module
from counterfoil.acceleration.settings import Acceleration
from counterfoil.climb import Climb, Look, Rules
from counterfoil.engine import Engine, Finished, Job
from counterfoil.errors import RunFailed
from counterfoil.generators.latent import LatentGenerator
from counterfoil.generators.pixels import pixels as pixel_generator
from counterfoil.generators.transforms import transforms
from counterfoil.guidance import draw, draw_patch
from counterfoil.memory import Fit
from counterfoil.parts import Verdicts
from counterfoil.spec import EngineSpec, SearchSpec
from counterfoil.testing import pictures
from tests import reference
from tests.fakes import CommandedOracle, RuleOracle, TinyAutoencoder, TinyModel, pixels

COLUMNS = [2, 0, 3, 1]  # the data's classes stand in another order in the model
IMAGES = 11
FAMILIES = {
    "latent": (lambda: LatentGenerator(TinyAutoencoder()), SearchSpec(budget=4, step=0.2)),
    "pixels": (lambda: pixel_generator("linf", epsilon=0.2), SearchSpec(budget=4, step=0.04, norm="sign", unit="absolute")),
    "transforms": (
        lambda: transforms("gaussian-noise,brightness,rotation,defocus-blur"),
        SearchSpec(budget=4, step=0.15, norm="sign"),
    ),
}


def jobs(count: int = IMAGES) -> list[Job]:
    return [Job(f"image-{at}", image, at % 4, seed=1000 + at) for at, image in enumerate(pictures(count, 16))]


def climb(generator, oracle, search, *, slots=7, tile=8, order=None, model=None, pipelined=False) -> dict[str, Finished]:
    layout = EngineSpec(slots=slots, tile=tile)
    engine = Engine(model or TinyModel(), generator, oracle, columns=COLUMNS, search=search, layout=layout)
    engine.pipelined = pipelined
    work = jobs()
    if order is not None:
        random.Random(order).shuffle(work)
    return {done.job.image_id: done for done in engine.run(work)}


def assert_agrees(climbed, outcome, picture) -> None:
    """Same ending, same steps, same losses, same final picture."""
    assert (climbed.ending, climbed.steps, climbed.queries) == (outcome.ending, outcome.steps, outcome.queries)
    assert [look.loss for look in climbed.kept] == outcome.losses
    if outcome.picture is not None:
        assert torch.equal(picture, outcome.picture)


@cache
def trail(family: str, copies: int) -> dict[str, list[str]]:
    """The pictures each image would pass through if no oracle stopped it."""
    make, search = FAMILIES[family]
    seen: dict[str, list[str]] = {}
    for job in jobs():
        for budget in range(search.budget + 1):
            plain = reference.Plain(TinyModel(), make(), CommandedOracle(), COLUMNS, copies)
            shorter = search.model_copy(update={"budget": budget})
            outcome = reference.guided(plain, job.image, job.label, job.seed, shorter)
            seen.setdefault(job.image_id, []).append(pixels(outcome.picture))
    return seen


@pytest.mark.parametrize("slots", [1, 7, 32])
@pytest.mark.parametrize("tile", [1, 8])
@pytest.mark.parametrize("family", FAMILIES)
def test_agrees_with_the_plain_algorithm_when_the_oracle_rejects_at_every_possible_step(family, tile, slots):
    make, search = FAMILIES[family]
    # image i is rejected at step i mod 6: at the reconstruction, at each step, or (5) never
    rejected = {steps[at % 6] for at, steps in enumerate(trail(family, tile).values()) if at % 6 < len(steps)}
    found = climb(make(), CommandedOracle(rejected), search, slots=slots, tile=tile, order=slots)
    endings = set()
    for job in jobs():
        plain = reference.Plain(TinyModel(), make(), CommandedOracle(rejected), COLUMNS, tile)
        done = found[job.image_id]
        assert_agrees(done.climbs[0], reference.guided(plain, job.image, job.label, job.seed, search), done.pictures[0])
        assert_agrees(done.climbs[1], reference.random_steps(plain, job.image, job.label, job.seed, search), done.pictures[1])
        endings.add((done.climbs[0].ending, done.climbs[0].steps))
    assert {("unvalidated", 0), ("oracle", 0), ("oracle", 1), ("oracle", 2), ("oracle", 3), ("budget", 4)} <= endings


@pytest.mark.parametrize("norm", ["sign", "l2", "raw"])
@pytest.mark.parametrize("unit", ["scale", "absolute"])
def test_normalisations_agree_with_the_plain_algorithm(norm, unit):
    search = SearchSpec(budget=3, step=0.05, norm=norm, unit=unit)
    generator = LatentGenerator(TinyAutoencoder())
    found = climb(generator, CommandedOracle(), search)
    plain = reference.Plain(TinyModel(), generator, CommandedOracle(), COLUMNS, 8)
    for job in jobs():
        done = found[job.image_id]
        assert_agrees(done.climbs[0], reference.guided(plain, job.image, job.label, job.seed, search), done.pictures[0])
        assert_agrees(done.climbs[1], reference.random_steps(plain, job.image, job.label, job.seed, search), done.pictures[1])


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
        outcome = reference.searched(plain, job.image, job.label, job.seed, search, limit)
        assert_agrees(done, outcome, found[job.image_id].pictures[0])
        assert done.queries <= limit
        assert outcome.losses == sorted(outcome.losses)


def test_a_failed_proposal_is_followed_by_its_opposite_and_then_by_a_new_one():
    climb = Climb("guided", Rules(budget=9, queries=99, climbs_only=True))
    numbers = []
    for loss in (1.0, 0.5, 0.5, 0.5, 2.0, 1.5, 3.0, 4.0):
        climb.take(Look(loss, 0, True, 0.5, 0.5, True, 0.5, 0))
        numbers.append(climb.draw)
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


def test_a_search_over_a_differentiable_model_never_asks_for_gradients():
    model = TinyModel()
    black_box = TinyModel(differentiable=False)
    search = SearchSpec(budget=2, step=0.1, guidance="search", control=False)
    by_force = climb(LatentGenerator(TinyAutoencoder()), CommandedOracle(), search, model=model)
    by_nature = climb(LatentGenerator(TinyAutoencoder()), CommandedOracle(), search, model=black_box)
    for name, done in by_force.items():
        assert torch.equal(done.pictures[0], by_nature[name].pictures[0])


def test_stop_when_fooled_keeps_the_first_fooling_picture():
    search = SearchSpec(budget=6, step=0.3, stop_when_fooled=True)
    generator = LatentGenerator(TinyAutoencoder())
    found = climb(generator, CommandedOracle(), search)
    plain = reference.Plain(TinyModel(), generator, CommandedOracle(), COLUMNS, 8)
    fooled = 0
    for job in jobs():
        done = found[job.image_id]
        assert_agrees(done.climbs[0], reference.guided(plain, job.image, job.label, job.seed, search), done.pictures[0])
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


def test_one_decode_an_iteration():
    class Counting(LatentGenerator):
        rendered = 0

        def render(self, state):
            Counting.rendered += 1
            return super().render(state)

    search = SearchSpec(budget=3, step=0.1, control=False)
    engine = Engine(
        TinyModel(), Counting(TinyAutoencoder()), CommandedOracle(), columns=COLUMNS, search=search, layout=EngineSpec(slots=8)
    )
    assert len(list(engine.run(jobs(8)))) == 8
    assert Counting.rendered == search.budget + 1


def test_a_slot_is_refilled_at_once():
    """With every other image rejected at the start, one tile of slots still finishes in fewer turns than two batches."""
    oracle = RuleOracle(lambda images, labels: labels % 2 == 0)
    turns = 0

    class Counting(LatentGenerator):
        def render(self, state):
            nonlocal turns
            turns += 1
            return super().render(state)

    search = SearchSpec(budget=3, step=0.1, control=False)
    engine = Engine(
        TinyModel(), Counting(TinyAutoencoder()), oracle, columns=COLUMNS, search=search, layout=EngineSpec(slots=4, tile=4)
    )
    assert len(list(engine.run(jobs(8)))) == 8
    assert turns < 2 * (search.budget + 1)


def test_logits_that_are_not_finite_are_named():
    class Broken(TinyModel):
        def logits(self, images):
            return super().logits(images) / 0

    with pytest.raises(RunFailed, match=r"image-0.*not finite"):
        climb(LatentGenerator(TinyAutoencoder()), CommandedOracle(), SearchSpec(budget=1), model=Broken())


def test_no_jobs_give_nothing():
    engine = Engine(
        TinyModel(),
        LatentGenerator(TinyAutoencoder()),
        CommandedOracle(),
        columns=COLUMNS,
        search=SearchSpec(),
        layout=EngineSpec(),
    )
    assert list(engine.run([])) == []


@pytest.mark.parametrize(("slots", "tile"), [(7, 8), (8, 4), (3, 1)])
def test_taking_in_an_iteration_a_turn_later_changes_nothing(slots, tile):
    oracle = RuleOracle(lambda images, labels: (images.flatten(1).sum(1) * 1000).long() % 5 != 0)
    search = SearchSpec(budget=4, step=0.2)
    at_once = climb(LatentGenerator(TinyAutoencoder()), oracle, search, slots=slots, tile=tile)
    later = climb(LatentGenerator(TinyAutoencoder()), oracle, search, slots=slots, tile=tile, pipelined=True)
    assert len({done.climbs[0].steps for done in at_once.values()}) > 1
    assert at_once.keys() == later.keys()
    for name, done in at_once.items():
        assert done.climbs == later[name].climbs
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(done.pictures, later[name].pictures, strict=True))
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(done.places, later[name].places, strict=True))


class Cramped(LatentGenerator):
    """A generator on a device that has no room for more than a few rows."""

    room = 3

    def __init__(self, *, starting: bool = False, stepping: bool = False) -> None:
        super().__init__(TinyAutoencoder())
        self.starting, self.stepping = starting, stepping

    def start(self, images, labels, seeds):
        if self.starting and len(images) > self.room:
            raise torch.OutOfMemoryError
        return super().start(images, labels, seeds)

    def render(self, state):
        if not self.stepping and len(state["latent"]) > self.room:
            raise torch.OutOfMemoryError
        return super().render(state)

    def step(self, state, signal):
        if self.stepping and len(state["latent"]) > self.room:
            raise torch.OutOfMemoryError
        return super().step(state, signal)


@pytest.mark.parametrize("pipelined", [False, True])
@pytest.mark.parametrize("where", [{}, {"starting": True}, {"stepping": True}])
def test_out_of_memory_is_survived_by_working_on_fewer_images_at_a_time(where, pipelined, caplog):
    search = SearchSpec(budget=3, step=0.1)
    found = climb(Cramped(**where), CommandedOracle(), search, slots=7, tile=8, pipelined=pipelined)
    wanted = climb(LatentGenerator(TinyAutoencoder()), CommandedOracle(), search, slots=7, tile=2)
    assert found.keys() == wanted.keys()
    for name, done in found.items():
        for ours, theirs in zip(done.climbs, wanted[name].climbs, strict=True):
            assert (ours.arm, ours.ending, ours.steps) == (theirs.arm, theirs.ending, theirs.steps)
            assert [look.loss for look in ours.kept] == [look.loss for look in theirs.kept]
    assert "2 at a time" in caplog.text


def test_a_single_image_that_does_not_fit_ends_the_run():
    class Full(Cramped):
        room = 0

    with pytest.raises(RunFailed, match="a single image does not fit"):
        climb(Full(), CommandedOracle(), SearchSpec(budget=1))


@pytest.mark.parametrize(("differentiable", "budget", "climbing"), [(True, 3, True), (False, 3, False), (True, 0, False)])
def test_slots_are_sized_by_steps_such_as_the_run_takes(monkeypatch, differentiable, budget, climbing):
    asked = []

    def fit(ascent, image, *, most, climbing):
        asked.append(climbing)
        return Fit(4, recompute=False)

    monkeypatch.setattr(engine_module, "rows_that_fit", fit)
    model = TinyModel(differentiable=differentiable)
    parts = (model, LatentGenerator(TinyAutoencoder()), CommandedOracle())
    engine = Engine(*parts, columns=[2, 0, 3, 1], search=SearchSpec(budget=budget), layout=EngineSpec())
    engine.sized = False  # as on a GPU
    engine.fit(jobs(1)[0].image)
    assert asked == [climbing] and (engine.slots, engine.tile) == (8, 4)


@pytest.mark.parametrize("differentiable", [True, False])
def test_steps_without_a_gradient_are_recorded_too_unless_the_model_is_a_black_box(monkeypatch, differentiable):
    replayed = []

    class Recording:
        def __init__(self, work, *, name):
            self.work, self.name = work, name

        def __call__(self, *given):
            replayed.append(self.name)
            return self.work(*given)

    parts = (TinyModel(differentiable=differentiable), LatentGenerator(TinyAutoencoder()), CommandedOracle())
    search = SearchSpec(budget=2, step=0.2)
    plain = climb(parts[1], parts[2], search, model=parts[0])
    monkeypatch.setattr(ascent_module, "Recorded", Recording)
    monkeypatch.setattr(ascent_module, "hastened", lambda generator, kind, recompute: generator)
    how = Acceleration(fused=True, graphs=True)
    engine = Engine(*parts, columns=COLUMNS, search=search, layout=EngineSpec(slots=7, tile=8), acceleration=how)
    found = {done.job.image_id: done for done in engine.run(jobs())}
    assert set(replayed) == ({"the step without a gradient"} if differentiable else set())
    for name, done in found.items():
        assert [one.kept for one in done.climbs] == [one.kept for one in plain[name].climbs]


def test_an_oracle_whose_scores_are_not_finite_is_named():
    class Broken(CommandedOracle):
        def judge(self, images, labels):
            said = super().judge(images, labels)
            return Verdicts(said.keeps_label, said.scores * torch.nan, said.predicted)

    with pytest.raises(RunFailed, match=r"image-0: the oracle's scores are not finite"):
        climb(LatentGenerator(TinyAutoencoder()), Broken(), SearchSpec(budget=1))


def test_random_guidance_takes_the_steps_of_the_control_and_needs_no_other():
    generator = LatentGenerator(TinyAutoencoder())
    plain = reference.Plain(TinyModel(), generator, CommandedOracle(), COLUMNS, 8)
    search = SearchSpec(budget=3, step=0.3, guidance="random")
    found = climb(generator, CommandedOracle(), search)
    for job in jobs():
        (only,), (picture,) = found[job.image_id].climbs, found[job.image_id].pictures
        assert only.arm == "guided"
        assert_agrees(only, reference.random_steps(plain, job.image, job.label, job.seed, search), picture)


def launches(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many slots were taken at each iteration of a tile, as they come."""
    taken: list[int] = []
    step = engine.ascent.step

    def counted(state, labels, *, climbing, names):
        taken.append(sum("idle" not in name for name in names))
        return step(state, labels, climbing=climbing, names=names)

    monkeypatch.setattr(engine.ascent, "step", counted)
    return taken


@pytest.mark.parametrize("pipelined", [False, True])
def test_an_arm_with_shorter_climbs_does_not_iterate_with_slots_half_empty(pipelined, monkeypatch):
    search = SearchSpec(budget=12, step=0.5, stop_when_fooled=True)  # random steps fool the model later, if at all
    layout = EngineSpec(slots=16, tile=8)
    generator = LatentGenerator(TinyAutoencoder())
    engine = Engine(TinyModel(), generator, CommandedOracle(), columns=COLUMNS, search=search, layout=layout)
    engine.pipelined = pipelined
    taken = launches(engine, monkeypatch)
    found = list(engine.run(jobs(160)))
    lengths = [sum(done.climbs[arm].queries for done in found) for arm in (0, 1)]
    assert lengths[1] > 2 * lengths[0] and sum(taken) == sum(lengths)
    steady = taken[8:-30]  # at the beginning and the end there are too few for all slots
    assert sum(steady) / (8 * len(steady)) > 0.9


def test_a_pause_of_whoever_brings_the_jobs_does_not_empty_the_slots():
    finished: list[Finished] = []
    seen: list[int] = []

    def trickle():
        for at, job in enumerate(jobs(24)):
            if at % 8 == 7:
                yield None
            if at % 8 == 0:
                seen.append(len(finished))
            yield job

    layout, search = EngineSpec(slots=16, tile=8), SearchSpec(budget=6, control=False)
    engine = Engine(
        TinyModel(), LatentGenerator(TinyAutoencoder()), CommandedOracle(), columns=COLUMNS, search=search, layout=layout
    )
    for done in engine.run(trickle()):
        finished.append(done)
    assert len({done.job.image_id for done in finished}) == 24
    assert seen == [0, 0, 0]  # all were begun before the first was through
