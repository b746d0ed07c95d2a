"""The demo command and the pieces of the demos that need no run."""

from __future__ import annotations

import pickle
from importlib.metadata import EntryPoint

import cloudpickle
import pytest
import torch
from typer.testing import CliRunner

from counterfoil.cli import demo as command
from counterfoil.cli.app import app
from counterfoil.core.errors import UsageError
from counterfoil.metrics.estimate import Estimate
from counterfoil.parts import hub, registry
from counterfoil_lab.demo import _cell


def test_a_number_without_an_interval_is_printed_as_such() -> None:
    assert _cell(Estimate(50.0, None, None, 3, "too few images for an interval").to_dict()) == "50 (no interval)"
    assert _cell(Estimate(50.0, 40.0, 60.0, 9).to_dict()) == "50 (40 to 60)"
    assert _cell(Estimate(-5.0, -9.0, 1.0, 9).to_dict()) == "−5 (−9 to 1)"


def test_without_the_lab_the_demo_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "entry_points", lambda group: [])
    result = CliRunner().invoke(app, ["demo"])
    assert isinstance(result.exception, UsageError)
    assert "pip install 'counterfoil[lab]'" in str(result.exception)


def test_a_package_brings_a_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("mine", "tests.lab.test_demo:Mine", "counterfoil.demos")
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
    assert hub.bundled("lab:rewriter").endswith("weights/rewriter")
    assert hub.bundled("org/name") == "org/name"
    with pytest.raises(UsageError, match="did you mean 'rewriter'"):
        hub.bundled("lab:rewritter")


def test_the_wardrobe_travels_to_other_processes() -> None:
    data = registry.create("dataset", "lab:wardrobe", {"count": 6})
    samples = list(data)
    drawn = data.load(samples[5], None)
    for copy in (cloudpickle.loads(cloudpickle.dumps(data)), pickle.loads(pickle.dumps(data))):
        assert torch.equal(copy.load(samples[5], None), drawn)
