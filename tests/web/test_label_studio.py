"""Reviews out to Label Studio and back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from counterfoil.core.errors import BadData, BadRun
from counterfoil.web.access import review_of
from counterfoil.web.label_studio import CONFIG, ImportedVotes, export_tasks, import_votes

from .world import World, invite, start_review


def _take_in(here: World, key: str, path: Path) -> ImportedVotes:
    with here.database.writing() as db:
        return import_votes(db, review_of(db, key), path)


def _export(here: World, key: str, path: Path, *, embed: bool = False) -> Any:
    with here.database.reading() as db:
        count = export_tasks(db, review_of(db, key), path, run=here.settings.root / "one", embed=embed)
    tasks = json.loads(path.read_text(encoding="utf-8"))
    assert len(tasks) == count and path.with_suffix(".xml").read_text(encoding="utf-8") == CONFIG
    return tasks


def test_what_goes_out_comes_back_as_the_same_votes(here: World, tmp_path: Path) -> None:
    owner, key = start_review(here, votes=2, known=20)
    ada = invite(here, owner, key, "Ada")
    turn = ada.next()
    for present, single in ((True, True), (False, None), (None, None), (True, False)):
        turn = ada.vote(turn["item"]["id"], present=present, single=single, usable=True, comment="„so“ \u2028 <b>")
    ada.post("skips", {"item": turn["item"]["id"]})
    path = tmp_path / "tasks.json"
    tasks = _export(here, key, path)
    given = [task for task in tasks if task["annotations"]]
    assert len(given) == 5 and all("expected" not in json.dumps(task) for task in tasks)
    assert given[0]["data"]["image"].startswith("/data/local-files/?d=one/images/")

    _, again = start_review(here, votes=2, known=20)
    done = _take_in(here, again, path)
    assert (done.votes, done.reviewers, dict(done.problems)) == (5, {"Ada"}, {})
    came = _export(here, again, tmp_path / "again.json")
    assert _by_image(came) == _by_image(tasks)
    assert _take_in(here, again, path).votes == 5  # a second time changes nothing
    assert _export(here, again, tmp_path / "again.json") == came


def test_images_can_be_put_into_the_tasks_and_missing_ones_are_named(here: World, tmp_path: Path) -> None:
    _, key = start_review(here, votes=1, known=0, limit=1)
    (task,) = _export(here, key, tmp_path / "tasks.json", embed=True)
    assert task["data"]["image"].startswith("data:image/png;base64,iVBOR")
    (here.settings.root / "one" / here.items(key)[0].file).unlink()
    with pytest.raises(BadRun, match="this image is missing"):
        _export(here, key, tmp_path / "tasks.json", embed=True)


def test_a_name_with_spaces_too_many_is_one_reviewer_however_often_the_file_comes(here: World, tmp_path: Path) -> None:
    _, key = start_review(here, votes=2, known=0)
    path = tmp_path / "tasks.json"
    tasks = _export(here, key, path)
    tasks[0]["annotations"] = [{**_says("yes"), "completed_by": {"first_name": "Ada ", "last_name": "Lovelace"}}]
    path.write_text(json.dumps(tasks), encoding="utf-8")
    for _ in range(2):
        assert _take_in(here, key, path).reviewers == {"Ada Lovelace"}
    assert sum(len(task["annotations"]) for task in _export(here, key, path)) == 1


def _says(word: Any, who: Any = 7) -> dict[str, Any]:
    return {"completed_by": who, "result": [{"from_name": "present", "type": "choices", "value": {"choices": word}}]}


def test_annotations_that_cannot_be_used_are_counted(here: World, tmp_path: Path) -> None:
    _, key = start_review(here, votes=1, known=0)
    path = tmp_path / "tasks.json"
    tasks = _export(here, key, path)
    bad = [_says(["perhaps"], 8), {"completed_by": 9, "result": []}, _says(["no"], "x" * 200), "?", _says(["no"], 10)]
    bad += [{"completed_by": 11, "result": 5}, _says(5), _says([{}]), _says([["yes"]]), _says({"a": 1}), {"result": [7, {}]}]
    tasks[0]["annotations"] = [_says(["yes"]), *bad]
    unknown = {"data": {"trial_id": "nobody", "picture": "made", "label": 0}}
    path.write_text(json.dumps([*tasks, {}, 5, unknown]), encoding="utf-8")
    done = _take_in(here, key, path)
    assert done.votes == 1 and done.reviewers == {"annotator 7"}
    assert done.problems["a task about no image of this review"] == 3
    assert done.problems["an answer about an image that has all its votes"] == 1
    assert sum(done.problems.values()) == 3 + len(bad) - 1  # "?" is no annotation


@pytest.mark.parametrize("content", ["", "{}", "[[", '"text"', "[" * 100_000])
def test_files_that_are_no_export_are_refused(here: World, tmp_path: Path, content: str) -> None:
    _, key = start_review(here, votes=1, known=0)
    path = tmp_path / "tasks.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(BadData, match=r"not JSON|list of tasks") as refused:
        _take_in(here, key, path)
    assert "\n" not in str(refused.value)
    with pytest.raises(BadData, match="cannot be read"):
        _take_in(here, key, tmp_path / "nothing.json")


def _by_image(tasks: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Annotations by image, without what differs from one import to the next."""
    return {
        json.dumps(task["data"], sort_keys=True): [
            (each["completed_by"]["first_name"], each["was_cancelled"], each["result"]) for each in task["annotations"]
        ]
        for task in tasks
    }
