"""Output of the commands."""

from __future__ import annotations

import json
import re

import pytest
import torch
import yaml

from counterfoil.cli.options import specification
from counterfoil.core.errors import BadWeights, UsageError
from counterfoil.protocols.fmr import fmr
from tests.cli.conftest import MODEL, ORACLE
from tests.report.made import Plan, build
from tests.worlds import arrays, spec


def test_dry_run_prints_specification_and_cost_and_writes_nothing(run, tmp_path):
    code, output, _ = run(extra=["--dry-run", "--set", "slots=4"])
    assert code == 0
    assert yaml.safe_load(output)["engine"]["slots"] == 4
    assert "# model calls, at most" in output
    assert not (tmp_path / "run").exists()


def test_what_dry_run_prints_is_a_file_to_run(run, counterfoil, tmp_path):
    _, printed, _ = run(extra=["--dry-run"])
    (tmp_path / "kept.yaml").write_text(printed)
    code, again, complaint = counterfoil("run", "kept.yaml", "--out", "run", "--dry-run")
    assert (code, complaint) == (0, "")
    assert yaml.safe_load(again) == yaml.safe_load(printed)


@pytest.mark.parametrize(
    "search",
    [
        {"budget": 3},
        {"budget": 3, "guidance": "search", "queries": 9},
        {"budget": 2, "control": False},
        {"budget": 3, "guidance": "random"},
        {"budget": 3, "queries": 2},
        {"budget": 3, "queries": 50},
    ],
)
def test_the_cost_is_what_a_run_without_rejections_takes(tmp_path, search):
    """Counted by the parts themselves; climbs go to the end because the oracle accepts everything."""
    from counterfoil.protocols.fmr.climbing import ClimbingSpace
    from counterfoil.protocols.workspace import Given
    from tests.fakes import CommandedOracle, TinyModel

    class Counting(TinyModel):
        asked = 0

        def logits(self, images):
            Counting.asked += len(images)
            return super().logits(images)

    model, oracle = Counting(), CommandedOracle()
    chosen = spec(f"tensors:{arrays(tmp_path / 'data.npz', 8)}", search=search, engine={"slots": 8, "batch_size": 8})
    assembly = ClimbingSpace.of(chosen, Given({"model": model, "oracle": oracle}))
    climbs = list(assembly.new_engine().run(assembly.jobs(iter(assembly.dataset), lambda sample, problem: None)))
    expected = fmr.cost(chosen, 8)["model calls, at most"]
    shared = sum(len(done.climbs) > 1 for done in climbs)  # both arms begin with one image, which is asked about once
    queries = sum(climb.queries for done in climbs for climb in done.climbs) + len(climbs) - shared
    assert queries <= expected
    if search.get("guidance") != "search":
        assert Counting.asked == oracle.asked == queries == expected


def test_list_shows_parts_with_what_they_are(counterfoil):
    code, output, _ = counterfoil("list", "generators")
    assert code == 0
    assert "brightness:" in output
    assert "autoencoder:" in output and "counterfoil-brightness" in " ".join(output.split())
    assert counterfoil("list", "data")[:2] == counterfoil("list", "datasets")[:2]  # the command line's word


def test_an_export_of_a_run_that_is_not_finished_says_so(counterfoil, tmp_path):
    for finish in (True, False):
        build(tmp_path / f"{finish}", Plan(finish=finish))
        assert ("the run is not finished" in counterfoil("export", f"{finish}", "-o", f"set {finish}")[1]) is not finish


def test_score_and_judge_print_numbers_for_the_other_part(run, counterfoil):
    run()
    code, output, _ = counterfoil("score", "run", "--model", MODEL.replace("TinyModel", "Another"))
    assert code == 0
    assert "Another" in output.splitlines()[0]
    code, output, _ = counterfoil("judge", "run", "--oracle", ORACLE)
    assert code == 0
    assert "FMR_matched" in output


def test_the_same_command_goes_on_where_it_was(run):
    first, second = run()[1], run()[1]
    assert first == second


def test_ctrl_c_says_that_the_same_command_resumes(run, monkeypatch):
    from counterfoil import protocols

    def stop(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(protocols, "run", stop)
    code, _, said = run()
    assert code == 130 and said.endswith("the same command resumes it\n") and said.count("\n") == 1


def test_numbers_that_are_easily_misread_say_so_on_the_terminal_too(run):
    code, output, _ = run()
    assert code == 0
    assert "\n\ntake care: " in output and "were accepted by the oracle: fewer than 100" in output


def test_pictures_that_nobody_has_decided_on_are_counted(run, counterfoil):
    code, output, _ = run(oracle="human:")
    assert code == 0
    assert re.search(r"(\d+) images, 0 accepted, \1 undecided", output)


def test_a_run_ends_with_a_paragraph_for_a_paper(run):
    code, output, _ = run(extra=["--preset", "paper", "--set", "budget=2", "--size", "16"])
    assert code == 0
    paragraph = output[output.index("For a paper: ") :]
    for said in ("preset paper but for the generator, the oracle, size 16, search.budget 2", "steps of 0.001 (norm sign", "FMR "):
        assert said in paragraph
    assert "\n" not in paragraph.splitlines()[0] and "seed 0" in paragraph


def test_presets_are_listed_with_what_they_need(counterfoil):
    code, output, _ = counterfoil("list", "presets", "--json", "-")
    assert code == 0
    about = {row["name"]: row["summary"] for row in json.loads(output)}
    assert {"fmr: default", "fmr: paper", "lance: released", "imagenet-d: fair"} <= about.keys()
    assert "last.ckpt" in about["fmr: paper"] and "differs from the paper" in about["fmr: default"]


def test_a_checkpoint_is_a_model_and_its_architecture_may_be_named(tmp_path):
    file = tmp_path / "best.pth"
    torch.save({"layer.weight": torch.ones(3, 4), "layer.bias": torch.ones(3)}, file)
    values = specification(model=str(file), arch="torchvision:resnet18", settings=["model.classes=names.txt"])
    assert values["model"] == {"name": "torchvision:resnet18", "weights": str(file), "classes": "names.txt"}
    with pytest.raises(BadWeights, match="say which it is, as in --arch timm:resnet18"):
        specification(model=str(file))
    with pytest.raises(UsageError, match="--arch: names the architecture of a checkpoint"):
        specification(model="timm:resnet18", arch="timm:resnet18")
