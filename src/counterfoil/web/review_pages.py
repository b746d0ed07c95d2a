"""Addresses of a review: reviewers get images and give answers, the owner sees its state and decides."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Form, HTTPException, Path, Request
from fastapi.responses import RedirectResponse, Response
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from sqlalchemy import select, update
from sqlalchemy.orm import Session as Transaction

from counterfoil.web.access import Asked, Db, Owner, Reviewer, Visitor, Who, invite, join, page, review_of, revoke
from counterfoil.web.database import CastVote, Database, Invited, ReviewItem
from counterfoil.web.review import KNOWN_TO_TELL, ImageAnswer, ReviewPlan, counts_of, create_review, next_item, undo, vote
from counterfoil.web.runs import Runs, blaming, image_file
from counterfoil.web.tally import QUESTIONS, agreements, ballots, publish, summarise

TIES_SHOWN = 50
JUDGED_BY_OTHERS = "Others judged that image meanwhile, so your answer was not needed."

routes = APIRouter()

ItemId = Annotated[int, Field(ge=1, lt=2**31)]
Text = Annotated[str, AfterValidator(lambda text: text.replace("\0", ""))]  # which PostgreSQL cannot keep


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ItemIn(_Closed):
    """An image of the review."""

    item: ItemId


class VoteIn(ItemIn):
    """A reviewer's answer about an image."""

    present: bool | None = Field(description="is the class there; null: can't tell")
    single: bool | None = Field(None, description="is it the only main object")
    usable: bool | None = Field(None, description="is the image usable")
    comment: Text = Field("", max_length=2000)


Turn = dict[str, Any]
"""The image to judge now and, after taking an answer back, that answer; how far the reviewer and the review are."""


@routes.get("/review/{key}", include_in_schema=False)
def voting_page(request: Request, asked: Reviewer, visitor: Who) -> Response:
    """The page on which reviewers judge images."""
    return page(request, "vote.html", visitor, review=asked.review, name=asked.me.name)


@routes.post("/review/{key}/next")
def next_image(asked: Reviewer, database: Db) -> Turn:
    """The image to judge now."""
    with database.writing() as db:
        return _turn(db, asked, next_item(db, asked.review, asked.me))


@routes.post("/review/{key}/votes")
def give_vote(given: VoteIn, asked: Reviewer, database: Db) -> Turn:
    """Judge an image, or change the judgement. Once this has answered with success, the vote is on the disk."""
    # Without the class there is no answer to whether it is alone.
    single = given.single if given.present is not False else None
    return _enter(database, asked, given.item, ImageAnswer(given.present, single, given.usable, given.comment.strip()))


@routes.post("/review/{key}/skips")
def skip(passed: ItemIn, asked: Reviewer, database: Db) -> Turn:
    """Leave an image to others."""
    return _enter(database, asked, passed.item, ImageAnswer(skipped=True))


@routes.post("/review/{key}/undo")
def take_back(asked: Reviewer, database: Db) -> Turn:
    """Withdraw the last answer, and see that image again."""
    with database.writing() as db:
        item, was = undo(db, asked.review, asked.me.id) or (next_item(db, asked.review, asked.me), None)
        answer = None
        if item is not None and was is not None and not was.skipped:
            answer = VoteIn(item=item.id, present=was.present, single=was.single, usable=was.usable, comment=was.comment)
        return _turn(db, asked, item, answer=answer)


@routes.get("/review/{key}/images/{item}", response_class=Response)
def image(key: str, item: Annotated[int, Path(ge=1, lt=2**31)], runs: Runs, database: Db, visitor: Who) -> Response:
    """The image of an item, for the owner and for reviewers who are or were asked about it."""
    if not visitor.owner and visitor.reviewer is None:
        raise HTTPException(401, "Images need an invitation.")
    with database.reading() as db:
        review = review_of(db, key)
        found = db.scalar(select(ReviewItem).where(ReviewItem.id == item, ReviewItem.review_id == review.id))
        if found is None or not (visitor.owner or _was_asked(db, visitor.reviewer, found)):
            raise HTTPException(404, "There is no such image.")
    content = image_file(runs.folder(review.run), found.file).read_bytes()
    return Response(content, media_type="image/png", headers={"cache-control": "private, max-age=86400"})


def _was_asked(db: Transaction, reviewer: Invited | None, item: ReviewItem) -> bool:
    if reviewer is None or reviewer.review_id != item.review_id:
        return False
    answered = select(CastVote.id).where(CastVote.reviewer_id == reviewer.id, CastVote.item_id == item.id).limit(1)
    return reviewer.item_id == item.id or db.scalar(answered) is not None


def _enter(database: Database, asked: Asked, item: int, answer: ImageAnswer) -> Turn:
    with database.writing() as db:
        kept = vote(db, asked.review, asked.me.id, item=item, answer=answer)
        return _turn(db, asked, next_item(db, asked.review, asked.me), note="" if kept else JUDGED_BY_OTHERS)


def _turn(db: Transaction, asked: Asked, item: ReviewItem | None, *, answer: VoteIn | None = None, note: str = "") -> Turn:
    address = f"/review/{asked.review.key}/images"
    shown = {"id": item.id, "class_name": item.class_name, "image": f"{address}/{item.id}"} if item is not None else None
    counts = counts_of(db, asked.review, asked.me.id)._asdict()
    return {"item": shown, "answer": answer.model_dump() if answer else None, "note": note, **counts}


def _back(address: str) -> Response:
    return RedirectResponse(address, status_code=303)


@routes.post("/reviews", response_class=Response)
def start_review(
    runs: Runs,
    database: Db,
    _: Owner,
    run: Annotated[Text, Form(max_length=1000)],
    votes: Annotated[int, Form(ge=1, le=99)] = 3,
    known: Annotated[float, Form(ge=0, le=50)] = 10,
    control: Annotated[bool, Form()] = False,
    limit: Annotated[str, Form(max_length=9, pattern=r"^[0-9]*$")] = "",
) -> Response:
    """Have people judge the images of a run."""
    plan = ReviewPlan(votes=votes, known_answers=known / 100, control=control, limit=int(limit) if limit else None)
    opened = runs.open(run)
    with blaming(run), database.writing() as db:
        return _back(f"/reviews/{create_review(db, opened, name=run, plan=plan).key}")


@routes.get("/reviews/{key}", response_class=Response)
def review_page(request: Request, key: str, database: Db, visitor: Owner) -> Response:
    """The owner's page of a review."""
    return _review_page(request, database, visitor, key)


@routes.post("/reviews/{key}/reviewers", response_class=Response)
def invite_reviewer(
    request: Request, key: str, database: Db, visitor: Owner, name: Annotated[Text, Form(max_length=200)]
) -> Response:
    """Invite a reviewer; the page shows the link this once."""
    with database.writing() as db:
        invited, token = invite(db, review_of(db, key), name)
    # The token stands behind the #, so that it is in no log and no referrer.
    link = f"{str(request.base_url).rstrip('/')}/enter#{token}"
    return _review_page(request, database, visitor, key, newcomer=invited.name, link=link)


@routes.post("/reviews/{key}/reviewers/{who}/revoke", response_class=Response)
def revoke_reviewer(key: str, who: str, database: Db, _: Owner) -> Response:
    """Withdraw an invitation."""
    with database.writing() as db:
        if not revoke(db, review_of(db, key), who.replace("\0", "")):
            raise HTTPException(404, "There is no such reviewer.")
    return _back(f"/reviews/{key}#reviewers")


@routes.post("/reviews/{key}/myself", response_class=Response)
def review_myself(request: Request, key: str, database: Db, _: Owner) -> Response:
    """Let the owner review too, as a reviewer of their own."""
    with database.writing() as db:
        join(db, review_of(db, key))
    request.session.pop("reviewer", None)
    return _back(f"/review/{key}")


@routes.get("/reviews/{key}/ties", response_class=Response)
def ties_page(request: Request, key: str, database: Db, visitor: Owner) -> Response:
    """Images on which votes are tied, for the owner to decide."""
    with database.reading() as db:
        review = review_of(db, key)
        tied = [ballot for ballot in ballots(db, review) if ballot.outcome(review.votes_wanted) == "tie"]
    return page(request, "ties.html", visitor, review=review, tied=tied[:TIES_SHOWN], more=max(len(tied) - TIES_SHOWN, 0))


@routes.post("/reviews/{key}/ties", response_class=Response)
def decide_tie(
    key: str, database: Db, _: Owner, item: Annotated[int, Form(ge=1, lt=2**31)], keep: Annotated[bool, Form()]
) -> Response:
    """Decide on one of them."""
    with database.writing() as db:
        mine = (ReviewItem.id == item, ReviewItem.review_id == review_of(db, key).id, ReviewItem.expected.is_(None))
        if db.scalar(update(ReviewItem).where(*mine).values(decided_by_owner=keep).returning(ReviewItem.id)) is None:
            raise HTTPException(404, "There is no such image in this review.")
    return _back(f"/reviews/{key}/ties")


@routes.post("/reviews/{key}/verdicts", response_class=Response)
def write_verdicts(request: Request, key: str, runs: Runs, database: Db, visitor: Owner) -> Response:
    """Write what the votes came to into the run."""
    with database.reading() as db:
        review = review_of(db, key)
    written = publish(database, runs.open(review.run), review)
    return _review_page(request, database, visitor, key, written=str(written))


def _review_page(request: Request, database: Database, visitor: Visitor, key: str, **content: str) -> Response:
    with database.reading() as db:
        review = review_of(db, key)
        shown: dict[str, Any] = {"review": review, "summary": summarise(db, review), "agreements": agreements(db, review)}
    shown |= {"questions": QUESTIONS, "least": KNOWN_TO_TELL, "newcomer": "", "link": "", "written": ""} | content
    return page(request, "review.html", visitor, **shown)
