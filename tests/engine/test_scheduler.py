"""The engine's slots and memory: refilled at once, sized by steps, halved where they do not fit."""

from __future__ import annotations

import pytest
import torch

from counterfoil.core.errors import RunFailed
from counterfoil.core.spec import EngineSpec, SearchSpec
from counterfoil.engine import scheduler as engine_module
from counterfoil.engine import step as step_module
from counterfoil.engine.fast import Acceleration
from counterfoil.engine.scheduler import Engine, SearchResult
from counterfoil.parts.generators.latent import LatentGenerator
from tests.climbs import COLUMNS, climb, jobs
from tests.climbs import engine as make_engine
from tests.fakes import CommandedOracle, RuleOracle, TinyAutoencoder, TinyModel

pytestmark = pytest.mark.rounding


def test_one_decode_an_iteration():
    class Counting(LatentGenerator):
        rendered = 0

        def render(self, state):
            Counting.rendered += 1
            return super().render(state)

    search = SearchSpec(budget=3, step=0.1, control=False)
    engine = make_engine(Counting(TinyAutoencoder()), CommandedOracle(), search, slots=8)
    assert len(list(engine.run(jobs(8)))) == 8
    assert Counting.rendered == search.budget + 1


@pytest.mark.parametrize(("control", "shared"), [("path", 1), ("distance", 1), ("none", 0)])
def test_both_arms_share_one_reconstruction(control, shared):
    rejecting = RuleOracle(lambda images, labels: labels % 2 == 0)
    asked = 0

    class Counting(TinyModel):
        def logits(self, images):
            nonlocal asked
            asked += len(images)
            return super().logits(images)

    search = SearchSpec(budget=2, step=0.1, control=control)
    found = climb(LatentGenerator(TinyAutoencoder()), rejecting, search, slots=1, batch_size=1, model=Counting())
    steps = sum(climb.steps for done in found.values() for climb in done.climbs)
    assert asked == 2 * len(found) + steps  # the clean image, the reconstruction, and every step
    if shared:
        assert all(done.climbs[1].queries >= 1 for done in found.values())
        assert {done.climbs[1].ending for done in found.values() if done.job.label % 2} == {"unvalidated"}


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
    engine = make_engine(Counting(TinyAutoencoder()), oracle, search, slots=4, batch_size=4)
    assert len(list(engine.run(jobs(8)))) == 8
    assert turns < 2 * (search.budget + 1)


def test_no_jobs_give_nothing():
    assert list(make_engine(LatentGenerator(TinyAutoencoder()), CommandedOracle(), SearchSpec()).run([])) == []


@pytest.mark.parametrize(("slots", "batch_size"), [(7, 8), (8, 4), (3, 1)])
def test_taking_in_an_iteration_a_turn_later_changes_nothing(slots, batch_size):
    oracle = RuleOracle(lambda images, labels: (images.flatten(1).sum(1) * 1000).long() % 5 != 0)
    search = SearchSpec(budget=4, step=0.2)
    at_once = climb(LatentGenerator(TinyAutoencoder()), oracle, search, slots=slots, batch_size=batch_size)
    later = climb(LatentGenerator(TinyAutoencoder()), oracle, search, slots=slots, batch_size=batch_size, pipelined=True)
    assert len({done.climbs[0].steps for done in at_once.values()}) > 1
    assert at_once.keys() == later.keys()
    for name, done in at_once.items():
        assert done.climbs == later[name].climbs
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(done.images, later[name].images, strict=True))
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
    found = climb(Cramped(**where), CommandedOracle(), search, slots=7, batch_size=8, pipelined=pipelined)
    wanted = climb(LatentGenerator(TinyAutoencoder()), CommandedOracle(), search, slots=7, batch_size=2)
    assert found.keys() == wanted.keys()
    for name, done in found.items():
        for ours, theirs in zip(done.climbs, wanted[name].climbs, strict=True):
            assert (ours.arm, ours.ending, ours.steps) == (theirs.arm, theirs.ending, theirs.steps)
            assert [look.loss for look in ours.kept] == [look.loss for look in theirs.kept]
    assert "continuing with batches of 2" in caplog.text


@pytest.mark.parametrize("call", [1, 10, 16])
def test_memory_that_runs_out_at_any_time_loses_no_image(call):
    class Once(LatentGenerator):
        calls = 0

        def render(self, state):
            self.calls += 1
            if self.calls == call:
                raise torch.OutOfMemoryError
            return super().render(state)

    search = SearchSpec(budget=3, step=0.1)
    wanted = climb(LatentGenerator(TinyAutoencoder()), CommandedOracle(), search, slots=7, batch_size=8)
    assert climb(Once(TinyAutoencoder()), CommandedOracle(), search, slots=7, batch_size=8).keys() == wanted.keys()


def test_a_single_image_that_does_not_fit_ends_the_run():
    class Full(Cramped):
        room = 0

    with pytest.raises(RunFailed, match="a single image does not fit"):
        climb(Full(), CommandedOracle(), SearchSpec(budget=1))


@pytest.mark.parametrize(("differentiable", "budget", "gradient"), [(True, 3, True), (False, 3, False), (True, 0, False)])
def test_slots_are_sized_by_steps_such_as_the_run_takes(monkeypatch, differentiable, budget, gradient):
    asked = []

    def fit(step, image, *, most, gradient):
        asked.append(gradient)
        return 4

    monkeypatch.setattr(engine_module, "batch_that_fits", fit)
    model = TinyModel(differentiable=differentiable)
    parts = (model, LatentGenerator(TinyAutoencoder()), CommandedOracle())
    engine = Engine(*parts, columns=[2, 0, 3, 1], search=SearchSpec(budget=budget), layout=EngineSpec())
    engine.sized = False  # as on a GPU
    engine.fit(jobs(1)[0].image)
    assert asked == [gradient] and (engine.slots, engine.batch_size) == (8, 4)


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
    monkeypatch.setattr(step_module, "CudaGraph", Recording)
    monkeypatch.setattr(LatentGenerator, "accelerate", lambda generator, dtype: generator)
    how = Acceleration(fused=True, graphs=True)
    engine = Engine(*parts, columns=COLUMNS, search=search, layout=EngineSpec(slots=7, batch_size=8), acceleration=how)
    found = {done.job.image_id: done for done in engine.run(jobs())}
    assert set(replayed) == ({"the step without a gradient"} if differentiable else set())
    for name, done in found.items():
        assert [one.kept for one in done.climbs] == [one.kept for one in plain[name].climbs]


def launches(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the number of slots taken at each iteration of a batch."""
    taken: list[int] = []
    run = engine.step.run

    def count_slots(state, labels, *, names, **how):
        taken.append(sum("idle" not in name for name in names))
        return run(state, labels, names=names, **how)

    monkeypatch.setattr(engine.step, "run", count_slots)
    return taken


@pytest.mark.parametrize("pipelined", [False, True])
def test_an_arm_with_shorter_climbs_does_not_iterate_with_slots_half_empty(pipelined, monkeypatch):
    # Random steps fool the model later, if at all.
    search = SearchSpec(budget=12, step=0.5, stop_when_fooled=True, control="path")
    engine = make_engine(LatentGenerator(TinyAutoencoder()), CommandedOracle(), search, slots=16)
    engine.pipelined = pipelined
    taken = launches(engine, monkeypatch)
    found = list(engine.run(jobs(160)))
    lengths = [sum(done.climbs[arm].queries for done in found) for arm in (0, 1)]
    assert lengths[1] > 2 * lengths[0]
    assert sum(taken) == sum(lengths) - len(found)  # both arms begin with one and the same reconstruction
    steady = taken[8:-30]  # at the beginning and the end there are too few for all slots
    assert sum(steady) / (8 * len(steady)) > 0.9


def test_a_pause_of_whoever_brings_the_jobs_does_not_empty_the_slots():
    finished: list[SearchResult] = []
    seen: list[int] = []

    def trickle():
        for at, job in enumerate(jobs(24)):
            if at % 8 == 7:
                yield None
            if at % 8 == 0:
                seen.append(len(finished))
            yield job

    engine = make_engine(LatentGenerator(TinyAutoencoder()), CommandedOracle(), SearchSpec(budget=6, control=False), slots=16)
    for done in engine.run(trickle()):
        finished.append(done)
    assert len({done.job.image_id for done in finished}) == 24
    assert seen == [0, 0, 0]  # all were begun before the first was through
