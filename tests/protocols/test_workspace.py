"""Assembling a run fills in the generator's own step, and the numbers its network knows the data's classes by."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

import pytest
import torch

from counterfoil import protocols
from counterfoil.core.errors import LabelMismatch
from counterfoil.parts import registry
from counterfoil.parts.contracts import Generator
from counterfoil.parts.generators.latent import LatentGenerator
from counterfoil.protocols import workspace
from counterfoil.protocols.fmr import FmrSpec
from counterfoil.protocols.fmr.climbing import ClimbingSpace, with_step
from counterfoil.protocols.workspace import Given, code_hash, packages_of
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


@pytest.mark.parametrize(("known", "caution"), [(("Ant", "bee", "cat", "dog"), ""), (("boot", "ant"), "not for bee, cat, dog")])
def test_a_part_is_cautioned_against_only_where_the_run_has_classes_it_is_not_made_for(tmp_path, known, caution) -> None:
    """The lab's own demos warned of the lab's own data."""
    model = TinyModel()
    model.made_for, model.made_for_classes = "images of a kind", known
    data = f"tensors:{arrays(tmp_path / 'data.npz', 8)}"
    work = ClimbingSpace.of(spec(data=data, generator="pixels:"), Given({"model": model, "oracle": CommandedOracle()}))
    assert "made for images of a kind (its author)" in "\n".join(work.introduction())
    told = [each for each in work.cautions() if "images of a kind" in each]
    assert len(told) == bool(caution) and caution in "".join(told)


@pytest.mark.parametrize("part", ["model", "data", "inner"])
def test_the_code_hash_changes_with_the_code_of_every_part(tmp_path, monkeypatch, part: str) -> None:
    """Of the data's package too, and of one whose part is inside another."""
    home = tmp_path / "somebodys_parts"
    home.mkdir()
    (home / "__init__.py").write_text("one = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    entry = EntryPoint("somebodys", "somebodys_parts:part", f"counterfoil.{'dataset' if part == 'data' else 'model'}s")
    found = entry_points
    monkeypatch.setattr(workspace, "entry_points", lambda **asked: [entry] if asked["group"] == entry.group else found(**asked))
    names = {"model": {"model": "somebodys:x"}, "data": {"data": "somebodys:x"}, "inner": {"model": "ensemble:somebodys:x"}}
    before = code_hash(packages_of(spec(**names[part])))
    (home / "deeper").mkdir()
    (home / "deeper" / "module.py").write_text("two = 2\n")
    assert code_hash(packages_of(spec(**names[part]))) != before
    assert code_hash(packages_of(spec())) == code_hash()
