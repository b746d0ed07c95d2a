"""Another model or oracle on stored pictures; the same one says the same again."""

from __future__ import annotations

import dataclasses

import pytest

from counterfoil import rescoring
from counterfoil.errors import LabelMismatch
from counterfoil.metrics.fmr import fmr_results
from counterfoil.protocols import fmr
from counterfoil.spec import PartSpec
from tests.worlds import FAKES, arrays, spec


@pytest.fixture
def run(tmp_path):
    return fmr.run(spec(f"tensors:{arrays(tmp_path / 'data.npz', 21)}"), tmp_path / "run")


def plain(rows, **changes):
    return sorted(repr(dataclasses.replace(row, **changes)) for row in rows)


def test_the_same_model_says_the_same_of_the_stored_pictures(run):
    own = list(run.predictions())
    again = f"python:{FAKES}:TinyModel"
    rescoring.score(run, PartSpec(name=again))
    stored = list(run.predictions())[len(own) :]
    assert plain(stored, confidence=0, truth=0, rank=0) == plain(own, confidence=0, truth=0)
    for told, before in zip(sorted(stored, key=repr), sorted(own, key=repr), strict=True):
        assert told.truth == pytest.approx(before.truth, abs=1e-5)


def test_the_same_oracle_says_the_same_of_the_stored_pictures(run):
    own = list(run.verdicts())
    rescoring.judge(run, PartSpec(name="daylight:"))
    stored = list(run.verdicts())[len(own) :]
    assert plain(stored, score=0) == plain(own, score=0)


def test_another_model_gets_numbers_of_its_own(run):
    name, before = f"python:{FAKES}:Another", run.results
    rescoring.score(run, PartSpec(name=name))
    other, own = fmr_results(run, model=name), fmr_results(run)
    assert other["SA"]["n"] == own["SA"]["n"] == 21
    assert other["SA"] != own["SA"]
    assert run.results == before  # what the run itself found stays as it was


def test_a_stricter_oracle_lowers_the_validation_rate(run):
    rescoring.judge(run, PartSpec(name="daylight:", options={"darkest": 0.5}))
    assert fmr_results(run)["VR"]["value"] < run.results["VR"]["value"]


def test_a_model_of_other_classes_is_refused(run):
    with pytest.raises(LabelMismatch):
        rescoring.score(run, PartSpec(name=f"python:{FAKES}:OtherClasses"))


def test_an_oracle_that_is_the_tested_model_is_told_of(tmp_path):
    file = tmp_path / "plain.py"
    file.write_text("from tests.fakes import CLASSES, TinyModel\n\ndef plain():\n    return TinyModel().body, list(CLASSES)\n")
    data = f"tensors:{arrays(tmp_path / 'data.npz', 4)}"
    run = fmr.run(spec(data, model=f"python:{file}:plain", search={"budget": 1}), tmp_path / "run")
    said: list[str] = []
    rescoring.judge(run, PartSpec(name=f"classifier:python:{file}:plain"), tell=said.append)
    assert len(said) == 1 and "is not independent" in said[0] and "the run's model" in said[0]
    rescoring.judge(run, PartSpec(name="daylight:"), tell=said.append)
    assert len(said) == 1
