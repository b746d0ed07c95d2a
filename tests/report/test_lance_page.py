"""The page about LANCE runs: what it says, and that it needs nothing from elsewhere."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace

import pytest

from counterfoil import protocols, store
from counterfoil.core.errors import UsageError
from counterfoil.core.spec import PartSpec
from counterfoil.parts.contracts import EditResult
from counterfoil.protocols import rescoring
from counterfoil.protocols.reading import write_report
from counterfoil.report.lance import charts
from counterfoil.store.later import Asked, record
from tests.protocols.lance import world
from tests.report.pages import read


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("page") / "run"
    return protocols.run(world.spec(limit=16), out, given=world.given(dataset=world.Pets(broken=(5,))))


@pytest.fixture(scope="module")
def page(run, tmp_path_factory):
    return write_report([run], tmp_path_factory.mktemp("report") / "page")


def test_the_largest_cell_of_classes_and_factors_is_one_that_has_edits():
    gain = {"drop": {"value": -5.0, "low": -20.0, "high": 10.0, "n": 4}}
    figure = charts.heat_map({"dog": {"factors": {"weather": gain}}}, ["background", "weather"], name="heat")
    assert "Largest: dog, weather, −5.0." in figure.description


def test_models_side_by_side_are_listed_with_the_edits_that_they_were_asked_about(run, tmp_path):
    shutil.copytree(run.path, tmp_path / "run")
    copy = store.open_run(tmp_path / "run")
    accepted = next(each.trial_id for each in copy.verdicts() if each.picture == "made" and each.keeps_label)
    source = accepted.rpartition("#")[0] + "#source"
    some = [each for each in copy.predictions() if each.trial_id in (accepted, source)]
    copy.append(predictions=[replace(each, model="interrupted") for each in some])
    text = write_report([copy], tmp_path / "page").read_text()
    row = next(row for row in text.split("<tr>") if row.strip().startswith('<th scope="row"><bdi>interrupted</bdi>'))
    assert re.findall(r'<td class="num">(\d+)</td>', row) == ["1"]


def test_the_page_names_factor_bias_and_losses(page, run):
    text = page.read_text()
    assert "<strong>Background</strong> costs most" in text
    drop = run.results["drop"]
    assert f"points</strong> of accuracy ({drop['low']:.1f} to {drop['high']:.1f})" in text
    for heading in ("Numbers", "By class", "Class-level biases", "What was turned away, and why", "Pairs", "Downloads"):
        assert f">{heading}</h2>" in text
    assert run.results["bias"][0]["name"].split(" → ")[0] in text
    assert "the oracle no longer sees the class" in text.lower()
    assert "pets[5]: damaged" in text
    rows = read(page).rows
    assert any(row.startswith(f"Accuracy drop drop {drop['value']:.1f} points") for row in rows)
    assert any(row.startswith("Accuracy on the sources accuracy_source") for row in rows)
    assert not re.search(r"\de-\d", read(page).words)  # p-values as on every other page
    assert f"Only {run.results['counts']['validated']} source pictures have an accepted edit. Intervals are wide" in text


def test_everything_it_shows_is_in_its_folder(page):
    text = page.read_text()
    names = re.findall(r'(?:src|href)="([^"#]+)"', text)
    assert any(name.startswith("pictures/") for name in names)
    for name in names:
        assert "//" not in name
        assert (page.parent / name).is_file(), name


def test_words_from_captions_cannot_become_markup(run, tmp_path):
    shutil.copytree(run.path, tmp_path / "run")
    path = tmp_path / "run" / "results.json"
    name = run.results["bias"][0]["name"]
    path.write_text(path.read_text().replace(name, "<script>alert(1)</script>"))
    assert "<script>alert" not in write_report([store.open_run(tmp_path / "run")], tmp_path / "report").read_text()


def test_two_runs_of_one_model_are_not_called_two_models(run, tmp_path):
    shutil.copytree(run.path, tmp_path / "again")
    text = write_report([run, store.open_run(tmp_path / "again")], tmp_path / "report").read_text()
    assert "2 runs compared" in text
    assert 'href="gallery.html"' in text and "drops in points" in text


def test_factors_that_cost_alike_are_not_ranked(run, tmp_path):
    shutil.copytree(run.path, tmp_path / "run")
    path = tmp_path / "run" / "results.json"
    found = json.loads(path.read_text())
    found["largest"]["lead"]["value"] = 0.0
    path.write_text(json.dumps(found))
    text = write_report([store.open_run(tmp_path / "run")], tmp_path / "report").read_text()
    assert "costs most" not in text and "which cost the same" in text


def test_models_scored_later_have_pages_of_their_own(run, tmp_path):
    shutil.copytree(run.path, tmp_path / "run")
    copy = store.open_run(tmp_path / "run")
    name = f"python:{world.__file__}:Looking"
    rescoring.score(copy, PartSpec(name=name))
    index = write_report([copy], tmp_path / "report")
    text = index.read_text()
    assert "2 models compared" in text
    words = text.split('class="chart-words"')[1].split("</p>")[0]
    assert words.count("background") == 2 and name in words  # what is said of each model names it
    assert name in (tmp_path / "report" / "run-2.html").read_text()


def test_side_by_side_says_what_each_page_says_before_its_numbers(run, tmp_path):
    shutil.copytree(run.path, tmp_path / "run")
    copy = store.open_run(tmp_path / "run")
    name = f"python:{world.__file__}:Looking"
    rescoring.score(copy, PartSpec(name=name))
    record(copy.path, Asked("model", name, {}, "not independent: …"))
    pictures = run.results["counts"]["validated"]
    few = f"Only {pictures} source pictures have an accepted edit. Intervals are wide, and numbers for parts of them say little."
    marked = f"The model {name}, which was asked later, is not independent: …."
    index = read(write_report([copy], tmp_path / "report")).words
    assert f"Take care Every model: {few}" in index
    assert f"Take care {name}: {marked}" in index
    own, other = (read(tmp_path / "report" / f"run-{number}.html").words for number in (1, 2))
    assert f"Take care {few}" in own and f"Take care {few}" in other
    assert marked in other and marked not in own
    assert "differ in more than the model" not in index


def test_runs_with_other_settings_are_not_set_side_by_side_without_a_word(run, tmp_path):
    other = protocols.run(world.spec(limit=12), tmp_path / "other", given=world.given())
    index = read(write_report([run, other], tmp_path / "report")).words
    assert "These runs differ in more than the model" in index and "limit (16 / 12)" in index


def test_what_redrawing_alone_costs_is_said_before_the_drops(run, tmp_path):
    class Faded(world.Redraw):
        def _one(self, picture, caption):
            edited = super()._one(picture, caption)
            return replace(edited, reconstruction=1 - picture) if isinstance(edited, EditResult) else edited

    faded = protocols.run(world.spec(limit=6), tmp_path / "faded", given=world.given(editor=Faded()))
    cost = faded.results["drop_reconstruction"]["value"]
    assert cost > 10
    words = read(write_report([faded], tmp_path / "report")).words
    assert f"Inverting and redrawing alone cost {cost:.1f} points of accuracy" in words
    assert "Inverting and redrawing alone" not in read(write_report([run], tmp_path / "other")).words


def test_an_unfinished_run_beside_a_finished_one(run, tmp_path):
    half = protocols.run(world.spec(limit=16), tmp_path / "half", given=world.given(), stage="captions")
    index = read(write_report([run, half], tmp_path / "report")).words
    assert "not finished" in index and "source pictures have an accepted edit" in index


def test_a_run_that_is_not_finished_says_so(tmp_path):
    half = protocols.run(world.spec(limit=4), tmp_path / "run", given=world.given(), stage="captions")
    text = write_report([half], tmp_path / "report").read_text()
    assert "This run is not finished; so far it has sources, captions" in text


def test_a_run_without_an_accepted_edit_says_so(tmp_path):
    none = protocols.run(
        world.spec(limit=4, quality={"directional": 1.0, "image_image": 1.0}), tmp_path / "run", given=world.given()
    )
    assert none.results["factors"] == {}
    text = write_report([none], tmp_path / "report").read_text()
    assert "No edit was accepted" in text and "picture changed too much" in text


def test_protocols_do_not_share_a_page(run, tmp_path):
    shutil.copytree(run.path, tmp_path / "other")
    path = tmp_path / "other" / "run.json"
    path.write_text(path.read_text().replace('"protocol": "lance"', '"protocol": "fmr"'))
    with pytest.raises(UsageError, match=r"runs of several protocols \(lance, fmr\)"):
        write_report([run, store.open_run(tmp_path / "other")], tmp_path / "report")
