"""The doctor tries parts before a run does: what breaks its contract is named; and its instruments against something known."""

from __future__ import annotations

import json
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
from counterfoil.doctor.gradients import psnr
from counterfoil.doctor.outputs import softmax_kind
from counterfoil.doctor.sample import calibrated_loss, compare
from counterfoil.doctor.timing import duration
from counterfoil.parts.contracts import Verdicts
from counterfoil.parts.models.preprocessing import Preprocessing
from counterfoil.protocols.workspace import Given
from tests.fakes import RuleOracle, TinyModel
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


def _overwrite(model, images):
    answer = model.right(images)
    images.data.zero_()
    return answer


MODELS = {  # every way of it is in tests/parts/test_faults.py
    "raises": (lambda model, images: [][0], "contract", "the model failed with IndexError"),
    "ends the process": (lambda model, images: sys.exit(0), "contract", "the model ended the process"),
    "too few rows": (lambda model, images: model.right(images)[:1], "contract", "logits of shape"),
    "a class too many": (
        lambda model, images: torch.nn.functional.pad(model.right(images), (0, 1)), "number of outputs", "one row per image",
    ),
    "writes into its input": (_overwrite, "overwritten input", "pixel values changed"),
    "no gradient": (lambda model, images: model.right(images.detach()), "gradients", ""),
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


class BrokenOracle(RuleOracle):
    """An oracle whose verdicts are what a function makes of right ones."""

    def judge(self, images, labels):
        return self.rule(Verdicts(torch.ones(len(images), dtype=torch.int8), torch.ones(len(images)), labels.clone()))


ORACLES = {
    "raises": (lambda right: 1 / 0, "the oracle failed with ZeroDivisionError"),
    "nothing": (lambda right: None, "answers with a NoneType"),
    "half a verdict": (lambda right: Verdicts(0.5 * right.keeps_label, right.scores, right.predicted), "gives the verdict 0.5"),
    "scores that are no numbers": (
        lambda right: Verdicts(right.keeps_label, right.scores * torch.nan, right.predicted),
        "not finite",
    ),
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
        "from tests.fakes import RuleOracle, TinyModel\n\n\n"
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


def test_psnr_of_a_known_difference():
    black = torch.zeros(2, 3, 16, 16)
    assert psnr(black, black + 0.1).tolist() == pytest.approx([20.0, 20.0], abs=1e-3)
    assert psnr(black, black).tolist() == [100.0, 100.0]


def test_softened_scores_are_recognised_and_logits_are_not():
    logits = 5 * torch.randn(16, 50, generator=torch.Generator().manual_seed(0))
    assert softmax_kind(logits) is None
    assert softmax_kind(logits.log_softmax(1)) is None  # as good as logits
    assert softmax_kind(logits.softmax(1)) == "probabilities"
    assert "softmax" in str(softmax_kind(logits.softmax(1).softmax(1).log()))


def test_the_calibrated_loss_does_not_see_a_temperature():
    logits = torch.randn(64, 10, generator=torch.Generator().manual_seed(0))
    truth = logits.argmax(1)
    truth[:16] = 0
    assert calibrated_loss(logits, truth).mean().item() == pytest.approx(
        calibrated_loss(3 * logits, truth).mean().item(), rel=0.01
    )


def test_evidence_is_weak_where_nothing_changed_and_strong_where_all_did():
    source = torch.Generator().manual_seed(0)
    truth = torch.randint(0, 5, (40,), generator=source)
    noise = torch.randn(40, 5, generator=source)
    good = noise + 4 * torch.nn.functional.one_hot(truth, 5)
    assert compare(good, good, truth).p_value == 1.0
    assert compare(noise, good, truth).p_value < 1e-6
    assert compare(good, noise, truth).p_value > 0.99


def test_times_are_said_as_people_say_them():
    assert [duration(each) for each in (3.21, 150, 9000, 400000)] == ["3.2 seconds", "2.5 minutes", "2.5 hours", "4.6 days"]


def test_the_command_prints_what_it_found_and_writes_it_down(tmp_path):
    from counterfoil.cli.app import app

    data = arrays(tmp_path / "a.npz", 24)
    words = ["doctor", "--model", f"python:{FAKES}:TinyModel", "--data", f"tensors:{data}", "--generator", "brightness:"]
    words += ["--oracle", "daylight:", "--size", "16", "--images", "24", "--json", str(tmp_path / "found.json")]
    shown = CliRunner().invoke(app, words)
    (written,) = json.loads((tmp_path / "found.json").read_text())
    assert shown.exit_code == (0 if written["healthy"] else 1)
    assert written["sections"]["accuracy"]["clean accuracy"].startswith("79.2 %")  # 5 of 24 labels were changed
    for word in ("labels matched", "PSNR", "computing, at most", "peak memory"):
        assert word in shown.output


def test_an_oracle_that_abstains_is_not_counted_as_one_that_disagrees(tmp_path):
    from counterfoil.doctor import examine, set_ups
    from counterfoil.protocols.workspace import Given
    from tests.fakes import CommandedOracle, TinyModel

    parts = Given({"model": TinyModel(), "oracle": CommandedOracle(abstains=True)})
    (setup,) = set_ups(spec(f"tensors:{arrays(tmp_path / 'a.npz', 12)}"), parts)
    found = examine(setup, images=12)
    accuracy = found.sections[1].rows
    assert accuracy["oracle abstains"] == "on 12 of 12" and accuracy["oracle agrees with the labels"].startswith("–")
    assert "oracle" not in [finding.mistake for finding in found.findings]
    assert "few images" in [finding.mistake for finding in found.findings]


def test_a_file_with_a_section_on_where_to_work_is_looked_over(tmp_path):
    from counterfoil.cli.app import app

    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(values(f"tensors:{arrays(tmp_path / 'a.npz', 8)}", execution={"threads": 1}, engine=None)))
    shown = CliRunner().invoke(app, ["doctor", str(path), "--images", "8"])
    assert "computing, at most" in shown.output, shown.exception


def test_speed_is_measured_with_the_numbers_of_the_run_on_what_fits(tmp_path):
    from counterfoil.doctor.sample import read_few
    from counterfoil.doctor.timing import measure
    from counterfoil.protocols.fmr.climbing import ClimbingSpace
    from counterfoil.protocols.workspace import Given
    from tests.fakes import TinyModel

    class Tight(TinyModel):
        """Notes how it is asked, and has memory for few images."""

        room = 2

        def __init__(self):
            super().__init__()
            self.asked: list[tuple[int, bool]] = []

        def logits(self, images):
            if len(images) > self.room:
                raise torch.OutOfMemoryError("no more")
            self.asked.append((len(images), torch.is_autocast_enabled("cpu")))
            return super().logits(images)

    model, data = Tight(), f"tensors:{arrays(tmp_path / 'a.npz', 12)}"
    for precision, half in (("float32", False), ("bf16", True)):
        model.asked.clear()
        assembly = ClimbingSpace.of(spec(data, engine={"batch_size": 6, "precision": precision}), Given({"model": model}))
        found = measure(assembly, read_few(assembly, 12), steps=True)
        assert min(found.model, found.step, found.rendering, found.oracle) > 0
        assert set(model.asked) == {(2, half)} and len(model.asked) == 4  # 6 and 3 do not fit; warmed up and timed, twice
    model.room = 0
    with pytest.raises(RunFailed, match="a single image does not fit"):
        measure(assembly, read_few(assembly, 12), steps=False)
