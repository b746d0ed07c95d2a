"""`python:` in every role: a user's function makes the part, or what the role's adapter makes a part of."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch

from counterfoil import evaluate, protocols, store
from counterfoil.core.errors import BadData, BadPart, BadSpec, UnknownName
from counterfoil.parts import registry
from tests.sources import CHECKS
from tests.sources.own import PARTS, part_name
from tests.worlds import FAKES, spec

LACKING = {
    "oracle": "bind, judge; see Oracle in counterfoil.parts.contracts",
    "dataset": "classes, __len__, __iter__, load; see Dataset in counterfoil.parts.contracts",
    "captioner": "caption; see Captioner in counterfoil.parts.contracts",
    "rewriter": "rewrite; see Rewriter in counterfoil.parts.contracts",
    "editor": "size, sweep, invert, edit; see Editor in counterfoil.parts.contracts",
    "painter": "paint; see Painter in counterfoil.parts.contracts",
    "encoder": "embed_images, embed_texts; see Embedder in counterfoil.parts.contracts",
    "chat": "answer; see Chat in counterfoil.parts.contracts",
}
SOURCE = """
from tests.sources.own import Bright

class Nothing:
    pass

def whole_class():
    return Bright

def failing():
    raise ValueError("out of luck")

def leaving():
    raise SystemExit(0)
"""
MODELS = """
from dataclasses import dataclass
import torch
from torch import nn
from counterfoil.core.errors import BadData
from counterfoil.parts.models.modules import ModuleModel

NUMBER = 3

@dataclass
class Settings:
    outputs: int = 2

class Net(nn.Module):
    def __init__(self, outputs=2):
        super().__init__()
        self.outputs = outputs
    def forward(self, images):
        return images.mean(dim=(1, 2, 3))[:, None].expand(-1, self.outputs)

def pair(outputs=2):
    return Net(Settings(outputs).outputs), [str(index) for index in range(outputs)]

def model():
    return ModuleModel(Net(), ["x", "y"])

def with_classes():
    net = Net()
    net.classes = ["p", "q"]
    return net

def bare():
    return Net()

def number():
    return 3

def failing():
    raise ValueError("out of\\nluck")

def complaining():
    raise BadData("no data here")
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(SOURCE)
    return tmp_path / "mine.py"


@pytest.fixture
def models(tmp_path: Path) -> Path:
    (tmp_path / "nets.py").write_text(MODELS)
    return tmp_path / "nets.py"


def model(place: str, **options: object):
    return registry.create("model", f"python:{place}", options)


def test_every_role_has_it() -> None:
    assert {*PARTS, "model", "generator"} == set(registry.ROLES) == {*LACKING, "model", "generator"}


@pytest.mark.parametrize("role", PARTS)
def test_a_function_of_ones_own_makes_a_part(role: str) -> None:
    CHECKS[role](registry.create(role, part_name(role)))


@pytest.mark.parametrize("role", PARTS)
def test_what_it_lacks_is_named(role: str, source: Path) -> None:
    with pytest.raises(BadPart) as refused:
        registry.create(role, f"python:{source}:Nothing")
    assert str(refused.value) == f"python:{source}:Nothing: gives a Nothing without {LACKING[role]}"


@pytest.mark.parametrize("role", PARTS)
def test_a_class_is_no_object_of_it(role: str, source: Path) -> None:
    with pytest.raises(BadPart, match=r"gives the class Bright itself; give an object of it, as in Bright\(\)"):
        registry.create(role, f"python:{source}:whole_class")
    with pytest.raises(BadPart, match="the function failed with ValueError: out of luck"):
        registry.create(role, f"python:{source}:failing")
    with pytest.raises(BadPart, match="the function failed with SystemExit: 0"):
        registry.create(role, f"python:{source}:leaving")


def test_a_file_without_its_kind_is_answered_with_how_to_write_it() -> None:
    with pytest.raises(UnknownName, match=r"as in 'python:mine.py:FUNCTION'"):
        registry.create("oracle", "mine.py")


def test_options_are_the_arguments() -> None:
    assert registry.create("oracle", part_name("oracle"), {"darkest": 0.3}).darkest == 0.3
    with pytest.raises(BadSpec, match=r"got an unexpected keyword argument 'darkst'; its options are darkest$"):
        registry.create("oracle", part_name("oracle"), {"darkst": 0.3})
    with pytest.raises(BadSpec, match=r"'pens'; it takes no options$"):
        registry.create("painter", part_name("painter"), {"pens": 3})
    dataset = registry.create("dataset", part_name("dataset"), {"count": 5})
    assert len(dataset) == 5 and next(iter(dataset)).source.startswith(f"{part_name('dataset')}[00000000]")


def test_a_whole_run_of_ones_own_parts(tmp_path: Path) -> None:
    run = evaluate(
        f"python:{FAKES}:TinyModel",
        part_name("dataset"),
        generator="brightness:",
        oracle={"name": part_name("oracle"), "darkest": 0.05},
        size=16,
        search={"budget": 2, "step": 0.5},
        out=tmp_path / "run",
    )
    assert run.counts["images"] == 12 and np.isfinite(run.scores["SA"].value)


def test_going_on_after_an_edit_of_the_file_is_told_and_recorded(tmp_path: Path, source: Path) -> None:
    chosen = spec(
        part_name("dataset"), oracle=f"python:{source}:Bright", generator="brightness:", search={"budget": 2, "step": 0.5}
    )
    protocols.run(chosen, tmp_path / "run")
    before = hashlib.sha256(source.read_bytes()).hexdigest()
    told: list[str] = []
    protocols.run(chosen, tmp_path / "run", tell=told.append)
    assert not any("resumed" in line for line in told)
    source.write_text(f"{SOURCE}\n# another version\n")
    protocols.run(chosen, tmp_path / "run", tell=told.append)
    assert any(f"resumed with functions.{source}:Bright" in line for line in told)
    run = store.open_run(tmp_path / "run")
    recorded = [each["functions"][f"{source}:Bright"] for each in (run.provenance, *run.resumed)]
    assert recorded == [before, hashlib.sha256(source.read_bytes()).hexdigest()]


def test_functions_are_found_wherever_a_specification_names_them(source: Path) -> None:
    name = f"{source}:Bright"
    members = {"name": "ensemble:", "members": [f"python:{name}", {"name": "classifier:python:tests.sources.own:Bright"}]}
    found = registry.function_hashes({"oracle": members, "models": [{"name": "lab:narrow"}, "python:absent.py:load"], "seed": 3})
    assert list(found) == [name, "tests.sources.own:Bright"]
    assert found[name] == hashlib.sha256(source.read_bytes()).hexdigest()


@pytest.mark.parametrize(("factory", "classes"), [("pair", ["0", "1"]), ("model", ["x", "y"]), ("with_classes", ["p", "q"])])
def test_a_function_in_a_file_makes_a_model(models: Path, factory: str, classes: list[str]) -> None:
    made = model(f"{models}:{factory}")
    assert list(made.classes) == classes
    assert made.logits(torch.full((1, 3, 4, 4), 0.5)).tolist() == [[0.5, 0.5]]


def test_options_go_to_the_function(models: Path) -> None:
    assert len(model(f"{models}:pair", outputs=4).classes) == 4


def test_a_function_in_a_module_beside_makes_a_model(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models.rename(models.with_name("my_nets_for_tests.py"))
    monkeypatch.chdir(models.parent)
    monkeypatch.setattr("sys.path", [entry for entry in __import__("sys").path if entry])
    assert list(model("my_nets_for_tests:model").classes) == ["x", "y"]


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        ("nothing", "has no function 'nothing'; it has"),
        ("NUMBER", "has no function 'NUMBER'"),
        ("bare", "a module without class names"),
        ("number", "gives a int"),
        ("failing", "failed with ValueError: out of luck"),
    ],
)
def test_functions_that_make_no_model_are_refused(models: Path, factory: str, message: str) -> None:
    with pytest.raises(BadPart, match=message) as caught:
        model(f"{models}:{factory}")
    assert "\n" not in str(caught.value)


def test_an_error_of_ours_inside_the_function_comes_through(models: Path) -> None:
    with pytest.raises(BadData, match="no data here"):
        model(f"{models}:complaining")


def test_wrong_options_are_named(models: Path) -> None:
    with pytest.raises(BadSpec, match=r"unexpected keyword argument 'colour'; its options are outputs$"):
        model(f"{models}:pair", colour="red")


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("nets", "write python:package.module:factory"),
        ("nets:", "write python:package.module:factory"),
        ("nowhere.py:make", "no such file"),
        ("surely_not_installed_anywhere:make", "no module of that name"),
    ],
)
def test_places_that_do_not_exist_are_refused(place: str, message: str) -> None:
    with pytest.raises(BadPart, match=message):
        model(place)


def test_a_file_that_cannot_be_imported_is_refused(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import surely_not_installed_anywhere\n")
    with pytest.raises(BadPart, match=r"broken\.py: cannot be imported, ModuleNotFoundError"):
        model(f"{tmp_path / 'broken.py'}:make")
