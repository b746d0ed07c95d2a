"""`counterfoil gate` over runs on disk: exit codes, verdicts, the XML file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from counterfoil.protocols.fmr.results import fmr_results
from counterfoil.store import open_run
from tests.cli.stored import call, store_run


def test_bars_pass_and_fail_with_exit_codes(tmp_path: Path) -> None:
    run = store_run(tmp_path / "a", kept=0.8)
    code, output = call("gate", run, "--min", "fmr=40", "--max", "drop=60", "--min", "sa.bee=20")
    assert code == 0, output
    assert output.splitlines()[-1] == "gate: all 3 passed"
    code, output = call("gate", run, "--min", "fmr=40", "--min", "fmr=99")
    assert code == 1
    assert [line.split()[0] for line in output.splitlines()] == ["pass", "FAIL", "gate:"]
    assert output.splitlines()[-1] == "gate: 1 of 2 failed"


def test_a_baseline_is_compared_image_by_image(tmp_path: Path) -> None:
    firm, frail = store_run(tmp_path / "a", "lab:diverse", kept=0.9), store_run(tmp_path / "b", "lab:narrow", kept=0.2)
    code, output = call("gate", frail, "--against", firm, "--allow-unproven")
    assert code == 1
    assert "FAIL  FMR no worse than the baseline: worse" in output
    code, output = call("gate", frail, "--against", firm)
    assert code == 1
    assert "FAIL  FMR at most 5 points worse than the baseline" in output
    assert call("gate", firm, "--against", frail)[0] == 0
    assert call("gate", firm, "--against", store_run(tmp_path / "c", "lab:diverse", kept=0.9), "--margin", "20")[0] == 0


def test_a_baseline_is_held_to_the_word_of_the_same_oracle(tmp_path: Path) -> None:
    runs = [store_run(tmp_path / name, kept=0.7) for name in ("a", "b")]
    strict = ["--oracle", "strict", "--min", "fmr=0", "--point", "--allow-unproven", "--against", runs[1]]
    for run in map(open_run, runs):
        with run.appending() as rows:
            rows.add(verdicts=[replace(each, oracle="strict", keeps_label=each.trial_id < "image 3") for each in run.verdicts()])
        if run.path == runs[0]:
            assert "no verdicts by oracle 'strict'" in call("gate", runs[0], *strict)[1]  # of the baseline
    code, output = call("gate", runs[0], *strict)
    assert code == 0 and "FMR no worse than the baseline: cannot be told apart from it: +0.0 points" in output


def test_a_bar_on_a_group_is_held_against_that_group_of_the_baseline(tmp_path: Path) -> None:
    runs = [store_run(tmp_path / name, kept=0.7) for name in ("a", "b")]
    _, output = call("gate", runs[0], "--min", "fmr.Bee=0", "--point", "--allow-unproven", "--against", runs[1])
    assert "FMR.Bee no worse than the baseline: cannot be told apart" in output and "FMR no worse" not in output


def test_a_baseline_of_another_test_is_refused(tmp_path: Path) -> None:
    run, other = store_run(tmp_path / "a"), store_run(tmp_path / "b", "lab:diverse", search={"step": 0.1})
    code, complaint = call("gate", run, "--against", other)
    assert code == 2
    assert "not the same test" in complaint
    assert "search.step (0.01 / 0.1)" in complaint


def test_verdicts_go_into_a_junit_file(tmp_path: Path) -> None:
    run = store_run(tmp_path / "a")
    code, _ = call("gate", run, "--min", "fmr=99", "--min", "sa=10", "--junit", tmp_path / "out" / "gate.xml")
    assert code == 1
    suite = ElementTree.parse(tmp_path / "out" / "gate.xml").getroot().find("testsuite")
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    (tmp_path / "file").write_text("")
    code, complaint = call("gate", run, "--min", "sa=10", "--junit", tmp_path / "file" / "gate.xml")
    assert code == 2
    assert "cannot be written" in complaint


def test_verdicts_go_into_a_json_file_with_their_numbers(tmp_path: Path) -> None:
    run = store_run(tmp_path / "a")
    call("gate", run, "--min", "fmr=99", "--min", "sa=10", "--against", run, "--json", tmp_path / "gate.json")
    told = json.loads((tmp_path / "gate.json").read_text())
    assert (told["run"], told["passed"]) == (str(run), False)
    assert [check["passed"] for check in told["checks"]] == [False, True, True, True]
    own = open_run(run).results["FMR"]
    assert told["checks"][0]["asked"] == "FMR at least 99 %"
    assert (told["checks"][0]["value"], told["checks"][0]["n"]) == (own["value"], own["n"])
    assert told["checks"][0]["low"] > own["low"]  # one-sided: of 90 %
    assert [check["value"] for check in told["checks"][2:]] == [0, 0]


def test_what_nobody_has_decided_on_is_counted_and_told(tmp_path: Path) -> None:
    runs = [store_run(tmp_path / name) for name in ("a", "b")]
    assert "undecided" not in call("gate", runs[0], "--min", "sa=10")[1]
    for run, decided in ((open_run(runs[0]), "image 4"), (open_run(runs[1]), "image 5")):
        with run.appending() as rows:
            said = [replace(each, oracle="people", keeps_label=each.trial_id < decided or None) for each in run.verdicts()]
            rows.add(verdicts=said)
    files = ["--json", tmp_path / "gate.json", "--junit", tmp_path / "gate.xml"]
    _, output = call("gate", runs[0], "--oracle", "people", "--min", "sa=10", "--against", runs[1], *files)
    of_run, of_baseline = (fmr_results(open_run(run), oracle="people")["counts"]["pending"] for run in runs)
    assert of_run > of_baseline > 0
    notes = [line for line in output.splitlines() if line.startswith("note")]
    assert notes[0].startswith(f"note  {of_run} images undecided by people, counted in SA alone; the verdict may change")
    assert notes[1].startswith(f"note  in the baseline {of_baseline} images undecided")
    told = json.loads((tmp_path / "gate.json").read_text())["undecided"]
    assert told["run"] == {"number": of_run, "what": "image", "by": "people", "counted": "in SA alone"}
    assert told["baseline"]["number"] == of_baseline
    assert f"{of_run} images undecided" in ElementTree.parse(tmp_path / "gate.xml").getroot().findtext("testsuite/system-out")


def test_a_run_that_is_not_finished_is_not_judged(tmp_path: Path) -> None:
    runs = [store_run(tmp_path / name) for name in ("a", "b")]
    (runs[1] / "results.json").unlink()
    for arguments in ((runs[1], "--min", "fmr=1"), (runs[0], "--against", runs[1])):
        code, complaint = call("gate", *arguments)
        assert code == 2 and complaint.startswith(f"{runs[1]}: not finished")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "nothing to judge by"),
        (["--min", "fmr=0.6"], "as in --min fmr=60"),
        (["--min", "fmmr=3"], "did you mean 'FMR'?"),
        (["--max", "drop"], "write NAME=NUMBER"),
        (["--min", "fmr.bea=3"], "did you mean 'bee'?"),
        (["--min", "fmr=3", "--margin", "2"], "--against"),
        (["--min", "fmr=3", "--allow-unproven"], "--against"),
        (["--against", "nowhere"], "not a run directory"),
        (["--min", "fmr=3", "--model", "timm:x"], "no predictions by model 'timm:x'"),
    ],
)
def test_wrong_use_is_one_line_and_exit_code_two(tmp_path: Path, options: list[str], said: str) -> None:
    code, complaint = call("gate", store_run(tmp_path / "a"), *options)
    assert code == 2
    assert said in complaint
    assert "\n" not in complaint
