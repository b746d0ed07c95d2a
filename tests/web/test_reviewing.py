"""The way of a vote: which image comes next, voting, taking back, passing, known answers, ties, agreement, verdicts."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from counterfoil.core.records import Verdict
from counterfoil.protocols.fmr.outcomes import read_outcomes
from counterfoil.protocols.fmr.results import fmr_results
from counterfoil.store import open_run
from counterfoil.web import review as reviews
from counterfoil.web.access import review_of
from counterfoil.web.review import ReviewPlan, known_from_run
from counterfoil.web.tally import agreements
from tests.report.made import ORACLE, Plan, build

from .world import Person, World, invite, link_of, reviewer_key, start_review, world

IMAGES = 18  # images of the run with a generated image
YES = {"present": True, "single": True, "usable": True}
NO = {"present": False}


def _judge_all(person: Person, answer=lambda item: YES) -> list[int]:
    """Judge until nothing is left; the items in the order in which they came."""
    seen, turn = [], person.next()
    while turn["item"]:
        seen.append(turn["item"]["id"])
        turn = person.vote(seen[-1], **answer(seen[-1]))
    return seen


def test_a_review_asks_about_every_generated_image_of_the_guided_arm(here: World) -> None:
    for plan, images in (({}, IMAGES), ({"control": "true"}, 2 * IMAGES), ({"limit": 5}, 5)):
        _, key = start_review(here, votes=2, known=0, **plan)
        assert here.summary(key).images == images


def test_two_reviewers_with_one_vote_per_image_share_the_work(here: World) -> None:
    owner, key = start_review(here, votes=1, known=0)
    people = [invite(here, owner, key, name) for name in ("Ada", "Ben")]
    turns = [person.next() for person in people]
    seen: list[int] = []
    while any(turn["item"] for turn in turns):
        for place, person in enumerate(people):
            if turns[place]["item"]:
                seen.append(turns[place]["item"]["id"])
                turns[place] = person.vote(seen[-1], **YES)
    assert len(seen) == len(set(seen)) == IMAGES
    assert max(turn["done"] for turn in turns) == sum(turn["mine"] for turn in turns) == IMAGES
    assert here.summary(key).kept == IMAGES


def test_taking_back_brings_the_image_and_the_answer(here: World) -> None:
    owner, key = start_review(here, votes=1, known=0)
    ada = invite(here, owner, key, "Ada")
    first = ada.next()["item"]
    given = {"item": first["id"], "present": True, "single": False, "usable": True, "comment": "a fly, too"}
    assert ada.post("votes", given)["done"] == 1
    back = ada.post("undo")
    assert back["item"] == first and back["answer"] == given and (back["mine"], back["done"]) == (0, 0)
    assert ada.post("undo")["answer"] is None


def test_a_passed_image_is_left_to_others(here: World) -> None:
    owner, key = start_review(here, votes=1, known=0, limit=1)
    ada, ben = (invite(here, owner, key, name) for name in ("Ada", "Ben"))
    item = ada.next()["item"]["id"]
    assert ada.post("skips", {"item": item})["item"] is None
    assert ben.next()["item"]["id"] == item
    assert ada.post("undo")["item"]["id"] == item


def test_the_same_vote_twice_counts_once_and_another_replaces_it(here: World) -> None:
    owner, key = start_review(here, votes=1, known=0)
    ada = invite(here, owner, key, "Ada")
    item = ada.next()["item"]["id"]
    for _ in range(2):
        assert ada.vote(item, **YES)["mine"] == 1
    assert here.summary(key).kept == 1
    assert ada.vote(item, **NO)["mine"] == 1
    assert here.summary(key).rejected == 1


def test_a_vote_on_an_image_nobody_asked_about_is_refused(here: World) -> None:
    owner, key = start_review(here, votes=1, known=0)
    ada, ben = (invite(here, owner, key, name) for name in ("Ada", "Ben"))
    asked = ada.next()["item"]["id"]
    for item in here.items(key):
        if item.id != asked:
            assert "not asked" in ada.vote(item.id, status=422, **NO)["error"]
    assert ben.post("skips", {"item": asked}, 422)
    assert here.summary(key).done == 0


def test_a_decided_review_cannot_be_overturned(here: World) -> None:
    owner, key = start_review(here, votes=1, known=0)
    ada, *others = (invite(here, owner, key, name) for name in ("Ada", "Ben", "Cleo"))
    late = others[0].next()["item"]["id"]
    for person in (ada, others[1]):
        _judge_all(person)
    assert here.summary(key).kept == IMAGES - 1  # the last one is on Ben's screen
    with here.database.writing() as db:  # ... where it has been for too long
        db.execute(reviews.update(reviews.Invited).values(item_since=0))
    assert _judge_all(ada) == [late]
    turn = others[0].vote(late, **NO)
    assert "your answer was not needed" in turn["note"] and turn["item"] is None and turn["mine"] == 0
    for person in others:
        for item in here.items(key):
            person.browser.post(f"/review/{key}/votes", json={"item": item.id, **NO})
    assert here.summary(key).kept == IMAGES
    assert owner.post(f"/reviews/{key}/verdicts").status_code == 200
    assert all(verdict.keeps_label for verdict in open_run(here.settings.root / "one").verdicts("human"))


def test_no_image_gets_more_votes_than_asked_for(here: World) -> None:
    owner, key = start_review(here, votes=2, known=0)
    people = [invite(here, owner, key, name) for name in ("Ada", "Ben", "Cleo", "Dan")]
    turns = [person.next() for person in people]
    while any(turn["item"] for turn in turns):
        for place, person in enumerate(people):
            if turns[place]["item"]:
                turns[place] = person.vote(turns[place]["item"]["id"], **YES)
                assert not turns[place]["note"]
    assert {item.votes for item in here.items(key)} == {2}


def test_known_answers_are_not_among_the_images_to_judge(here: World) -> None:
    _, key = start_review(here, votes=1, known=25)
    trials = {trial.trial_id: trial for trial in open_run(here.settings.root / "one").trials}
    known = [item for item in here.items(key) if item.expected is not None]
    assert {item.expected for item in known} == {True, False}
    for item in known:
        assert item.which == "clean" and item.expected == (item.label == trials[item.trial_id].label)


def test_a_known_answer_rests_on_the_last_verdict(here: World) -> None:
    run = open_run(here.settings.root / "one")
    before = {row["trial_id"] for row in known_from_run(run, IMAGES, ReviewPlan(known_answers=0.5))}
    reversed_ = sorted(before)[0]
    run.append(verdicts=[Verdict(reversed_, "clean", ORACLE, False, 0.1, -1)])
    run.append(verdicts=[Verdict(each, "clean", ORACLE, None, 0.5, -1) for each in before])  # an abstention changes nothing
    after = {row["trial_id"] for row in known_from_run(run, IMAGES, ReviewPlan(known_answers=0.5))}
    assert reversed_ not in after and before - after == {reversed_}


def test_who_fails_the_known_answers_does_not_count_and_others_get_their_images(here: World) -> None:
    owner, key = start_review(here, votes=1, known=25)
    careless, careful = (invite(here, owner, key, name) for name in ("Careless", "Careful"))
    turn = careless.next()
    for _ in range(IMAGES + 6):
        if turn["item"]:  # the opposite of what is there
            item = turn["item"]["id"]
            turn = careless.vote(item, **(NO if here.truth(item) else YES))
    row = here.reviewers(key)["Careless"]
    assert not row.reviewer.trusted and row.known >= 4 and row.known_correct == 0
    assert here.summary(key).done == 0

    _judge_all(careful, lambda item: YES if here.truth(item) else NO)
    assert here.summary(key).kept == IMAGES
    # Taking back wrong known answers until fewer than four are left makes the reviewer count again.
    for _ in range(IMAGES + 6):
        careless.post("undo")
    row = here.reviewers(key)["Careless"]
    assert row.reviewer.trusted and row.votes == 0
    assert here.summary(key).kept == IMAGES


def test_votes_become_verdicts_and_the_numbers_follow(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, key = start_review(here, votes=2, known=0)
    people = [invite(here, owner, key, name) for name in ("Ada", "Ben")]
    items = here.items(key)
    place = {item.id: number for number, item in enumerate(items)}
    noes = [NO, {"present": True, "single": False, "usable": True}, {"present": True, "single": True, "usable": False}]
    for number, person in enumerate(people):  # the first six are rejected by both, the next four tied, the others kept

        def answer(item: int, number: int = number) -> dict[str, bool]:
            at = place[item]
            return noes[at % 3] if at < 6 or (at < 10 and number == 0) else YES

        _judge_all(person, answer)
    found = here.summary(key)
    assert (found.kept, found.rejected, found.tied) == (8, 6, 4)
    for at in (6, 7, 8):
        owner.post(f"/reviews/{key}/ties", data={"item": items[at].id, "keep": "true" if at == 6 else "false"})

    written = owner.post(f"/reviews/{key}/verdicts").text
    assert "9 images kept, 8 rejected, 1 undecided; verdicts of oracle human" in written
    run = open_run(here.settings.root / "one")
    verdicts = {verdict.trial_id: verdict for verdict in run.verdicts("human")}
    assert len(verdicts) == 17 and items[9].trial_id not in verdicts
    assert [verdicts[item.trial_id].keeps_label for item in items[:9]] == [False] * 6 + [True, False, False]
    assert verdicts[items[10].trial_id].score == 1.0 and verdicts[items[0].trial_id].predicted == -1
    # Recomputed by hand: of the nine kept images, those that the model still gets right.
    right = {p.trial_id: p.correct for p in run.predictions() if p.picture == "made"}
    kept = [item for item in items if item.trial_id in verdicts and verdicts[item.trial_id].keeps_label]
    results = fmr_results(run, oracle="human")
    assert results["PA"]["value"] == pytest.approx(100 * sum(right[item.trial_id] for item in kept) / 9)
    assert results["PA"]["n"] == 9 and read_outcomes(run, oracle="human").pending == 1


def test_agreement_is_that_of_the_votes(here: World) -> None:
    owner, key = start_review(here, votes=2, known=0)
    place = {item.id: number for number, item in enumerate(here.items(key))}
    _judge_all(invite(here, owner, key, "Ada"), lambda item: YES if place[item] % 2 else NO)
    _judge_all(invite(here, owner, key, "Ben"), lambda item: YES if place[item] % 2 or place[item] == 0 else NO)
    with here.database.reading() as db:
        found = agreements(db, review_of(db, key))
    # 36 votes, 19 of them yes, one image of 18 in disagreement.
    alpha = 1 - (2 / 36) / (2 * 19 * 17 / (36 * 35))
    assert found.questions["keep"].alpha.value == pytest.approx(alpha)
    assert found.questions["keep"].raw.value == pytest.approx(100 * 17 / 18)
    assert [row.alpha.value for row in found.reviewers] == [pytest.approx(alpha)] * 2
    assert sum(row.images for row in found.classes) == IMAGES


def test_verdicts_wait_for_a_run_that_is_being_written(here: World) -> None:
    owner, key = start_review(here, votes=1, known=0, limit=1)
    _judge_all(invite(here, owner, key, "Ada"))
    with open_run(here.settings.root / "one").appending():
        refused = owner.post(f"/reviews/{key}/verdicts")
    assert refused.status_code == 409 and "is writing here" in refused.text and str(here.settings.root) not in refused.text
    assert "1 images kept" in owner.post(f"/reviews/{key}/verdicts").text


def test_a_run_without_an_accepted_image_has_nothing_to_review(tmp_path: Path) -> None:
    build(tmp_path / "none", Plan(accept=False))
    refused = world(tmp_path).owner().post("/reviews", data={"run": "none"})
    assert refused.status_code == 422 and "no generated image to review" in refused.text


def test_the_owner_reviews_as_one_person_from_every_browser(here: World) -> None:
    _, key = start_review(here)
    _, other = start_review(here)
    for _ in range(2):
        browser = here.owner()
        for each in (key, other, key):
            assert browser.post(f"/reviews/{each}/myself").status_code == 303
        assert browser.post(f"/review/{key}/next").status_code == 200
    assert list(here.reviewers(key)) == ["Owner"]


def test_somebody_invited_as_owner_is_not_the_owner(here: World) -> None:
    owner, key = start_review(here, votes=1, known=0)
    namesake = invite(here, owner, key, "Owner")
    owner.post(f"/reviews/{key}/reviewers/{reviewer_key(here, key, 'Owner')}/revoke")
    assert here.owner().post(f"/reviews/{key}/myself").status_code == 303
    assert namesake.browser.post(f"/review/{key}/next").status_code in (401, 403)
    assert here.browser().post("/enter", data={"token": namesake.token}).status_code == 401


def test_somebody_invited_again_keeps_their_votes_and_the_old_link_ends(here: World) -> None:
    owner, key = start_review(here, votes=1, known=0)
    ada = invite(here, owner, key, "Ada")
    _judge_all(ada)
    again = here.enter(link_of(owner, key, " Ada "))
    assert again.post(f"/review/{key}/next").json()["mine"] == IMAGES
    assert ada.browser.post(f"/review/{key}/next").status_code in (401, 403)
    assert here.browser().post("/enter", data={"token": ada.token}).status_code == 401


def test_who_leaves_an_open_server_is_not_asked_for_a_token(here: World) -> None:
    assert here.owner().post("/leave").headers["location"] == "/"


def test_known_answers_are_explained_where_there_are_some(here: World) -> None:
    explained = []
    for known in (0, 10):
        owner, key = start_review(here, known=known)
        invite(here, owner, key, "Ada")
        explained.append("of the known answers right" in owner.get(f"/reviews/{key}").text)
    assert explained == [False, True]


def test_a_review_that_can_never_decide_says_so(here: World) -> None:
    owner, key = start_review(here, votes=3, known=0)
    for name, missing in (("Ada", 2), ("Ben", 1), ("Cleo", 0)):
        invite(here, owner, key, name)
        assert here.summary(key).reviewers_missing == missing
        assert ("More reviewers needed" in owner.get(f"/reviews/{key}").text) == bool(missing)


def test_a_plan_out_of_range_is_refused() -> None:
    for wrong in ({"votes": 0}, {"known_answers": 0.6}, {"min_known_correct": 1.1}, {"limit": 0}):
        with pytest.raises(reviews.UsageError):
            dataclasses.replace(ReviewPlan(), **wrong)
