"""The doctor tries models and oracles before a run does: whatever breaks its contract is named, of any protocol."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from typer.testing import CliRunner

from counterfoil import protocols
from counterfoil.cli.app import app
from counterfoil.core.errors import BadSpec, RunFailed
from counterfoil.doctor import Diagnosis, examine, set_ups
from counterfoil.parts.contracts import Verdicts
from counterfoil.parts.models.preprocessing import Preprocessing
from counterfoil.protocols.workspace import Given
from tests.fakes import TinyModel
from tests.worlds import FAKES, arrays, spec, values


class Broken(TinyModel):
    """A model that breaks its contract in one way."""

    def __init__(self, how) -> None:
        super().__init__()
        self.how = how

    def logits(self, images):
        return self.how(self, images)

    def right(self, images):
        return super().logits(images)


def _leave(model, images):
    sys.exit(0)


def _overwrite(model, images):
    answer = model.right(images)
    images.data.zero_()
    return answer


def _raise(error):
    def answer(model, images):
        raise error

    return answer


MODELS = {
    "raises": (lambda model, images: [][0], "contract", "the model failed with IndexError"),
    "ends the process": (_leave, "contract", "the model ended the process"),
    "runs out of memory": (_raise(MemoryError()), "contract", "the model failed with MemoryError"),
    "stops an iteration": (_raise(StopIteration()), "contract", "the model failed with StopIteration"),
    "too few rows": (lambda model, images: model.right(images)[:1], "contract", "logits of shape"),
    "a single number": (lambda model, images: model.right(images).sum(), "contract", "logits of shape ()"),
    "complex": (lambda model, images: model.right(images) * 1j, "contract", "complex tensor"),
    "meta": (lambda model, images: model.right(images).to("meta"), "contract", "meta tensor"),
    "no tensor": (lambda model, images: None, "contract", "gives a NoneType"),
    "sparse": (lambda model, images: model.right(images).to_sparse(), "contract", "sparse tensor"),
    "a class too many": (
        lambda model, images: torch.nn.functional.pad(model.right(images), (0, 1)), "number of outputs", "one row per image",
    ),
    "writes into its input": (_overwrite, "overwritten input", "pixel values changed"),
    "no gradient": (lambda model, images: model.right(images.detach()), "gradients", ""),
    "integers": (lambda model, images: (1000 * model.right(images.detach())).long(), "gradients", ""),
}  # fmt: skip


def diagnose(tmp_path: Path, **parts) -> Diagnosis:
    (setup,) = set_ups(spec(f"tensors:{arrays(tmp_path / 'a.npz', 24)}"), Given(parts))
    return examine(setup, images=24)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_that_breaks_its_contract_is_named_before_a_run(tmp_path: Path, name: str) -> None:
    how, mistake, evidence = MODELS[name]
    found = diagnose(tmp_path, model=Broken(how))
    (finding,) = [each for each in found.findings if each.severity == "mistake"]
    assert finding.mistake == mistake and evidence in finding.evidence and "\n" not in finding.evidence


class BrokenOracle:
    """An oracle whose verdicts are what a function makes of right ones."""

    def __init__(self, how) -> None:
        self.how = how

    def bind(self, classes):
        return self

    def judge(self, images, labels):
        count = len(images)
        keeps = torch.ones(count, dtype=torch.int8, device=images.device)
        return self.how(Verdicts(keeps_label=keeps, scores=torch.ones(count), predicted=labels.clone()))


def _change(**columns):
    names = ("keeps_label", "scores", "predicted")
    return lambda right: Verdicts(**{name: columns.get(name, getattr(right, name)) for name in names})


ORACLES = {
    "raises": (lambda right: 1 / 0, "the oracle failed with ZeroDivisionError"),
    "ends the process": (lambda right: sys.exit(0), "the oracle ended the process"),
    "nothing": (lambda right: None, "answers with a NoneType"),
    "too few rows": (_change(keeps_label=torch.ones(1)), "keeps_label of shape"),
    "half a verdict": (lambda right: _change(keeps_label=0.5 * right.keeps_label)(right), "gives the verdict 0.5"),
    "verdicts of -9": (lambda right: _change(keeps_label=-9 * right.keeps_label)(right), "gives the verdict -9"),
    "verdicts of 7": (lambda right: _change(keeps_label=7 * right.keeps_label)(right), "gives the verdict 7"),
    "class 999": (lambda right: _change(predicted=right.predicted * 0 + 999)(right), "sees class 999"),
    "scores that are no numbers": (lambda right: _change(scores=right.scores * float("nan"))(right), "not finite"),
}


@pytest.mark.parametrize("name", ORACLES)
def test_an_oracle_that_breaks_its_contract_is_named_before_a_run(tmp_path: Path, name: str) -> None:
    how, evidence = ORACLES[name]
    found = diagnose(tmp_path, oracle=BrokenOracle(how))
    (finding,) = [each for each in found.findings if each.mistake == "oracle"]
    assert finding.severity == "mistake" and evidence in finding.evidence and "\n" not in finding.evidence
    assert found.sections[1].rows.keys() == {"clean accuracy"}  # the model is examined all the same
    assert "gradients" in [section.title for section in found.sections]


class Unbound(BrokenOracle):
    """An oracle that cannot take the data's classes."""

    def bind(self, classes):
        raise KeyError(f"no prompt\nfor {classes[0]}")


@pytest.mark.parametrize("protocol", ["fmr", "imagenet-d"])  # with a generator, and without
def test_an_oracle_that_cannot_be_bound_is_named_before_a_run(tmp_path: Path, protocol: str) -> None:
    given = values(f"tensors:{arrays(tmp_path / 'a.npz', 24)}", oracle="python:mine.py:oracle", protocol=protocol)
    if protocol != "fmr":
        given = {key: given[key] for key in ("protocol", "data", "oracle", "size")} | {"models": [given["model"]]}
    with pytest.raises(RunFailed, match=r"^oracle python:mine\.py:oracle failed with KeyError: ") as failed:
        set_ups(protocols.parse(given), Given({"oracle": Unbound(None)}))
    assert "\n" not in str(failed.value)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_a_model_whose_weights_do_not_take_float32_is_named_before_a_run(tmp_path: Path, dtype: torch.dtype) -> None:
    found = diagnose(tmp_path, model=TinyModel().to(dtype))
    (finding,) = [each for each in found.findings if each.severity == "mistake"]
    assert finding.mistake == "contract" and "\n" not in finding.evidence
    assert finding.evidence.startswith("the model failed with RuntimeError: ")


def test_protocols_without_a_generator_are_examined_too(tmp_path: Path) -> None:
    data = f"tensors:{arrays(tmp_path / 'a.npz', 24)}"
    asked = {"protocol": "lance", "model": f"python:{FAKES}:TinyModel", "data": data, "oracle": "daylight:", "size": 16}
    parts = {"captioner": "lab:captioner", "rewriter": "lab:rewriter", "editor": "lab:p2p", "encoder": "lab:clip"}
    (setup,) = set_ups(protocols.parse({**asked, **parts}))
    found = examine(setup, images=24)
    assert [section.title for section in found.sections] == ["data and labels", "accuracy", "gradients"]
    assert found.sections[1].rows["clean accuracy"].startswith("79.2 %")
    assert "oracle agrees with the labels" in found.sections[1].rows


def test_every_model_of_a_set_is_examined(tmp_path: Path) -> None:
    data = f"tensors:{arrays(tmp_path / 'a.npz', 24)}"
    (tmp_path / "wrong.py").write_text(
        "from tests.fakes import TinyModel\n\n\n"
        "class Wrong(TinyModel):\n    def logits(self, images):\n        return super().logits(images.detach())\n"
    )
    names = [f"python:{FAKES}:TinyModel", f"python:{tmp_path / 'wrong.py'}:Wrong"]
    asked = protocols.parse({"protocol": "imagenet-d", "data": data, "models": names, "size": 16})
    found = [examine(setup, images=24) for setup in set_ups(asked)]
    assert [each.model for each in found] == names
    assert [each.healthy for each in found] == [True, False]


def test_a_set_up_without_images_says_what_it_needs() -> None:
    painted = {"protocol": "imagenet-d", "painter": "lab:scenes", "surrogates": ["lab:narrow"], "models": ["lab:vit"]}
    with pytest.raises(BadSpec, match="needs labelled images"):
        set_ups(protocols.parse({**painted, "oracle": "lab:clip", "encoder": "lab:clip"}))


def test_through_a_pipe_it_prints_as_it_goes(tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(values(f"tensors:{arrays(tmp_path / 'a.npz', 8)}")))
    command = [sys.executable, "-u", "-c", PROGRAM, "doctor", str(tmp_path / "spec.yaml"), "--images", "8"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as doctor:
        assert doctor.stdin and doctor.stdout and doctor.stderr
        assert doctor.stdout.readline() == "data and labels\n"  # while the oracle waits for us
        doctor.stdin.write("go\n" * 50)
        out, err = doctor.communicate()
    assert "accuracy\n" in out and out.rstrip().splitlines()[-1].startswith(("No mistake found", "The set-up is probably wrong"))
    assert err.splitlines()[:3] == ["loading …", "reading images …", "asking the model …"]
    assert len(err.splitlines()) == len(set(err.splitlines()))


PROGRAM = """
import sys
from counterfoil.cli import main
from counterfoil.parts import calls
plain = calls.judge
calls.judge = lambda *given, **options: (sys.stdin.readline(), plain(*given, **options))[1]
main()
"""


def test_to_predict_a_run_it_has_to_be_timed(tmp_path: Path) -> None:
    refused = CliRunner().invoke(app, ["doctor", "--predict", "10"])
    assert "needs --time" in str(refused.exception)


def test_the_share_of_an_image_that_parts_see_is_shown(tmp_path: Path) -> None:
    class Cropping(TinyModel):
        preprocessing = Preprocessing(size=(14, 14), resize=(16, 16))

    rows = diagnose(tmp_path, model=Cropping()).sections[0].rows
    assert rows["share of an image seen"] == "model 77%, oracle 100%"
