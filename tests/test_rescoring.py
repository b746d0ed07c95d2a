"""Another model or oracle on stored images; the same one gives the same answers again."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from counterfoil import protocols
from counterfoil.core.errors import LabelMismatch, UsageError
from counterfoil.core.records import Verdict
from counterfoil.core.spec import PartSpec
from counterfoil.protocols import rescoring
from counterfoil.protocols.fmr.results import fmr_results
from counterfoil.protocols.reading import result_files
from counterfoil.store.later import asked_of
from tests.fakes import TinyModel
from tests.worlds import FAKES, arrays, spec


@pytest.fixture
def run(tmp_path):
    return protocols.run(spec(f"tensors:{arrays(tmp_path / 'data.npz', 21)}"), tmp_path / "run")


def plain(rows, **changes):
    return sorted(repr(dataclasses.replace(row, **changes)) for row in rows)


def test_the_same_model_says_the_same_of_the_stored_pictures(run):
    own = list(run.predictions())
    again = f"python:{FAKES}:TinyModel"
    rescoring.score(run, PartSpec(name=again), again=True)
    stored = list(run.predictions())[len(own) :]
    assert plain(stored, confidence=0, truth=0, rank=0) == plain(own, confidence=0, truth=0)
    for told, before in zip(sorted(stored, key=repr), sorted(own, key=repr), strict=True):
        assert told.truth == pytest.approx(before.truth, abs=1e-5)


def test_the_same_oracle_says_the_same_of_the_stored_pictures(run):
    own = list(run.verdicts())
    rescoring.judge(run, PartSpec(name="daylight:"), again=True)
    stored = list(run.verdicts())[len(own) :]
    assert plain(stored, score=0) == plain(own, score=0)


@pytest.mark.parametrize(("precision", "low"), [("float32", False), ("bf16", True)])
def test_models_and_oracles_are_asked_in_the_precision_of_the_run(tmp_path, monkeypatch, precision, low):
    data = f"tensors:{arrays(tmp_path / 'data.npz', 8)}"
    run = protocols.run(spec(data, engine={"precision": precision}), tmp_path / "run")
    seen = []
    forward = TinyModel.logits

    def noting(self, images):
        seen.append(torch.is_autocast_enabled("cpu"))
        return forward(self, images)

    monkeypatch.setattr(TinyModel, "logits", noting)
    rescoring.score(run, PartSpec(name="noting"), built=TinyModel())
    own = [each for each in run.predictions() if each.model != "noting"]
    again = [each for each in run.predictions() if each.model == "noting"]
    assert set(seen) == {low}
    assert sorted(each.predicted for each in again) == sorted(each.predicted for each in own)


def test_another_model_gets_numbers_of_its_own(run):
    name, before = f"python:{FAKES}:Another", run.results
    rescoring.score(run, PartSpec(name=name))
    other, own = fmr_results(run, model=name), fmr_results(run)
    assert other["SA"]["n"] == own["SA"]["n"] == 21
    assert other["SA"] != own["SA"]
    assert run.results == before  # what the run itself found stays as it was


def test_a_stricter_oracle_lowers_the_validation_rate_under_its_own_name_alone(run):
    strict, before = PartSpec(name="daylight:", options={"darkest": 0.5}), fmr_results(run)
    with pytest.raises(UsageError, match=r"the run has answers of one by that name, with other options; .* --as NAME"):
        rescoring.judge(run, strict)
    rescoring.judge(run, strict, name="strict")
    assert fmr_results(run, oracle="strict")["VR"]["value"] < run.results["VR"]["value"]
    assert fmr_results(run) == before
    rescoring.judge(run, strict, name="strict")  # the same again
    with pytest.raises(UsageError, match="oracle strict: the run has answers"):
        rescoring.judge(run, PartSpec(name="daylight:", options={"darkest": 0.4}), name="strict")


def test_a_model_that_was_trained_anew_does_not_take_the_place_of_the_one_that_was_tested(twin):
    run, _ = twin
    name = run.spec["model"]["name"]

    class Anew(TinyModel):
        def provenance(self):
            return {"weights": "e" * 64}

    before = fmr_results(run)
    with pytest.raises(UsageError, match="with other weights"):
        rescoring.score(run, PartSpec(name=name), built=Anew())
    rescoring.score(run, PartSpec(name=name), built=Anew(), name="anew")
    assert fmr_results(run) == before


def test_results_follow_what_the_runs_own_oracle_says_later(tmp_path):
    run = protocols.run(spec(f"tensors:{arrays(tmp_path / 'data.npz', 21)}", oracle="human:"), tmp_path / "run")
    assert run.results["FMR"]["value"] is None and run.results["counts"]["pending"] == 21
    made = [trial for trial in run.trials if trial.image]
    run.append(verdicts=[Verdict(each.trial_id, "made", "human:", True, 1.0, each.label) for each in made])
    assert run.results["counts"]["pending"] == 0 and run.results["FMR"]["n"] == 21
    (entry,) = result_files(run)  # what it hands in follows from its answers
    assert entry.measures["FMR"].found.value == run.results["FMR"]["value"]


def test_an_unfinished_run_gets_no_results_by_being_judged(run):
    (run.path / "results.json").unlink()
    rescoring.judge(run, PartSpec(name="daylight:"), again=True)
    assert run.results is None


def test_a_model_of_other_classes_is_refused(run):
    with pytest.raises(LabelMismatch):
        rescoring.score(run, PartSpec(name=f"python:{FAKES}:OtherClasses"))


@pytest.fixture
def twin(tmp_path):
    """A run against a model whose weights have a hash, and an oracle with the same weights."""
    file = tmp_path / "plain.py"
    file.write_text("from tests.fakes import CLASSES, TinyModel\n\ndef plain():\n    return TinyModel().body, list(CLASSES)\n")
    data = f"tensors:{arrays(tmp_path / 'data.npz', 4)}"
    run = protocols.run(spec(data, model=f"python:{file}:plain", search={"budget": 1}), tmp_path / "run")
    return run, PartSpec(name=f"classifier:python:{file}:plain")


def test_an_oracle_that_is_the_tested_model_is_told_of_and_recorded(twin):
    run, oracle = twin
    said: list[str] = []
    rescoring.judge(run, oracle, tell=said.append)
    assert len(said) == 1 and "is not independent" in said[0] and "the run's model" in said[0]
    rescoring.judge(run, PartSpec(name="daylight:"), tell=said.append)
    assert len(said) == 1
    recorded = {each.name: each for each in asked_of(run.path)}
    assert {each.role for each in recorded.values()} == {"oracle"}
    assert recorded["daylight:"].caution == ""
    assert said[0] == f"oracle {oracle.name} is {recorded[oracle.name].caution}"
    assert recorded[oracle.name].provenance["weights"] == run.provenance["parts"]["model"]["weights"]


@pytest.mark.parametrize(
    ("role", "told"),
    [("generator", "so it judges what it helped to make"), ("model 2", "so the one fails"), ("encoder", ""), ("oracle", "")],
)
def test_an_oracle_may_not_have_the_weights_of_other_models_or_of_what_made_the_pictures(twin, role, told):
    run, oracle = twin
    parts = dict(run.provenance["parts"])
    run.provenance = {**run.provenance, "parts": {role: {"guide.weights": parts["model"]["weights"]}}}
    rescoring.judge(run, oracle)
    caution = asked_of(run.path)[0].caution
    assert (f"is that of the run's {role}, {told}" in caution) if told else caution == ""


def test_a_model_that_is_the_runs_oracle_is_recorded(twin):
    run, oracle = twin
    run.provenance = {**run.provenance, "parts": {"oracle": run.provenance["parts"]["model"]}}
    rescoring.score(run, PartSpec(name=oracle.name.removeprefix("classifier:")))
    assert [(each.role, "the run's oracle" in each.caution) for each in asked_of(run.path)] == [("model", True)]


class Costly(TinyModel):
    """Counts the images it is asked about, and fails after some."""

    asked, fails_after = 0, 10**9

    def logits(self, images):
        if type(self).asked >= self.fails_after:
            raise KeyboardInterrupt
        type(self).asked += len(images)
        return super().logits(images)


def test_scoring_that_was_interrupted_resumes_and_a_repetition_asks_nothing(run, monkeypatch):
    monkeypatch.setattr(Costly, "asked", 0)
    monkeypatch.setattr(Costly, "fails_after", 24)
    whole = rescoring.pictures_of(run)
    with pytest.raises(KeyboardInterrupt):
        rescoring.score(run, PartSpec(name="given:"), built=Costly(), name="costly")
    assert len(list(run.predictions("costly"))) == Costly.asked == 24 < whole
    monkeypatch.setattr(Costly, "fails_after", 10**9)
    seen: list[int] = []
    rescoring.score(run, PartSpec(name="given:"), built=Costly(), name="costly", watch=seen.append)
    answers = list(run.predictions("costly"))
    assert len(answers) == len({(each.trial_id, each.picture) for each in answers}) == whole == sum(seen)
    before = Costly.asked
    rescoring.score(run, PartSpec(name="given:"), built=Costly(), name="costly")
    assert Costly.asked == before and len(list(run.predictions("costly"))) == whole


def test_an_oracle_is_asked_again_where_it_abstained_alone(run):
    name = f"python:{FAKES}:CommandedOracle"
    rescoring.judge(run, PartSpec(name=name, options={"abstains": True}), name="later")
    rows = len(list(run.verdicts("later")))
    rescoring.judge(run, PartSpec(name=name, options={"abstains": True}), name="later")
    assert len(list(run.verdicts("later"))) == 2 * rows
