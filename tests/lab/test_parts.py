"""The lab's parts and demos are found by name, meet the contracts and need no network."""

from __future__ import annotations

import pickle
import socket
from importlib.metadata import EntryPoint

import cloudpickle
import pytest
import torch
from lab.training.measure import MEASURES
from typer.testing import CliRunner

from counterfoil.cli import run as command
from counterfoil.cli.app import app
from counterfoil.core.errors import BadData, UnknownName, UsageError
from counterfoil.parts import registry, weights
from counterfoil.testing import check_generator, check_model
from counterfoil_lab.checker import Checker
from counterfoil_lab.parts import CLASSIFIERS, GENERATORS, WEIGHTS


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifiers_meet_the_contract(name):
    check_model(registry.create("model", f"lab:{name}"))


@pytest.mark.parametrize("name", GENERATORS)
def test_generators_meet_the_contract(name):
    check_generator(registry.create("generator", f"lab:{name}"), size=64)


def test_scenes_do_not_depend_on_how_many_are_drawn():
    few, many = (registry.create("dataset", "lab:wardrobe", {"count": count}) for count in (3, 200))
    for sample in few:
        assert torch.equal(few.load(sample, None), many.load(sample, None))


def test_splits_and_seeds_give_other_scenes():
    first = registry.create("dataset", "lab:wardrobe", {"count": 4})
    for options in ({"split": "tune"}, {"seed": 1}, {"distribution": "full"}):
        other = registry.create("dataset", "lab:wardrobe", {"count": 4, **options})
        assert not torch.equal(first.load(next(iter(first)), None), other.load(next(iter(other)), None))
        assert other.provenance() != first.provenance()


def test_wrong_names_are_explained():
    with pytest.raises(UnknownName, match="did you mean 'narrow'"):
        registry.create("model", "lab:narow")
    with pytest.raises(UnknownName, match="there is lab:wardrobe"):
        registry.create("dataset", "lab:kitchen")
    with pytest.raises(BadData, match="at least 1"):
        registry.create("dataset", "lab:wardrobe", {"count": 0})


LARGEST = 60e6  # bytes of all weights


PARTS = {
    **{name: ("model", f"lab:{name}") for name in CLASSIFIERS},
    **{name: ("generator", f"lab:{name}") for name in GENERATORS},
    "clip": ("oracle", "lab:clip"),
    "diffusion": ("painter", "lab:diffusion"),
    "blip": ("captioner", "lab:blip"),
    "rewriter": ("rewriter", "lab:rewriter"),
}


def test_all_weights_together_are_within_their_limit() -> None:
    files = list(WEIGHTS.rglob("*.safetensors"))
    assert len(files) >= len(MEASURES)
    assert sum(file.stat().st_size for file in files) <= LARGEST


def test_every_model_that_ships_is_a_part_or_the_checker() -> None:
    assert {*PARTS, "attributes"} == {*MEASURES, "kl"}


@pytest.mark.parametrize("name", [*PARTS, "attributes"])
def test_models_load_without_a_network(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[object] = []

    def refuse(*address: object, **options: object) -> None:
        requests.append(address)
        raise OSError("there is no network in this test")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    assert (Checker() if name == "attributes" else registry.create(*PARTS[name])) is not None
    assert not requests


def test_without_the_lab_the_demo_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "entry_points", lambda group: [])
    result = CliRunner().invoke(app, ["demo"])
    assert isinstance(result.exception, UsageError)
    assert "pip install 'counterfoil[lab]'" in str(result.exception)


def test_a_package_brings_a_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("mine", "tests.lab.test_parts:Mine", "counterfoil.demos")
    monkeypatch.setattr(command, "entry_points", lambda group: [entry])
    monkeypatch.setattr(EntryPoint, "load", lambda self: Mine)
    result = CliRunner().invoke(app, ["demo", "--protocol", "mine", "--images", "3"])
    assert result.output == "3 counterfoil-demo\n"
    assert "there are mine and all" in str(CliRunner().invoke(app, ["demo"]).exception)


class Mine:
    """A demo of a package."""

    @staticmethod
    def run(images: object, out: object) -> None:
        print(images, out)


def test_a_folder_of_the_lab_goes_by_name() -> None:
    assert weights.bundle_folder("lab:rewriter").endswith("weights/rewriter")
    assert weights.bundle_folder("org/name") == "org/name"
    with pytest.raises(UsageError, match="did you mean 'rewriter'"):
        weights.bundle_folder("lab:rewritter")


def test_the_wardrobe_travels_to_other_processes() -> None:
    data = registry.create("dataset", "lab:wardrobe", {"count": 6})
    samples = list(data)
    drawn = data.load(samples[5], None)
    for copy in (cloudpickle.loads(cloudpickle.dumps(data)), pickle.loads(pickle.dumps(data))):
        assert torch.equal(copy.load(samples[5], None), drawn)
