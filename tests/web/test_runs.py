"""The folder's runs: what is listed, how far they are, and pages that say what is wrong."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from counterfoil import store
from counterfoil.store import open_run
from counterfoil.web import sites
from counterfoil.web.runs import progress
from tests.report.made import Plan, build
from tests.store.made import CLASSES, PROVENANCE, SPEC, fill

from .world import World, start_review, world


def _page(here: World, path: str, status: int = 200) -> str:
    answer = here.owner().get(path, headers={"accept": "text/html"})
    assert answer.status_code == status, answer.text
    return answer.text


def test_runs_are_found_at_any_depth_and_named_by_their_path(here: World) -> None:
    shutil.copytree(here.settings.root / "one", here.settings.root / "a" / "b" / "Größe 1")
    assert here.app.state.catalogue.names() == ["a/b/Größe 1", "one"]
    assert "Größe 1" in _page(here, "/runs/a/b/Gr%C3%B6%C3%9Fe%201")


def test_a_single_run_may_be_all_there_is(folder: Path) -> None:
    shutil.copytree(folder / "one", folder / "two")
    here = world(folder, only=("two",))
    assert 'href="/runs/two"' in _page(here, "/") and 'href="/runs/one"' not in _page(here, "/")
    _page(here, "/runs/one", 404)


def test_an_empty_folder_says_what_to_do(tmp_path: Path) -> None:
    assert "There is no run in this folder yet" in _page(world(tmp_path), "/")


def test_runs_that_cannot_be_read_say_why(here: World) -> None:
    root = here.settings.root
    bad = {"half": '{"schema": 1, "spec"', "newer": '{"schema": 99}', "list": "[]", "empty": ""}
    for name, content in bad.items():
        (root / name).mkdir()
        (root / name / "run.json").write_text(content, encoding="utf-8")
    shutil.copytree(root / "one", root / "torn")
    (root / "torn" / "results.json").write_text("{", encoding="utf-8")
    (root / "not-a-run").mkdir()
    catalogue = here.app.state.catalogue
    listed = {name: catalogue.describe(name).problem for name in catalogue.names()}
    assert set(listed) == {*bad, "one", "torn"} and listed["one"] == ""
    assert "another version of Counterfoil" in listed["newer"] and all(listed[name] for name in (*bad, "torn"))
    assert str(root) not in json.dumps(listed)
    front = _page(here, "/")
    for name in (*bad, "torn"):
        assert listed[name].partition(": ")[2][:30] in front
        assert "This run cannot be read" in _page(here, f"/runs/{name}", 422)
        assert here.owner().get(f"/reports/{name}").status_code in (200, 422)
    assert "Not found" in _page(here, "/runs/not-a-run", 404)


def test_a_run_without_accepted_images_or_without_any_says_so(tmp_path: Path) -> None:
    build(tmp_path / "none", Plan(accept=False))
    build(tmp_path / "begun", Plan(images=0, finish=False))
    build(tmp_path / "ended", Plan(images=0))
    here = world(tmp_path)
    assert "The oracle accepted no image, so there is nothing to review" in _page(here, "/runs/none")
    assert "Nothing to see yet" in _page(here, "/runs/begun")
    ended = _page(here, "/runs/ended")
    assert "The run ended without one" in ended
    assert "yet" not in ended and "Numbers" not in ended


def test_numbers_of_a_run_have_their_unit_and_the_readers_order(here: World) -> None:
    page = _page(here, "/runs/one")
    places = [page.index(f"<dt>{name}</dt>") for name in ("SA", "PA", "FMR", "VR", "steps")]
    assert places == sorted(places)
    tiles = [tile.partition("</dd>")[0] for tile in page.split("<dt>")[1:]]
    assert " %</span>" in next(tile for tile in tiles if tile.startswith("SA<"))
    assert "%" not in next(tile for tile in tiles if tile.startswith("steps<"))


def test_a_failure_leaves_the_owner_the_way_to_other_pages(here: World) -> None:
    assert '<a href="/board">Board</a>' in _page(here, "/runs/not-a-run", 404)


def test_a_thousand_classes_with_long_names_fit(tmp_path: Path) -> None:
    names = tuple(f"№{number} 長い名前 " + "Ünïcödé-" * 20 for number in range(1000))
    build(tmp_path / "wide", Plan(classes=names, images=60))
    here = world(tmp_path)
    _, key = start_review(here, "wide", votes=1)
    text = _page(here, f"/reviews/{key}")
    assert text.count("長い名前") >= 40 and "№0 " in text


def test_progress_of_a_run_under_way(tmp_path: Path) -> None:
    here = world(tmp_path)
    with store.write(tmp_path / "live", SPEC, CLASSES, {**PROVENANCE, "images": 40}, chunk_images=8) as writer:
        fill(writer, range(16))
        writer.flush()
        now = here.owner().get("/progress/live").json()
        assert (now["state"], now["images"], now["expected"], now["share"]) == ("under way", 16, 40, 0.4)
        assert 'data-live="yes"' in _page(here, "/runs/live")
        stages = tmp_path / "live" / "stages"
        (stages / "edits.parts").mkdir(parents=True)
        (stages / "captions.jsonl").write_text("{}\n{}\n{}\n", encoding="utf-8")
        os.utime(stages / "captions.jsonl", (1, 1))
        (stages / "edits.parts" / "000000.jsonl").write_text("{}\n", encoding="utf-8")
        assert list(here.owner().get("/progress/live").json()["stages"].items()) == [("captions", 3), ("edits", 1)]
        fill(writer, range(24))
    assert progress(tmp_path / "live").state == "stopped"
    with store.write(tmp_path / "live", SPEC, CLASSES, {**PROVENANCE, "images": 40}) as writer:
        fill(writer, range(40))
        writer.finish({})
    assert progress(tmp_path / "live").state == "finished" and progress(tmp_path / "live").share == 1
    with open_run(tmp_path / "live").appending():
        assert progress(tmp_path / "live").state == "being added to"


def test_a_report_is_made_once_and_anew_when_the_run_changes(here: World) -> None:
    owner = here.owner()
    first = _report(owner)
    assert owner.get(first).status_code == 200
    assert owner.get("/reports/one").headers["location"] == first
    run = open_run(here.settings.root / "one")
    run.append(verdicts=list(run.verdicts())[:1])
    assert _report(owner) != first


def test_a_report_is_written_again_by_another_version_of_the_program(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    run = here.settings.root / "one"
    before = sites.site_key("report", [run])
    assert sites.site_key("report", [run]) == before
    monkeypatch.setattr("counterfoil.web.sites.program_version", lambda: "99.0")
    sites._program.cache_clear()
    assert sites.site_key("report", [run]) != before
    monkeypatch.undo()
    sites._program.cache_clear()
    assert sites.site_key("report", [run]) == before


DAMAGE = {
    "a spec that is null": ("run.json", lambda run: json.dumps({**run, "spec": None})),
    "a spec that is a list": ("run.json", lambda run: json.dumps({**run, "spec": [1]})),
    "provenance that is a list": ("run.json", lambda run: json.dumps({**run, "provenance": [1]})),
    "a run nested too deep": ("run.json", lambda run: "[" * 100_000),
    "results nested too deep": ("results.json", lambda run: "[" * 100_000),
    "results that are a list": ("results.json", lambda run: "[1, 2]"),
    "results of another shape": ("results.json", lambda run: json.dumps({"SA": {"value": "x", "n": []}})),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_one_damaged_run_spoils_no_page_of_the_others(here: World, name: str) -> None:
    root = here.settings.root
    shutil.copytree(root / "one", root / "bad")
    file, change = DAMAGE[name]
    run = json.loads((root / "one" / "run.json").read_bytes())
    (root / "bad" / file).write_text(change(run), encoding="utf-8")
    owner = here.owner()
    assert 'href="/runs/one"' in _page(here, "/")
    for path in ("/runs/bad", "/progress/bad", "/reports/bad", "/compare?run=one&run=bad", "/board"):
        for _ in range(2):
            answer = owner.get(path)
            assert answer.status_code < 500, (path, answer.text)
            here.app.state.sites._worker.submit(int).result()
    assert owner.post("/reviews", data={"run": "bad"}).status_code < 500


@pytest.mark.parametrize("file", ["run.json", "results.json", "stages/captions.jsonl"])
def test_a_fifo_in_a_run_keeps_no_page_waiting(here: World, file: str) -> None:
    root = here.settings.root
    shutil.copytree(root / "one", root / "bad")
    (root / "bad" / file).unlink(missing_ok=True)
    (root / "bad" / file).parent.mkdir(exist_ok=True)
    os.mkfifo(root / "bad" / file)
    assert 'href="/runs/one"' in _page(here, "/")
    for path in ("/runs/bad", "/progress/bad"):
        assert here.owner().get(path).status_code < 500


def test_what_goes_wrong_while_a_report_is_made_is_told(here: World) -> None:
    part = next((here.settings.root / "one" / "trials").iterdir())
    part.write_bytes(b"")
    owner = here.owner()
    for _ in range(200):
        answer = owner.get("/reports/one")
        if answer.status_code != 200:
            break
        here.app.state.sites._worker.submit(int).result()
    assert answer.status_code == 422 and "damaged or missing" in answer.text


def _report(browser: TestClient) -> str:
    for _ in range(1200):
        answer = browser.get("/reports/one")
        if answer.status_code == 303:
            return str(answer.headers["location"])
        assert answer.status_code == 200 and answer.headers["refresh"] == "1"
        time.sleep(0.05)
    raise AssertionError("the report was not made")


def test_a_painted_set_is_listed_with_its_models_and_accuracy(tmp_path: Path) -> None:
    from counterfoil import protocols
    from tests.protocols.imagenet_d.world import make_parts, spec

    made = protocols.run(spec(), tmp_path / "painted", given=make_parts())
    here = world(tmp_path)
    listed = here.app.state.catalogue.describe("painted").parts
    assert listed["model"] == ", ".join(part["name"] for part in made.spec["models"])
    assert made.spec["surrogates"][0]["name"] in listed["surrogates"]
    assert ">accuracy<" in _page(here, "/").replace("\n", "").replace(" ", "")
    assert made.spec["painter"]["name"] in _page(here, "/runs/painted")
