"""From a mined set to the final one: people vote on the review page, their votes become verdicts, what passed is exported."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from counterfoil import protocols
from counterfoil.protocols.imagenet_d.results import results
from counterfoil.report.export import SET_FILE, TABLE, export
from counterfoil.store import Run, open_run
from counterfoil.web.database import ReviewItem
from counterfoil.web.tally import WrittenVerdicts, publish
from tests.protocols.imagenet_d.world import make_parts, spec
from tests.web.world import World, invite, start_review, world

YES = {"present": True, "single": True, "usable": True}
SPOILT = "sock"  # of which people say that two things are to be seen


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> World:
    root = tmp_path_factory.mktemp("people")
    protocols.run(spec(), root / "mined", given=make_parts())
    return world(root)


@pytest.fixture(scope="module")
def review(here: World) -> Run:
    """Two people judge and agree; a third answers yes to everything and fails the known answers."""
    owner, key = start_review(here, "mined", votes=2, known=30)
    for name in ("Careless", "Ada", "Ben"):
        person = invite(here, owner, key, name)
        turn = person.next()
        while turn["item"]:
            answer = YES if name == "Careless" else _look(here, turn["item"]["id"])
            turn = person.vote(turn["item"]["id"], **answer)
    assert {name: row.reviewer.trusted for name, row in here.reviewers(key).items()} == {
        "Careless": False, "Ada": True, "Ben": True
    }  # fmt: skip
    written = _publish(here, key)
    assert written.kept > 0 and written.rejected > 0 and written.undecided == 0
    return open_run(here.settings.root / "mined")


def test_the_numbers_are_of_what_people_accept(review: Run) -> None:
    found = results(review)["counts"]
    kept = [trial for trial in review.trials if trial.validated]
    spoilt = [trial for trial in kept if review.classes[trial.label] == SPOILT]
    assert found["kept"] == len(kept) and found["people_reject"] == len(spoilt) > 0
    assert found["validated"] == found["people_accept"] == len(kept) - len(spoilt)


def test_sentinels_and_agreement_stay_with_the_run(review: Run) -> None:
    told = json.loads((review.path / "review.json").read_text(encoding="utf-8"))
    assert told["reviewers"] == {"counted": 2, "left_out": 1}
    assert told["sentinels"]["answered"] == told["sentinels"]["right"] >= 8
    assert told["agreement"]["keep"]["alpha"]["value"] == told["agreement"]["single"]["alpha"]["value"] == pytest.approx(1)
    assert told["agreement"]["keep"]["raw"]["value"] == pytest.approx(100)


def test_the_final_set_is_what_passed_and_says_how_it_was_checked(review: Run, tmp_path: Path) -> None:
    export(review, tmp_path / "set", licence="cc-by-4.0")
    with (tmp_path / "set" / TABLE).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == results(review)["counts"]["people_accept"]
    assert {row["people"] for row in rows} == {"yes"} and SPOILT not in {row["class"] for row in rows}
    told = json.loads((tmp_path / "set" / SET_FILE).read_text(encoding="utf-8"))
    assert (
        told["review"]["agreement"]["keep"]["alpha"]["n"]
        == told["review"]["pictures"]["kept"] + told["review"]["pictures"]["rejected"]
    )
    page = (tmp_path / "set" / "README.md").read_text(encoding="utf-8")
    assert "Krippendorff's alpha 1.00" in page and "1 below the bar of 70 % left out" in page


def test_votes_on_a_picture_that_was_painted_anew_are_not_taken_for_votes_on_the_new_one(tmp_path: Path) -> None:
    run = protocols.run(spec(), tmp_path / "mined", given=make_parts())
    here = world(tmp_path)
    owner, key = start_review(here, "mined", votes=1, known=0)
    ada = invite(here, owner, key, "Ada")
    turn = ada.next()
    while turn["item"]:
        turn = ada.vote(turn["item"]["id"], **YES)
    judged = _publish(here, key).kept
    changed = next(trial for trial in run.trials if trial.ending == "made" and "forest" in trial.prompt)
    prompts = run.path / "stages" / "prompts.jsonl"
    prompts.write_text(prompts.read_text().replace(f'"{changed.prompt}"', f'"{changed.prompt.replace("forest", "snow")}"', 1))
    told: list[str] = []
    run = protocols.run(spec(), run.path, given=make_parts(), tell=told.append)
    assert next(trial for trial in run.trials if trial.trial_id == changed.trial_id).image != changed.image
    assert changed.trial_id not in {each.trial_id for each in run.verdicts("human")}
    assert "(1 by human); ask again with 'counterfoil review --new'" in told[-1]
    assert not (run.path / "review.json").exists()
    written = _publish(here, key)
    assert (written.kept, written.changed) == (judged - 1, 1)
    assert changed.trial_id not in {each.trial_id for each in run.verdicts("human")}


def _publish(here: World, key: str) -> WrittenVerdicts:
    return publish(here.database, here.app.state.catalogue.open("mined"), here.review(key))


def _look(here: World, item: int) -> dict[str, bool]:
    """The answer of a person who looks."""
    with here.database.reading() as db:
        asked = db.get_one(ReviewItem, item)
        if asked.expected is not None:
            return YES if asked.expected else {"present": False}
        return {"present": True, "single": asked.class_name != SPOILT, "usable": True}
