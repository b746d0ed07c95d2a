"""The doctor's instruments, each against something known."""

from __future__ import annotations

import json

import pytest
import torch
import yaml
from typer.testing import CliRunner

from counterfoil.core.errors import RunFailed
from counterfoil.doctor.gradients import psnr
from counterfoil.doctor.outputs import softmax_kind
from counterfoil.doctor.sample import calibrated_loss, compare
from counterfoil.doctor.timing import duration
from tests.worlds import FAKES, arrays, spec, values


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
