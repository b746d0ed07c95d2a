"""Protocols that only make images, or none: numbers, reports and gates are those of the base class."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from counterfoil import protocols, store
from counterfoil.cli.app import app
from counterfoil.core.errors import BadPart, BadSpec
from counterfoil.metrics.observations import surrogates_of
from counterfoil.protocols import reading
from counterfoil.report.export import export
from tests.fakes import CLASSES
from tests.protocols.imagenet_d import world as squares
from tests.worlds import FAKES, arrays, folder

NAMES = ("static", "noise")


def spec(name: str, data: str, **changes):
    values = {"protocol": name, "model": f"python:{FAKES}:TinyModel", "data": data, "size": 16, **changes}
    return protocols.parse({**values, "engine": {"chunk_images": 4, **changes.get("engine", {})}})


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return f"tensors:{arrays(tmp_path_factory.mktemp('data') / 'data.npz', 20)}"


def content(run):
    tables = [sorted(map(repr, rows)) for rows in (run.trials, run.predictions(), run.verdicts())]
    return (run.path / "results.json").read_bytes(), *tables


def test_static_gives_accuracy_with_intervals_and_by_class(data, tmp_path):
    run = protocols.run(spec("static", data), tmp_path / "run")
    found = run.scores["accuracy"]
    assert (found.value, found.n) == (80, 20) and found.low < 80 < found.high  # every fifth has another label
    classes = run.results["per_class"]
    assert set(classes) <= set(CLASSES) and sum(each["accuracy"]["n"] for each in classes.values()) == 20
    right = sum(each["accuracy"]["value"] / 100 * each["accuracy"]["n"] for each in classes.values())
    assert right == pytest.approx(16)
    assert "drop" not in run.results and list(reading.measures_of([run])) == ["accuracy"]


def test_static_tests_a_model_on_an_exported_set(tmp_path):
    made = protocols.run(squares.spec(), tmp_path / "made", given=squares.make_parts())
    export(made, tmp_path / "set", licence="MIT")
    values = {"protocol": "static", "model": "fake:unseen", "data": str(tmp_path / "set"), "size": 16}
    run = protocols.run(protocols.parse(values), tmp_path / "run", given=squares.make_parts())
    old = {**values, "protocol": "imagenet-d"}
    before = protocols.run(protocols.parse(old), tmp_path / "before", given=squares.make_parts())
    assert run.results["accuracy"]["value"] == before.results["accuracy"]["value"]
    assert run.results["accuracy"]["n"] == before.results["accuracy"]["n"] > 0
    surrogates = surrogates_of(run)
    assert surrogates and protocols.of(run).unfair(run, surrogates[0], ["accuracy"]).startswith(surrogates[0])
    assert protocols.of(run).unfair(run, "fake:unseen", ["accuracy"]) == ""


def test_noise_is_compared_with_the_source_images(data, tmp_path):
    run = protocols.run(spec("noise", data, strengths=[0.0, 0.3]), tmp_path / "run")
    assert list(run.results["factors"]) == ["noise 0", "noise 0.3"]
    assert run.results["factors"]["noise 0"]["drop"]["value"] == 0
    assert run.results["accuracy_source"]["value"] == 80 and run.results["accuracy"]["n"] == 40
    answers = {(each.trial_id, each.picture): each.correct for each in run.predictions()}
    noisy = np.mean([right for (name, _), right in answers.items() if name.endswith("noise 0.3")]) * 100
    assert run.results["factors"]["noise 0.3"]["accuracy"]["value"] == pytest.approx(noisy)


def test_only_what_the_oracle_accepts_counts(data, tmp_path):
    run = protocols.run(spec("noise", data, strengths=[0.1], oracle={"name": "daylight:", "darkest": 0.5}), tmp_path / "run")
    accepted = sum(bool(each.keeps_label) for each in run.verdicts() if each.picture == "made")
    assert 0 < accepted < 20 and run.results["accuracy"]["n"] == run.results["counts"]["validated"] == accepted


@pytest.mark.parametrize("name", NAMES)
def test_it_resumes_after_an_interruption_with_the_same_bytes(data, tmp_path, name):
    class Stop(Exception):
        pass

    def stop(progress):
        if progress.done == 11:
            raise Stop

    whole = protocols.run(spec(name, data), tmp_path / "whole")
    with pytest.raises(Stop):
        protocols.run(spec(name, data), tmp_path / "cut", watch=stop)
    assert store.open_run(tmp_path / "cut").results is None
    seen = []
    resumed = protocols.run(spec(name, data), tmp_path / "cut", watch=lambda progress: seen.append(progress.done))
    assert 0 < seen[0] < 20 and content(resumed) == content(whole)
    assert content(protocols.run(spec(name, data, engine={"batch_size": 3}), tmp_path / "other")) == content(whole)


@pytest.mark.parametrize("name", NAMES)
def test_it_reports_compares_and_gates(data, tmp_path, name):
    runs = [protocols.run(spec(name, data), tmp_path / "one")]
    runs.append(protocols.run(spec(name, data, model=f"python:{FAKES}:Another"), tmp_path / "two"))
    page = reading.write_report(runs, tmp_path / "page").read_text()
    assert "2 runs compared" in page
    single = runs[0].report().read_text()
    assert "TinyModel is right on" in single and "By class" in single
    cli = CliRunner()
    compared = cli.invoke(app, ["compare", *(str(run.path) for run in runs)])
    assert compared.exit_code == 0 and "accuracy" in compared.output
    assert cli.invoke(app, ["gate", str(runs[0].path), "--min", "accuracy=1"]).exit_code == 0
    assert cli.invoke(app, ["gate", str(runs[0].path), "--min", "accuracy=99.9"]).exit_code == 1
    assert cli.invoke(app, ["gate", str(runs[0].path), "--against", str(runs[0].path), "--margin", "20"]).exit_code == 0


@pytest.mark.parametrize("name", NAMES)
def test_another_model_is_asked_later(data, tmp_path, name):
    run = protocols.run(spec(name, data), tmp_path / "run")
    scored = CliRunner().invoke(app, ["score", str(run.path), "--model", f"python:{FAKES}:Another"])
    assert scored.exit_code == 0, scored.output
    own = protocols.run(spec(name, data, model=f"python:{FAKES}:Another"), tmp_path / "own")
    later = protocols.of(run).results(run, model=own.results["model"]["name"])
    for name in ("value", "low", "high", "n"):
        assert later["accuracy"][name] == pytest.approx(own.results["accuracy"][name], abs=1e-5)


def test_unreadable_images_are_left_out_and_counted(tmp_path):
    place = folder(tmp_path / "photos")
    sorted(place.rglob("*.png"))[0].write_bytes(b"no image")
    run = protocols.run(spec("static", str(place)), tmp_path / "run")
    assert run.results["counts"]["skipped"] == 1 and run.results["accuracy"]["n"] == 11
    assert run.report().is_file()


def test_the_command_line_knows_it():
    assert {"fmr", "static", "noise"} <= set(protocols.names())
    assert "static" in CliRunner().invoke(app, ["run", "--help"], env={"COLUMNS": "200"}).output
    for words in (["list"], ["list", "protocols"]):
        listed = CliRunner().invoke(app, words, env={"COLUMNS": "200"})
        assert "static" in listed.output and "Gaussian noise of several strengths (from counterfoil-brightness)" in listed.output
        assert ("timm:" in listed.output) == (words == ["list"])
    with pytest.raises(BadSpec, match="painter"):
        protocols.parse({"protocol": "static", "model": "timm:resnet50", "data": "photos", "painter": "lab:scenes"})


@pytest.fixture
def broken(tmp_path, monkeypatch):
    """A package whose protocol's module is missing, installed."""
    package = tmp_path / "site" / "mist-1.0.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: mist\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text(f"[{protocols.GROUP}]\nmist = mist_missing:MIST\n")
    monkeypatch.syspath_prepend(package.parent)
    protocols.entries.cache_clear()
    yield
    protocols.entries.cache_clear()


@pytest.mark.usefixtures("broken")
def test_a_plug_in_that_cannot_be_imported_is_named_only_where_it_is_asked_for(data, tmp_path):
    def invoke(*words):
        return CliRunner().invoke(app, words, env={"COLUMNS": "300"})

    listed = invoke("list", "protocols")
    assert listed.exit_code == 0 and "Gaussian noise" in listed.output
    assert "broken: protocol 'mist' (mist_missing:MIST) cannot be imported: No module named 'mist_missing'" in listed.output
    assert invoke("list", "presets").exit_code == 0 and "mist" not in invoke("list", "presets").output
    with pytest.raises(BadPart, match=r"protocol 'mist' .* cannot be imported"):
        protocols.parse({"protocol": "mist"})
    with pytest.raises(BadSpec, match="painter is for the protocol imagenet-d"):  # asks every protocol for its keys
        protocols.parse({"protocol": "static", "model": "timm:resnet50", "data": "photos", "painter": "lab:scenes"})
    asked = ["--protocol", "static", "--model", f"python:{FAKES}:TinyModel", "--data", data, "--set", "size=16"]
    for words in (["run", *asked, "--out", str(tmp_path / "run")], ["report", str(tmp_path / "run")], ["doctor", *asked]):
        assert invoke(*words).exit_code == 0


# Protocols are asked, not known by name: a fourth one is as good as the first three


PACKAGE = Path(protocols.__file__).parents[1]


def test_no_module_outside_the_protocols_names_one() -> None:
    own = [folder.name for folder in (PACKAGE / "protocols").iterdir() if (folder / "results.py").exists()]
    modules = "|".join(sorted(own))
    named = re.compile(rf"""["'](?:{modules.replace("_", "-")})["']|protocols\.(?:{modules}|static)\b""")
    assert named.search('protocols.get("imagenet-d")') and named.search("from counterfoil.protocols.fmr.results import x")
    found = [
        path.relative_to(PACKAGE).as_posix()
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.relative_to(PACKAGE).parts[0] != "protocols" and named.search(path.read_text())
    ]
    assert not found
