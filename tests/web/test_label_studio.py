"""Reviews out to Label Studio and back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from counterfoil.core.errors import BadData
from counterfoil.web.review import label_studio

from .world import World, invited, start_review


def _take(here: World, key: str, path: Path) -> label_studio.Imported:
    with here.server.database.writing() as transaction:
        return label_studio.import_votes(transaction, here.server.review(transaction, key), path)


def test_what_goes_out_comes_back_as_the_same_votes(here: World, tmp_path: Path) -> None:
    owner, key = start_review(here, votes=2, sentinels=0.2)
    ada = invited(here, owner, key, "Ada")
    for present, single in ((True, True), (False, None), (None, None), (True, False)):
        item = ada.get(f"/api/reviews/{key}/next")["item"]["id"]
        said = {"item": item, "present": present, "single": single, "usable": True, "comment": "„so“ \u2028 <b>"}
        ada.post(f"/api/reviews/{key}/votes", said)
    ada.post(f"/api/reviews/{key}/skips", {"item": ada.get(f"/api/reviews/{key}/next")["item"]["id"]})
    tasks = owner.get(f"/api/reviews/{key}/label-studio")
    given = [task for task in tasks if task["annotations"]]
    assert len(given) == 5 and all("expected" not in json.dumps(task) for task in tasks)
    assert given[0]["data"]["image"].startswith("/data/local-files/?d=one/images/")

    path = tmp_path / "tasks.json"
    path.write_text(json.dumps(tasks), encoding="utf-8")
    _, again = start_review(here, votes=2, sentinels=0.2)
    done = _take(here, again, path)
    assert (done.votes, done.reviewers, dict(done.problems)) == (5, {"Ada"}, {})
    came = owner.get(f"/api/reviews/{again}/label-studio")
    key_of = {json.dumps(task["data"], sort_keys=True): _plain(task) for task in tasks}
    assert {json.dumps(task["data"], sort_keys=True): _plain(task) for task in came} == key_of
    assert _take(here, again, path).votes == 5  # once more changes nothing
    assert owner.get(f"/api/reviews/{again}/label-studio") == came


def test_pictures_can_be_put_into_the_tasks(here: World) -> None:
    owner, key = start_review(here, votes=1, sentinels=0, limit=1)
    (task,) = owner.get(f"/api/reviews/{key}/label-studio?pictures=embed")
    assert task["data"]["image"].startswith("data:image/png;base64,iVBOR")


def test_a_name_with_spaces_too_many_is_one_reviewer_however_often_the_file_comes(here: World, tmp_path: Path) -> None:
    owner, key = start_review(here, votes=2, sentinels=0)
    tasks = owner.get(f"/api/reviews/{key}/label-studio")
    result = [{"from_name": "present", "type": "choices", "value": {"choices": ["yes"]}}]
    who = {"first_name": "Ada ", "last_name": "Lovelace"}
    tasks[0]["annotations"] = [{"completed_by": who, "result": result}]
    path = tmp_path / "tasks.json"
    path.write_text(json.dumps(tasks), encoding="utf-8")
    for _ in range(2):
        assert _take(here, key, path).reviewers == {"Ada Lovelace"}
    came = owner.get(f"/api/reviews/{key}/label-studio")
    assert sum(len(task["annotations"]) for task in came) == 1


def test_annotations_that_cannot_be_used_are_counted(here: World, tmp_path: Path) -> None:
    owner, key = start_review(here, votes=1, sentinels=0)
    tasks = owner.get(f"/api/reviews/{key}/label-studio")

    def said(word: Any, who: Any = 7) -> dict[str, Any]:
        result = [{"from_name": "present", "type": "choices", "value": {"choices": [word]}}]
        return {"completed_by": who, "result": result}

    tasks[0]["annotations"] = [said("yes"), said("perhaps", 8), {"completed_by": 9, "result": []}, said("no", "x" * 200), "?"]
    path = tmp_path / "tasks.json"
    path.write_text(
        json.dumps([*tasks, {}, 5, {"data": {"trial_id": "nobody", "picture": "made", "label": 0}}]), encoding="utf-8"
    )
    done = _take(here, key, path)
    assert done.votes == 1 and done.reviewers == {"annotator 7"}
    assert sum(done.problems.values()) == 6 and done.problems["a task about no picture of this review"] == 3


@pytest.mark.parametrize("content", ["", "{}", "[[", '"text"'])
def test_files_that_are_no_export_are_refused(here: World, tmp_path: Path, content: str) -> None:
    _, key = start_review(here, votes=1, sentinels=0)
    path = tmp_path / "tasks.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(BadData, match=r"not JSON|list of tasks"):
        _take(here, key, path)
    with pytest.raises(BadData, match="cannot be read"):
        _take(here, key, tmp_path / "nothing.json")


def _plain(task: dict[str, Any]) -> list[Any]:
    """A task's annotations without what differs from one import to the next."""
    return [(each["completed_by"]["first_name"], each["was_cancelled"], each["result"]) for each in task["annotations"]]
