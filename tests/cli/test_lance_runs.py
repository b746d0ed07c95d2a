"""`counterfoil run --protocol lance`, and what compare and gate make of such runs."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from counterfoil import protocols, store
from counterfoil.cli.app import app
from counterfoil.cli.results import show
from counterfoil.core.errors import BadSpec, UsageError
from counterfoil.core.spec import PartSpec
from counterfoil.metrics.estimate import estimate
from counterfoil.parts.contracts import Proposals
from counterfoil.protocols import rescoring
from counterfoil.protocols.lance import lance
from counterfoil.protocols.lance.results import MEASURES
from counterfoil.protocols.reading import results_of
from tests.protocols.lance import world

OTHER = f"python:{world.__file__}:Looking"
PICKY = f"python:{world.__file__}:Picky"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("cli") / "run"
    finished = protocols.run(world.spec(), out, given=world.make_parts())
    for name in (OTHER, PICKY):
        rescoring.score(finished, PartSpec(name=name))
    return store.open_run(out)


def invoke(*words: str):
    return CliRunner().invoke(app, list(words), catch_exceptions=False)


def test_dry_run_prints_the_specification_and_the_cost():
    parts = ["--model", "lab:diverse", "--data", "lab:wardrobe", "--captioner", "lab:blip", "--editor", "lab:diffusion"]
    said = invoke(
        "run", "--protocol", "lance", *parts, "--encoder", "lab:clip", "--oracle", "lab:clip", "--limit", "10", "--dry-run",
        "--set", "per_factor={adjective: 3}",
    ).output  # fmt: skip
    assert "preset: default" in said and "directional: 0.2" in said
    assert "edits, at most" in said and "70" in said


def test_what_is_missing_or_misspelt_is_named():
    with pytest.raises(BadSpec, match=r"no model, data, .* given; name each"):
        invoke("run", "--protocol", "lance")
    with pytest.raises(BadSpec, match="no protocol named 'lanse'; did you mean 'lance'"):
        invoke("run", "--protocol", "lanse")
    with pytest.raises(UsageError, match="fmr has no stages"):
        invoke(
            "run", "--stage", "edits", "--model", "lab:narrow", "--data", "lab:wardrobe", "--generator", "lab:vqgan",
            "--oracle", "lab:clip",
        )  # fmt: skip


def test_compare_tells_models_on_the_same_edits_apart(run):
    said = invoke("compare", str(run.path), "--scored", "--metric", "drop", "--metric", "accuracy_edited").output
    assert "drop" in said and OTHER in said


def test_gate_takes_bars_by_factor(run):
    said = invoke("gate", str(run.path), "--max", "drop.background=10", "--max", "drop.adjective=50")
    assert said.exit_code == 1
    assert "FAIL  drop.background at most 10 points" in said.output
    assert "pass  drop.adjective at most 50 points" in said.output


def test_a_number_is_the_one_that_the_results_have_under_its_name(run):
    results, rows = results_of(run, model=PICKY), lance.observe(run, model=PICKY)
    assert results["SA"]["value"] != results["accuracy_source"]["value"] != results["accuracy_edited"]["value"]
    for name, each in MEASURES.items():
        found = estimate(rows.columns, {name: each.statistic}, clusters=rows.cluster)[name]
        assert (found.value, found.n) == (pytest.approx(results[name]["value"]), results[name]["n"]), name
    background = results["factors"]["background"]["drop"]
    said = invoke("gate", str(run.path), "--model", PICKY, "--max", "drop=-99", "--max", "drop.background=-99").output
    for found in (results["drop"], background):
        assert f"points: {found['value']:.1f} points (n {found['n']}, of ".replace("-", "−") in said


def test_compare_counts_sources_and_edits_and_names_the_test_it_does(run):
    said = invoke("compare", str(run.path), "--scored", "--metric", "sa", "--metric", "accuracy_edited").output
    counts = run.results["counts"]
    assert said.startswith(f"3 models, paired by {counts['images']} source images and {counts['edits']} edits of them")
    clean, edited = said.split("accuracy_edited:")
    assert "McNemar's exact test" in clean and "sign-flip" not in clean  # one image per source
    assert "exact sign-flip test" in edited and "McNemar" not in edited


def test_the_numbers_say_what_was_counted_and_how_it_was_tested(run, capsys):
    show(run)
    said, counts = capsys.readouterr().out, run.results["counts"]
    assert f"24 images, {counts['accepted']} of {counts['edits']} edits accepted" in said
    assert "p: exact sign-flip test that the drop is zero, edits of one source together, corrected for 2 factors (Holm)" in said
    assert f"corrected for {len(run.results['bias'])} (Holm)" in said


def test_numbers_of_a_search_are_not_asked_of_edits(run):
    for name in ("FMR", "drop_matched"):
        with pytest.raises(UsageError, match=f"no number called '{name}'; there are SA, accuracy_source"):
            invoke("gate", str(run.path), "--max", f"{name}=10")
    with pytest.raises(UsageError, match="the protocol lance makes no images against a model"):
        invoke("compare", str(run.path), "--transfer")


def test_a_model_that_no_edit_has_moved_may_still_be_moved_by_others(run):
    said = invoke("compare", str(run.path), "--scored", "--metric", "sensitivity").output
    assert re.search(r"0\.0 points \(0\.0 to 1\d\.\d\)", said)


def test_runs_over_other_pictures_of_the_same_names_are_refused(run, tmp_path):
    class Darker(world.Pets):
        def load(self, sample, size):
            return (super().load(sample, size) * 230).round() / 255

    other = protocols.run(world.spec(), tmp_path / "dark", given=world.make_parts(dataset=Darker(count=4)))
    with pytest.raises(UsageError, match="the same image ids stand for other images"):
        invoke("gate", str(run.path), "--against", str(other.path))


def test_edits_of_other_words_are_not_paired(run, tmp_path):
    class Backwards(world.Swap):
        def _one(self, request):
            return Proposals(tuple(reversed(super()._one(request).captions)))

    other = protocols.run(
        world.spec(), tmp_path / "other", given=world.make_parts(dataset=world.Pets(count=4), rewriter=Backwards())
    )
    said = invoke("compare", str(run.path), str(other.path), "--metric", "drop").output
    mine, theirs = ({(trial.trial_id, trial.prompt) for trial in each.trials if trial.image} for each in (run, other))
    assert 0 < len(mine & theirs) < len(theirs)
    assert f"4 source images and {len(mine & theirs)} edits of them" in said
    assert f"{len(theirs - mine)} more images of" in said


def test_a_run_of_an_unknown_protocol_is_refused(run, tmp_path):
    shutil.copytree(run.path, tmp_path / "run")
    path = tmp_path / "run" / "run.json"
    path.write_text(path.read_text().replace('"protocol": "lance"', '"protocol": "dance"'))
    with pytest.raises(UsageError, match="a run of protocol 'dance', which is not installed"):
        invoke("report", str(tmp_path / "run"))


def test_gate_says_how_many_edits_are_undecided(run):
    said = enumerate(run.verdicts())
    with run.appending() as rows:
        rows.add(verdicts=[replace(each, oracle="later", keeps_label=None if number % 2 else True) for number, each in said])
    pending = results_of(run, oracle="later")["counts"]["pending"]
    said = invoke("gate", str(run.path), "--oracle", "later", "--max", "drop=99").output
    assert f"note  {pending} edits undecided by later, counted in no number; " in said
