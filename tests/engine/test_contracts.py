"""Parts that break their contract end the run in one line that names them, and cannot change what others see."""

from __future__ import annotations

import sys

import pytest
import torch

from counterfoil.core.errors import BadData, BadPart, CounterfoilError, RunFailed
from counterfoil.core.spec import SearchSpec
from counterfoil.engine.fast import Acceleration
from counterfoil.parts.contracts import Verdicts
from counterfoil.parts.generators.latent import LatentGenerator
from counterfoil.testing import check_model, check_oracle
from tests.climbs import climb, engine, jobs
from tests.fakes import CLASSES, CommandedOracle, TinyAutoencoder, TinyModel

SEARCH = SearchSpec(budget=2, step=0.1)


class Model(TinyModel):
    """A model whose answer is changed by a function."""

    def __init__(self, change) -> None:
        super().__init__()
        self.change = change

    def logits(self, images):
        return self.change(super().logits(images), images)


class Oracle(CommandedOracle):
    """An oracle whose verdicts are changed by a function."""

    def __init__(self, change) -> None:
        super().__init__()
        self.change = change

    def judge(self, images, labels):
        return self.change(super().judge(images, labels), images)


def generator() -> LatentGenerator:
    return LatentGenerator(TinyAutoencoder())


def raising(error):
    def change(*_):
        raise error

    return change


MODELS = {  # every way of it is in tests/parts/test_faults.py
    "raises": (raising(RuntimeError("mat1 and mat2")), r"the model failed with RuntimeError: mat1 and mat2"),
    "ends the process": (lambda logits, _: sys.exit(0), r"the model ended the process \(sys.exit\(0\)\)"),
    "gives too few rows": (lambda logits, _: logits[:3], r"the model gives logits of shape \(3, 4\)"),
    "detaches": (lambda logits, _: logits.detach(), r"the model passes no gradient to the images"),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_that_breaks_its_contract_is_named(name):
    change, message = MODELS[name]
    with pytest.raises(CounterfoilError, match=message):
        climb(generator(), CommandedOracle(), SEARCH, model=Model(change))


def with_columns(**columns):
    def change(said, _):
        return Verdicts(**{**vars(said), **{name: make(getattr(said, name)) for name, make in columns.items()}})

    return change


ORACLES = {
    "raises": (raising(ValueError("no text")), r"the oracle failed with ValueError: no text"),
    "gives nothing": (lambda said, _: None, r"the oracle answers with a NoneType"),
    "says 7": (with_columns(keeps_label=lambda rows: rows * 0 + 7), r"image-\d+: the oracle gives the verdict 7"),
    "gives no number": (with_columns(scores=lambda rows: rows * torch.nan), r"image-\d+: the oracle's scores are not finite"),
}


@pytest.mark.parametrize("name", ORACLES)
def test_an_oracle_that_breaks_its_contract_is_named(name):
    change, message = ORACLES[name]
    with pytest.raises((BadPart, RunFailed), match=message):
        climb(generator(), Oracle(change), SEARCH)
    with pytest.raises(AssertionError):
        check_oracle(Oracle(change), list(CLASSES), size=16)


def overwrite(answer, images):
    images.data.zero_()
    return answer


@pytest.mark.parametrize("where", ["model", "oracle"])
def test_a_part_that_writes_into_its_input_changes_nothing_for_the_others(where):
    plain = climb(generator(), CommandedOracle(), SEARCH)
    parts = {"model": {"model": Model(overwrite)}, "oracle": {}}[where]
    found = climb(generator(), Oracle(overwrite) if where == "oracle" else CommandedOracle(), SEARCH, **parts)
    for name, done in found.items():
        assert torch.equal(done.reconstruction, plain[name].reconstruction)
        assert [look.score for look in done.climbs[1].kept] == [look.score for look in plain[name].climbs[1].kept]
        assert torch.equal(done.images[1], plain[name].images[1])
    with pytest.raises(AssertionError, match="leaves the images"):
        check_oracle(Oracle(overwrite), list(CLASSES), size=16) if where == "oracle" else check_model(Model(overwrite))


def test_a_generator_without_a_gradient_is_named():
    class Flat(LatentGenerator):
        def render(self, state):
            return super().render(state).detach()

    with pytest.raises(BadPart, match="the generator passes no gradient"):
        climb(Flat(TinyAutoencoder()), CommandedOracle(), SEARCH)


def test_a_generator_that_fails_is_named():
    class Failing(LatentGenerator):
        def step(self, state, signal):
            raise IndexError("no such latent")

    with pytest.raises(RunFailed, match="the generator failed with IndexError: no such latent"):
        climb(Failing(TinyAutoencoder()), CommandedOracle(), SEARCH)


def test_two_images_of_one_id_are_refused():
    twice = [*jobs(3), *jobs(1)]
    with pytest.raises(BadData, match="'image-0' was given twice"):
        list(engine(generator(), CommandedOracle(), SEARCH).run(twice))


def test_a_pause_before_the_first_image_loses_none():
    found = list(engine(generator(), CommandedOracle(), SEARCH).run(iter([None, None, *jobs(3)])))
    assert len(found) == 3


def test_steps_run_in_the_precision_of_the_run():
    seen = set()

    class Noting(LatentGenerator):
        def render(self, state):
            seen.add(("render", torch.is_autocast_enabled("cpu")))
            return super().render(state)

        def step(self, state, signal):
            seen.add(("step", torch.is_autocast_enabled("cpu")))
            return super().step(state, signal)

    low = engine(Noting(TinyAutoencoder()), CommandedOracle(), SEARCH, acceleration=Acceleration(precision="bf16"))
    list(low.run(jobs(2)))
    assert seen == {("render", True), ("step", True)}


class ByItsPlace(TinyModel):
    """Rounds otherwise in every row of a batch, as a batched product may."""

    def logits(self, images):
        return super().logits(images) + 1e-7 * torch.arange(len(images))[:, None]


def test_exact_checks_allow_no_rounding_that_depends_on_the_batch():
    check_model(TinyModel(), exact=True)
    check_model(ByItsPlace())
    with pytest.raises(AssertionError, match="logits treat rows independently"):
        check_model(ByItsPlace(), exact=True)
