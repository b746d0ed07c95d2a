"""The way of a vote: queue, vote, undo, skip, sentinels, ties, agreement, verdicts."""

from __future__ import annotations

from pathlib import Path

import pytest

from counterfoil.metrics.fmr import fmr_results
from counterfoil.metrics.outcomes import read_outcomes
from counterfoil.store import open_run
from counterfoil.web.database import Item
from tests.report.made import Plan, build

from .world import World, invited, start_review, truth, world

PICTURES = 18  # images of the run with a made picture
YES = {"present": True, "single": True, "usable": True}
NO = {"present": False}


def test_a_review_asks_about_every_made_picture_of_the_guided_arm(here: World) -> None:
    owner, key = start_review(here, votes=2, sentinels=0)
    assert owner.get(f"/api/reviews/{key}")["pictures"] == PICTURES
    _, both = start_review(here, votes=2, sentinels=0, control=True)
    assert owner.get(f"/api/reviews/{both}")["pictures"] == 2 * PICTURES
    _, few = start_review(here, votes=2, sentinels=0, limit=5)
    assert owner.get(f"/api/reviews/{few}")["pictures"] == 5


def test_two_reviewers_with_one_vote_a_picture_share_the_work(here: World) -> None:
    owner, key = start_review(here, votes=1, sentinels=0)
    people = [invited(here, owner, key, name) for name in ("Ada", "Ben")]
    turns = [person.get(f"/api/reviews/{key}/next") for person in people]
    seen: list[int] = []
    while any(turn["item"] for turn in turns):
        for place, person in enumerate(people):
            if turns[place]["item"]:
                seen.append(turns[place]["item"]["id"])
                turns[place] = person.post(f"/api/reviews/{key}/votes", {"item": seen[-1], **YES})
    assert len(seen) == len(set(seen)) == PICTURES
    assert max(turn["done"] for turn in turns) == sum(turn["mine"] for turn in turns) == PICTURES
    assert owner.get(f"/api/reviews/{key}")["kept"] == PICTURES


def test_taking_back_brings_the_picture_and_what_was_said(here: World) -> None:
    owner, key = start_review(here, votes=1, sentinels=0)
    ada = invited(here, owner, key, "Ada")
    first = ada.get(f"/api/reviews/{key}/next")["item"]
    said = {"item": first["id"], "present": True, "single": False, "usable": True, "comment": "a fly, too"}
    assert ada.post(f"/api/reviews/{key}/votes", said)["done"] == 1
    back = ada.post(f"/api/reviews/{key}/undo")
    assert back["item"] == first and back["said"] == said and (back["mine"], back["done"]) == (0, 0)
    assert ada.post(f"/api/reviews/{key}/undo")["said"] is None


def test_a_passed_picture_is_left_to_others(here: World) -> None:
    owner, key = start_review(here, votes=1, sentinels=0, limit=1)
    ada, ben = (invited(here, owner, key, name) for name in ("Ada", "Ben"))
    item = ada.get(f"/api/reviews/{key}/next")["item"]["id"]
    assert ada.post(f"/api/reviews/{key}/skips", {"item": item})["item"] is None
    assert ben.get(f"/api/reviews/{key}/next")["item"]["id"] == item
    assert ada.post(f"/api/reviews/{key}/undo")["item"]["id"] == item


def test_the_same_vote_twice_counts_once_and_another_replaces_it(here: World) -> None:
    owner, key = start_review(here, votes=1, sentinels=0)
    ada = invited(here, owner, key, "Ada")
    item = ada.get(f"/api/reviews/{key}/next")["item"]["id"]
    for _ in range(2):
        assert ada.post(f"/api/reviews/{key}/votes", {"item": item, **YES})["mine"] == 1
    assert owner.get(f"/api/reviews/{key}")["kept"] == 1
    assert ada.post(f"/api/reviews/{key}/votes", {"item": item, **NO})["mine"] == 1
    assert owner.get(f"/api/reviews/{key}")["rejected"] == 1


def test_sentinels_have_known_answers_and_are_not_among_the_pictures(here: World) -> None:
    start_review(here, votes=1, sentinels=0.25)
    run = open_run(here.settings.root / "one")
    trials = {trial.trial_id: trial for trial in run.trials}
    with here.server.database.reading() as transaction:
        sentinels = [item for item in transaction.query(Item) if item.expected is not None]
    assert {item.expected for item in sentinels} == {True, False}
    for item in sentinels:
        assert item.picture == "clean" and item.expected == (item.label == trials[item.trial_id].label)


def test_who_fails_the_sentinels_does_not_count_and_others_get_their_pictures(here: World) -> None:
    owner, key = start_review(here, votes=1, sentinels=0.25)
    careless, careful = (invited(here, owner, key, name) for name in ("Careless", "Careful"))
    turn = careless.get(f"/api/reviews/{key}/next")
    for _ in range(PICTURES + 6):
        if turn["item"]:  # the opposite of what is there
            wrong = not truth(here.server, turn["item"]["id"])
            said = YES if wrong else NO
            turn = careless.post(f"/api/reviews/{key}/votes", {"item": turn["item"]["id"], **said})
    rows = {row["name"]: row for row in owner.get(f"/api/reviews/{key}/agreement")["reviewers"]}
    assert not rows["Careless"]["counts"] and rows["Careless"]["sentinels"] >= 4
    assert rows["Careless"]["sentinels_right"] == 0
    assert owner.get(f"/api/reviews/{key}")["done"] == 0

    turn = careful.get(f"/api/reviews/{key}/next")
    while turn["item"]:
        said = YES if truth(here.server, turn["item"]["id"]) else NO
        turn = careful.post(f"/api/reviews/{key}/votes", {"item": turn["item"]["id"], **said})
    assert owner.get(f"/api/reviews/{key}")["kept"] == PICTURES
    # Taking back wrong sentinel answers until fewer than four are left makes the reviewer count again.
    for _ in range(PICTURES + 6):
        careless.post(f"/api/reviews/{key}/undo")
    rows = {row["name"]: row for row in owner.get(f"/api/reviews/{key}/agreement")["reviewers"]}
    assert rows["Careless"]["counts"] and rows["Careless"]["votes"] == 0
    assert owner.get(f"/api/reviews/{key}")["kept"] == PICTURES


def test_votes_become_verdicts_and_the_numbers_follow(here: World) -> None:
    owner, key = start_review(here, votes=2, sentinels=0)
    people = [invited(here, owner, key, name) for name in ("Ada", "Ben")]
    items = _items(here, key)
    # The first six are rejected by both, the next four tied, the others kept.
    for place, item in enumerate(items):
        for number, person in enumerate(people):
            no = place < 6 or (place < 10 and number == 0)
            said = [NO, {"present": True, "single": False, "usable": True}, {"present": True, "single": True, "usable": False}]
            person.post(f"/api/reviews/{key}/votes", {"item": item.id, **(said[place % 3] if no else YES)})
    found = owner.get(f"/api/reviews/{key}")
    assert (found["kept"], found["rejected"], found["tied"]) == (8, 6, 4)
    for place in (6, 7, 8):
        owner.post(f"/api/reviews/{key}/settled", {"item": items[place].id, "keep": place == 6})

    written = owner.post(f"/api/reviews/{key}/verdicts")
    assert written == {"oracle": "human", "kept": 9, "rejected": 8, "undecided": 1, "changed": 0}
    run = open_run(here.settings.root / "one")
    verdicts = {verdict.trial_id: verdict for verdict in run.verdicts("human")}
    assert len(verdicts) == 17 and items[9].trial_id not in verdicts
    assert [verdicts[item.trial_id].keeps_label for item in items[:9]] == [False] * 6 + [True, False, False]
    assert verdicts[items[10].trial_id].score == 1.0 and verdicts[items[0].trial_id].predicted == -1
    # Recomputed by hand: of the nine kept pictures, those that the model still gets right.
    right = {p.trial_id: p.correct for p in run.predictions() if p.picture == "made"}
    kept = [item for item in items if item.trial_id in verdicts and verdicts[item.trial_id].keeps_label]
    results = fmr_results(run, oracle="human")
    assert results["PA"]["value"] == pytest.approx(100 * sum(right[item.trial_id] for item in kept) / 9)
    assert results["PA"]["n"] == 9 and read_outcomes(run, oracle="human").pending == 1


def test_agreement_is_that_of_the_votes(here: World) -> None:
    owner, key = start_review(here, votes=2, sentinels=0)
    people = [invited(here, owner, key, name) for name in ("Ada", "Ben")]
    for place, item in enumerate(_items(here, key)):
        people[0].post(f"/api/reviews/{key}/votes", {"item": item.id, **(YES if place % 2 else NO)})
        people[1].post(f"/api/reviews/{key}/votes", {"item": item.id, **(YES if place % 2 or place == 0 else NO)})
    found = owner.get(f"/api/reviews/{key}/agreement")
    # 36 votes, 19 of them yes, one picture of 18 in disagreement.
    alpha = 1 - (2 / 36) / (2 * 19 * 17 / (36 * 35))
    assert found["questions"]["keep"]["alpha"]["value"] == pytest.approx(alpha)
    assert found["questions"]["keep"]["raw"]["value"] == pytest.approx(100 * 17 / 18)
    assert [row["agrees"]["value"] for row in found["reviewers"]] == [pytest.approx(100 * 17 / 18)] * 2
    assert [row["alpha"]["value"] for row in found["reviewers"]] == [pytest.approx(alpha)] * 2
    assert sum(row["pictures"] for row in found["classes"]) == PICTURES


def test_verdicts_wait_for_a_run_that_is_being_written(here: World) -> None:
    owner, key = start_review(here, votes=1, sentinels=0, limit=1)
    ada = invited(here, owner, key, "Ada")
    item = ada.get(f"/api/reviews/{key}/next")["item"]["id"]
    ada.post(f"/api/reviews/{key}/votes", {"item": item, **YES})
    with open_run(here.settings.root / "one").appending():
        refused = owner.post(f"/api/reviews/{key}/verdicts", status=409)
    assert "is writing here" in refused["error"] and str(here.settings.root) not in refused["error"]
    assert owner.post(f"/api/reviews/{key}/verdicts")["kept"] == 1


def test_a_run_without_an_accepted_image_has_nothing_to_review(tmp_path: Path) -> None:
    build(tmp_path / "none", Plan(accept=False))
    here = world(tmp_path)
    refused = here.owner().post("/api/reviews", {"run": "none"}, 422)
    assert "no made picture to review" in refused["error"]


def _items(here: World, key: str) -> list[Item]:
    with here.server.database.reading() as transaction:
        review = here.server.review(transaction, key)
        return list(transaction.query(Item).where(Item.review_id == review.id).order_by(Item.position))


def test_the_owner_reviews_as_one_person_from_every_browser(here: World) -> None:
    owner, key = start_review(here)
    _, other = start_review(here)
    for _ in range(2):
        browser = here.owner().browser
        for each in (key, other, key):
            token = browser.get("/api/session").json()["form_token"]
            assert browser.post(f"/reviews/{each}/myself", headers={"x-form-token": token}).status_code == 303
        assert browser.get(f"/api/reviews/{key}/next").status_code == 200
    rows = owner.get(f"/api/reviews/{key}/agreement")["reviewers"]
    assert [row["name"] for row in rows] == ["Owner"]


def test_who_leaves_an_open_server_is_not_asked_for_a_token(here: World) -> None:
    owner = here.owner()
    assert owner.browser.post("/leave").headers["location"] == "/"


def test_known_answers_are_explained_where_there_are_some(here: World) -> None:
    explained = []
    for sentinels in (0.0, 0.1):
        owner, key = start_review(here, sentinels=sentinels)
        invited(here, owner, key, "Ada")
        explained.append("of the known answers right" in owner.browser.get(f"/reviews/{key}").text)
    assert explained == [False, True]
