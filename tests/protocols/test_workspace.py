"""What assembling a run fills in: the generator's own step, and the numbers its network knows the data's classes by."""

from __future__ import annotations

import pytest
import torch

from counterfoil import protocols
from counterfoil.core.errors import LabelMismatch
from counterfoil.core.spec import FmrSpec
from counterfoil.parts import registry
from counterfoil.parts.contracts import Generator
from counterfoil.parts.generators.latent import LatentGenerator
from counterfoil.protocols.fmr.climbing import ClimbingSpace, with_step
from counterfoil.protocols.workspace import Given
from counterfoil.testing import pictures
from tests.fakes import CommandedOracle, TinyAutoencoder, TinyModel
from tests.worlds import arrays

PARTS = {"model": "given:", "oracle": "given:"}
STEPS = {"pixels:": 0.002, "transforms:": 0.1, "lab:vqgan": 0.03, "reconstruct:lab:vqgan": 0.002}


def spec(**values) -> FmrSpec:
    return protocols.parse({**PARTS, "data": "folder:photos", "generator": "given:", **values})


@pytest.mark.parametrize(("name", "step"), STEPS.items())
def test_a_generator_says_its_own_step(name: str, step: float) -> None:
    generator: Generator = registry.create("generator", name)
    assert with_step(spec(), generator).search.step == step
    assert with_step(spec(search={"step": 0.5}), generator).search.step == 0.5


def test_a_run_records_the_step_it_takes(tmp_path) -> None:
    asked = spec(data=f"tensors:{arrays(tmp_path / 'data.npz', 8)}", generator="transforms:")
    assembly = ClimbingSpace.of(asked, Given({"model": TinyModel(), "oracle": CommandedOracle()}))
    assert assembly.spec.search.step == assembly.new_engine().step_size == 0.1


class Conditional(LatentGenerator):
    """A generator whose network knows classes by numbers of its own."""

    classes = ("tench", "dog", "goldfish", "cat", "bee", "ant")

    def start(self, images, labels, seeds):
        return {**super().start(images, labels, seeds), "class": labels}


def test_a_class_conditional_generator_gets_its_own_class_numbers(tmp_path) -> None:
    data = f"tensors:{arrays(tmp_path / 'data.npz', 8)}"
    given = {"model": TinyModel(), "oracle": CommandedOracle(), "generator": Conditional(TinyAutoencoder())}
    generator = ClimbingSpace.of(spec(data=data), Given(given)).generator
    labels = torch.arange(4)  # ant, bee, cat, dog
    assert generator.start(pictures(4, 16), labels, labels)["class"].tolist() == [5, 4, 3, 1]


def test_classes_that_a_generator_does_not_know_are_refused(tmp_path) -> None:
    data = f"tensors:{arrays(tmp_path / 'data.npz', 8)}"
    stranger = Conditional(TinyAutoencoder())
    stranger.classes = ("oak", "elm")
    with pytest.raises(LabelMismatch, match="generator given:"):
        ClimbingSpace.of(spec(data=data), Given({"model": TinyModel(), "oracle": CommandedOracle(), "generator": stranger}))
