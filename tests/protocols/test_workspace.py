"""Assembling a run fills in the generator's own step, and the numbers its network knows the data's classes by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points

import pytest
import torch
from torch import Tensor

from counterfoil import protocols
from counterfoil.core.errors import LabelMismatch, RunFailed
from counterfoil.parts import imagenet, labels, registry
from counterfoil.parts.contracts import Generator
from counterfoil.parts.generators.latent import LatentGenerator
from counterfoil.protocols import provenance
from counterfoil.protocols.fmr import FmrSpec
from counterfoil.protocols.fmr.climbing import ClimbingSpace, with_step
from counterfoil.protocols.imagenet_d.grid import read_grid
from counterfoil.protocols.provenance import code_hash, packages_of
from counterfoil.protocols.workspace import Given, reading
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
    monkeypatch.setattr(provenance, "entry_points", lambda **asked: [entry] if asked["group"] == entry.group else found(**asked))
    names = {"model": {"model": "somebodys:x"}, "data": {"data": "somebodys:x"}, "inner": {"model": "ensemble:somebodys:x"}}
    before = code_hash(packages_of(spec(**names[part])))
    (home / "deeper").mkdir()
    (home / "deeper" / "module.py").write_text("two = 2\n")
    assert code_hash(packages_of(spec(**names[part]))) != before
    assert code_hash(packages_of(spec())) == code_hash()


# Classifiers read in the classes of a set, where a class may stand for several outputs


@dataclass
class Fixed:
    """Gives the same answer for every image."""

    scores: Sequence[float]
    classes: Sequence[str]
    aliases: labels.Aliases | None = None
    differentiable: bool = False

    def logits(self, images: Tensor) -> Tensor:
        return torch.tensor(self.scores)[None].repeat(len(images), 1)


PICTURE = torch.zeros(1, 3, 4, 4)
CLASSES = {"clock": ("n1", "n2"), "mug": ("n3",)}


def test_a_hit_on_any_id_is_right() -> None:
    model = Fixed([0.0, 3.0, 1.0, 2.0], ["n1", "n2", "n3", "other thing"])
    look = reading("m", model, list(CLASSES), CLASSES).looks(PICTURE, [0])[0]
    assert look["correct"] and look["predicted"] == 0 and look["rank"] == 1 and look["said"] == "n2"
    chances = torch.tensor([0.0, 3.0, 1.0, 2.0]).softmax(0)
    assert look["truth"] == pytest.approx(float(chances[0] + chances[1]))
    assert look["wrong"] == 1


def test_an_answer_outside_the_set_is_wrong_and_keeps_its_name() -> None:
    model = Fixed([0.0, 1.0, 2.0, 3.0], ["n1", "n2", "n3", "other thing"])
    look = reading("m", model, list(CLASSES), CLASSES).looks(PICTURE, [0])[0]
    assert not look["correct"] and look["predicted"] == -1 and look["said"] == "other thing" and look["rank"] == 3


def test_a_zero_shot_model_goes_by_the_sets_own_names() -> None:
    look = reading("m", Fixed([0.0, 1.0], ["mug", "clock"]), list(CLASSES), CLASSES).looks(PICTURE, [0])[0]
    assert look["correct"] and look["predicted"] == 0


def test_imagenet_models_take_the_papers_objects() -> None:
    entries = imagenet.classes()
    model = Fixed(
        [float(at == 530) for at in range(1000)], [entry.name for entry in entries], [entry.aliases for entry in entries]
    )
    grid = read_grid("imagenet-d")
    reader = reading("m", model, grid.classes, {each.name: each.ids for each in grid.objects})
    assert reader.outputs[grid.classes.index("alarm clock")] == (409, 530)
    assert sum(map(len, reader.outputs)) == 125
    assert reader.looks(PICTURE, [grid.classes.index("alarm clock")])[0]["correct"]


def test_other_label_spaces_and_broken_scores_are_errors() -> None:
    with pytest.raises(LabelMismatch, match="model m"):
        reading("m", Fixed([0.0, 1.0], ["oak", "elm"]), list(CLASSES), CLASSES)
    broken = Fixed([float("nan"), 1.0, 1.0], ["n1", "n2", "n3"])
    with pytest.raises(RunFailed, match="not finite"):
        reading("m", broken, list(CLASSES), CLASSES).looks(PICTURE, [0])
