from __future__ import annotations

from pathlib import Path

import pytest
import torch

from counterfoil.core.errors import BadPart, BadSpec
from counterfoil.parts.models.python_factory import python_model

SOURCE = """
from dataclasses import dataclass
import torch
from torch import nn
from counterfoil.core.errors import BadData
from counterfoil.parts.models.module import ModuleModel

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
    (tmp_path / "nets.py").write_text(SOURCE)
    return tmp_path / "nets.py"


@pytest.mark.parametrize(("factory", "classes"), [("pair", ["0", "1"]), ("model", ["x", "y"]), ("with_classes", ["p", "q"])])
def test_a_function_in_a_file_makes_a_model(source: Path, factory: str, classes: list[str]) -> None:
    model = python_model(f"{source}:{factory}")
    assert list(model.classes) == classes
    assert model.logits(torch.full((1, 3, 4, 4), 0.5)).tolist() == [[0.5, 0.5]]


def test_options_go_to_the_function(source: Path) -> None:
    assert len(python_model(f"{source}:pair", outputs=4).classes) == 4


def test_a_function_in_a_module_beside_makes_a_model(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source.rename(source.with_name("my_nets_for_tests.py"))
    monkeypatch.chdir(source.parent)
    monkeypatch.setattr("sys.path", [entry for entry in __import__("sys").path if entry])
    assert list(python_model("my_nets_for_tests:model").classes) == ["x", "y"]


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
def test_functions_that_make_no_model_are_refused(source: Path, factory: str, message: str) -> None:
    with pytest.raises(BadPart, match=message) as caught:
        python_model(f"{source}:{factory}")
    assert "\n" not in str(caught.value)


def test_an_error_of_ours_inside_the_function_comes_through(source: Path) -> None:
    from counterfoil.core.errors import BadData

    with pytest.raises(BadData, match="no data here"):
        python_model(f"{source}:complaining")


def test_wrong_options_are_named(source: Path) -> None:
    with pytest.raises(BadSpec, match=r"unexpected keyword argument 'colour'; its options are outputs$"):
        python_model(f"{source}:pair", colour="red")


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
        python_model(place)


def test_a_file_that_cannot_be_imported_is_refused(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import surely_not_installed_anywhere\n")
    with pytest.raises(BadPart, match=r"broken\.py: cannot be imported, ModuleNotFoundError"):
        python_model(f"{tmp_path / 'broken.py'}:make")
