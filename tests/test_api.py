"""`counterfoil.evaluate` takes names or objects; the package itself loads without torch."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import counterfoil
from counterfoil.core.errors import BadData, BadPart, CounterfoilError
from counterfoil.parts.contracts import Sample
from counterfoil.parts.generators.latent import LatentGenerator
from tests.fakes import CLASSES, TinyAutoencoder, TinyModel
from tests.worlds import FAKES, arrays, label_images

SEARCH = {"budget": 2, "step": 0.5}


def test_names_are_sorted_complete_and_there():
    assert counterfoil.__all__ == sorted(counterfoil.__all__)
    assert dir(counterfoil) == counterfoil.__all__
    for name in counterfoil.__all__:
        assert getattr(counterfoil, name).__name__ == name
    tree = ast.parse(Path(counterfoil.__file__).read_text())
    (typed,) = [node for node in tree.body if isinstance(node, ast.If)]
    assert sorted(alias.name for node in typed.body for alias in node.names) == counterfoil.__all__


@pytest.mark.parametrize(
    "module", ["counterfoil", "counterfoil.store", "counterfoil.metrics", "counterfoil.report", "counterfoil.cli.app"]
)
def test_reading_results_needs_no_torch(module):
    code = f"import {module}, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_objects_and_names_give_the_same_numbers(tmp_path):
    images, labels = label_images(16)
    by_name = counterfoil.evaluate(
        f"python:{FAKES}:TinyModel", f"tensors:{arrays(tmp_path / 'data.npz', 16)}", generator="brightness:", oracle="daylight:",
        size=16, search=SEARCH, out=tmp_path / "named",
    )  # fmt: skip
    from counterfoil_brightness import Brightness, Daylight

    module = nn.Sequential(TinyModel())
    by_object = counterfoil.evaluate(
        module, (images, labels), classes=CLASSES, generator=Brightness(), oracle=Daylight(), size=16, search=SEARCH,
        out=tmp_path / "objects",
    )  # fmt: skip
    assert by_object.scores == by_name.scores
    assert by_object.scores["FMR"].n == 16
    assert {trial.image_id for trial in by_object.trials} == {f"{index:08d}" for index in range(16)}


def test_cautions_are_part_of_the_run_and_are_shown(tmp_path, capsys):
    from counterfoil.parts.contracts import Trait

    class Assumes(TinyModel):
        def describe(self):
            return [Trait("normalisation", "none", "assumed", caution="no mean and std were given")]

    images, labels = label_images(8)
    run = counterfoil.evaluate(
        Assumes(), (images, labels), classes=CLASSES, generator="brightness:", oracle="daylight:", size=16, search=SEARCH,
        out=tmp_path / "run",
    )  # fmt: skip
    assert any("no mean and std were given" in caution for caution in run.cautions)
    assert len(run.cautions) > 1  # eight images show little
    shown = " ".join(capsys.readouterr().err.split())
    assert "normalisation none (assumed)" in shown
    for caution in run.cautions:
        assert f"take care: {caution}" in shown
    assert counterfoil.open_run(tmp_path / "run").cautions == run.cautions


def test_a_run_makes_its_own_report(tmp_path):
    images, labels = label_images(8)
    run = counterfoil.evaluate(
        TinyModel(), (torch.from_numpy(images), labels), classes=CLASSES, generator="brightness:", oracle="daylight:",
        size=16, search=SEARCH, out=tmp_path / "run",
    )  # fmt: skip
    assert run.report().read_text().count("FMR") > 1


def test_two_models_of_one_class_do_not_share_a_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    images, labels = label_images(8)
    places = {
        counterfoil.evaluate(
            TinyModel(seed=seed),
            (images, labels),
            classes=CLASSES,
            generator="brightness:",
            oracle="daylight:",
            size=16,
            search=SEARCH,
        ).path
        for seed in (0, 1)
    }
    assert len(places) == 2


def test_objects_that_differ_in_anything_do_not_share_a_run(tmp_path, monkeypatch):
    from counterfoil_brightness import Brightness, Daylight

    monkeypatch.chdir(tmp_path)
    images, labels = label_images(8)
    usual = {"data": (images, labels), "generator": Brightness(), "oracle": Daylight(), "model": nn.Sequential(TinyModel())}
    others = [
        {"data": (255 - images, labels)}, {"generator": Brightness(per_step=0.3)}, {"oracle": Daylight(darkest=0.2)},
        {"generator": LatentGenerator(TinyAutoencoder())}, {"generator": LatentGenerator(TinyAutoencoder(seed=2))},
    ]  # fmt: skip
    places = [
        counterfoil.evaluate(**{**usual, **changes}, classes=CLASSES, size=16, search=SEARCH).path
        for changes in ({}, *others, {"oracle": Daylight()})
    ]
    assert len(set(places)) == 6 and places[0] == places[-1]


def test_the_order_of_a_modules_classes_tells_runs_apart(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = f"tensors:{arrays(tmp_path / 'data.npz', 8)}"
    module = nn.Sequential(TinyModel())
    places = {
        counterfoil.evaluate(
            module, data, classes=classes, generator="brightness:", oracle="daylight:", size=16, search=SEARCH
        ).path
        for classes in (CLASSES, CLASSES[::-1])
    }
    assert len(places) == 2


def test_a_bare_module_needs_class_names():
    with pytest.raises(BadPart, match="give classes="):
        counterfoil.evaluate(nn.Identity(), "photos", generator="brightness:", oracle="daylight:")


def test_lance_runs_with_objects_too(tmp_path):
    from tests.protocols.lance import world

    parts = world.make_parts().parts
    run = counterfoil.evaluate(
        parts["model"], parts["dataset"], oracle=parts["oracle"], captioner=parts["captioner"], rewriter=parts["rewriter"],
        editor=parts["editor"], encoder=parts["encoder"], protocol="lance",
        edit={"factors": ["background"], "class_similarity": 1.0},
        quality={"image_image": -1, "image_text": -1, "directional": 0.5}, out=tmp_path / "run",
    )  # fmt: skip
    assert run.results["protocol"] == "lance" and run.results["factors"]["background"]["drop"]["value"] > 30


def test_a_model_object_is_tested_on_an_exported_set(tmp_path):
    from counterfoil import protocols
    from counterfoil.report.export import export
    from tests.protocols.imagenet_d.world import SquareModel, make_parts, spec

    export(protocols.run(spec(), tmp_path / "made", given=make_parts()), tmp_path / "set", licence="MIT")
    run = counterfoil.evaluate(SquareModel(), tmp_path / "set", protocol="imagenet-d", out=tmp_path / "run")
    assert run.results["accuracy"]["value"] == 100 and run.results["model"]["name"] == "object:SquareModel"


def test_a_model_object_is_tested_on_arrays(tmp_path):
    images, labels = label_images(10)
    run = counterfoil.evaluate(
        TinyModel(), (images, labels), classes=CLASSES, protocol="imagenet-d", size=16, out=tmp_path / "run"
    )
    assert run.results["accuracy"]["value"] == 80 and run.results["accuracy"]["n"] == 10  # every fifth has another label


def test_what_a_protocol_needs_is_said_in_one_line(tmp_path):
    with pytest.raises(CounterfoilError, match="generator") as caught:
        counterfoil.evaluate(TinyModel(), label_images(8), classes=CLASSES, oracle="daylight:", out=tmp_path / "run")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("ids", "labels", "said"),
    [("aab", (0, 1, 2), "image id 'a' occurs twice"), ("abc", (0, 1, 4), "'c' has the label 4, and there are classes 0 to 3")],
)
def test_data_whose_ids_or_labels_are_wrong_are_refused(tmp_path, ids, labels, said):
    class Data:
        classes = CLASSES

        def __len__(self):
            return len(ids)

        def __iter__(self):
            return (Sample(image_id, label, "") for image_id, label in zip(ids, labels, strict=True))

        def load(self, sample, size):
            return torch.full((3, size, size), 0.5)

    with pytest.raises(BadData, match=said):
        counterfoil.evaluate(TinyModel(), Data(), generator="brightness:", oracle="daylight:", size=16, out=tmp_path / "run")
    with pytest.raises(BadData, match=said):
        counterfoil.evaluate(TinyModel(), Data(), protocol="imagenet-d", size=16, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            {"model": object()},
            "model is a object without classes, differentiable, logits; see Model in counterfoil.parts.contracts",
        ),
        ({"data": [1, 2]}, "data is a list without classes, load; see Dataset in counterfoil.parts.contracts"),
        ({"generator": object()}, "generator is a object without moving, size, step_size, start, render, step"),
        ({"oracle": object()}, "oracle is a object without bind, judge"),
        ({"oracle": TinyModel}, r"oracle is the class TinyModel itself; give an object of it, as in TinyModel\(\)"),
    ],
)
def test_an_object_that_lacks_what_its_role_asks_for_is_refused(tmp_path, wrong, said):
    parts = {"model": TinyModel(), "data": label_images(4), "generator": "brightness:", "oracle": "daylight:"}
    with pytest.raises(BadPart, match=said):
        counterfoil.evaluate(**{**parts, **wrong}, classes=CLASSES, size=16, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_module_and_its_classes_are_a_model(tmp_path):
    module, parts = nn.Sequential(TinyModel()), {"generator": "brightness:", "oracle": "daylight:", "size": 16, "search": SEARCH}
    paired = counterfoil.evaluate((module, CLASSES), label_images(8), out=tmp_path / "a", **parts)
    apart = counterfoil.evaluate(module, label_images(8), classes=CLASSES, out=tmp_path / "b", **parts)
    assert paired.scores == apart.scores and paired.spec["model"] == apart.spec["model"]
