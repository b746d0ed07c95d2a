"""For the owner: reviews, invitations, agreement, ties, verdicts, Label Studio."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from fastapi import APIRouter, HTTPException, Query
from fastapi.responses import StreamingResponse
from sqlalchemy import select, update
from sqlalchemy.orm import Session as Transaction

from counterfoil.web.database import Item, Review
from counterfoil.web.review import label_studio
from counterfoil.web.review.agreement import agreements
from counterfoil.web.review.people import invite, revoke
from counterfoil.web.review.planning import Plan, create_review
from counterfoil.web.review.publishing import Published, publish
from counterfoil.web.review.tally import ballots, outcomes
from counterfoil.web.review.voting import count_items
from counterfoil.web.routes import schemas
from counterfoil.web.routes.schemas import ERRORS, Number
from counterfoil.web.server import Here, Owner, Server

router = APIRouter(prefix="/api/reviews", tags=["reviews"], responses=ERRORS)


@router.get("", response_model=list[schemas.ReviewOut])
def list_reviews(here: Here, _: Owner) -> list[schemas.ReviewOut]:
    """Every review, the newest first."""
    with here.database.reading() as transaction:
        found = transaction.scalars(select(Review).order_by(Review.id.desc())).all()
        return [summary(transaction, review) for review in found]


@router.post("", response_model=schemas.ReviewOut, status_code=201)
def make_review(wanted: schemas.ReviewIn, here: Here, _: Owner) -> schemas.ReviewOut:
    """Have people judge the pictures of a run."""
    plan = Plan(wanted.votes, wanted.sentinels, wanted.bar, wanted.control, wanted.limit)
    run = here.catalogue.open(wanted.run)

    def work(transaction: Transaction) -> schemas.ReviewOut:
        return summary(transaction, create_review(transaction, run, name=wanted.run, plan=plan))

    return here.database.write(work)


@router.get("/{key}", response_model=schemas.ReviewOut)
def one_review(key: str, here: Here, _: Owner) -> schemas.ReviewOut:
    """A review and how far it is."""
    with here.database.reading() as transaction:
        return summary(transaction, here.review(transaction, key))


@router.post("/{key}/reviewers", response_model=schemas.InvitationOut, status_code=201)
def invite_reviewer(key: str, who: schemas.ReviewerIn, here: Here, _: Owner) -> schemas.InvitationOut:
    """Invite somebody. The link lets whoever has it in under that name."""
    return invitation(here, key, who.name)


@router.delete("/{key}/reviewers/{reviewer}", status_code=204)
def revoke_reviewer(key: str, reviewer: str, here: Here, _: Owner) -> None:
    """Let a reviewer in no longer; the votes they gave stay."""
    take_away(here, key, reviewer)


@router.get("/{key}/agreement", response_model=schemas.AgreementOut)
def agreement(key: str, here: Here, _: Owner) -> schemas.AgreementOut:
    """Krippendorff's alpha and raw agreement: by question, by class, by reviewer."""
    with here.database.reading() as transaction:
        found = agreements(transaction, here.review(transaction, key))
    return schemas.AgreementOut(
        questions={name: {"alpha": Number.of(each.alpha), "raw": Number.of(each.raw)} for name, each in found.questions.items()},
        classes=[
            {"class": row.name, "pictures": row.pictures, "kept": row.kept, "rejected": row.rejected}
            | {"alpha": Number.of(row.agreement.alpha), "raw": Number.of(row.agreement.raw)}
            for row in found.classes
        ],
        reviewers=[
            {"key": row.reviewer.key, "name": row.reviewer.name, "counts": row.reviewer.trusted, "votes": row.votes}
            | {"sentinels": row.sentinels, "sentinels_right": row.sentinels_right}
            | {"alpha": Number.of(row.alpha), "agrees": Number.of(row.agrees)}
            for row in found.reviewers
        ],
    )


@router.post("/{key}/settled", response_model=schemas.ReviewOut)
def settle(key: str, decision: schemas.SettledIn, here: Here, _: Owner) -> schemas.ReviewOut:
    """Decide on a picture where votes are tied."""

    def work(transaction: Transaction) -> schemas.ReviewOut:
        review = here.review(transaction, key)
        settle_item(transaction, review, decision.item, decision.keep)
        return summary(transaction, review)

    return here.database.write(work)


@router.post("/{key}/verdicts", response_model=schemas.PublishedOut)
def write_verdicts(key: str, here: Here, _: Owner) -> Published:
    """Write what the votes came to into the run, as verdicts of an oracle named human."""
    with here.database.reading() as transaction:
        review = here.review(transaction, key)
    return publish(here.database, here.catalogue.open(review.run), review)


@router.get("/{key}/label-studio", response_class=StreamingResponse, responses={200: {"content": {"application/json": {}}}})
def export_tasks(
    key: str, here: Here, _: Owner, pictures: Annotated[Literal["files", "embed"], Query()] = "files"
) -> StreamingResponse:
    """The review as Label Studio tasks, votes included."""
    with here.database.reading() as transaction:
        review = here.review(transaction, key)
    run = here.catalogue.folder(review.run)

    def lines() -> Iterator[str]:
        with here.database.reading() as transaction:
            yield from label_studio.as_json(label_studio.export(transaction, review, run=run, pictures=pictures))

    headers = {"content-disposition": f'attachment; filename="review-{review.key}.json"'}
    return StreamingResponse(lines(), media_type="application/json", headers=headers)


def summary(transaction: Transaction, review: Review) -> schemas.ReviewOut:
    """A review and how far it is."""
    pictures, done = count_items(transaction.connection(), review)
    came_to = outcomes(ballots(transaction, review), review)
    return schemas.ReviewOut(
        key=review.key,
        run=review.run,
        votes_wanted=review.votes_wanted,
        pictures=pictures,
        done=done,
        kept=came_to["keep"],
        rejected=came_to["reject"],
        tied=came_to["tie"],
        published=review.published is not None,
    )


def invitation(here: Server, key: str, name: str) -> schemas.InvitationOut:
    """Invite somebody to a review."""

    def work(transaction: Transaction) -> schemas.InvitationOut:
        reviewer, token = invite(transaction, here.review(transaction, key), name)
        # Behind the #, so that the token is in nobody's log and no referrer.
        link = f"/enter#{token}"
        return schemas.InvitationOut(key=reviewer.key, name=reviewer.name, link=link, token=token)

    return here.database.write(work)


def take_away(here: Server, key: str, reviewer: str) -> None:
    """Withdraw an invitation."""

    def work(transaction: Transaction) -> None:
        if revoke(transaction, here.review(transaction, key), reviewer) is None:
            raise HTTPException(404, "There is no such reviewer.")

    here.database.write(work)
    here.visitors.forget()


def settle_item(transaction: Transaction, review: Review, item: int, keep: bool) -> None:
    """Enter the owner's decision."""
    mine = (Item.id == item, Item.review_id == review.id, Item.expected.is_(None))
    if transaction.scalar(select(Item.id).where(*mine)) is None:
        raise HTTPException(404, "There is no such picture in this review.")
    transaction.execute(update(Item).where(*mine).values(settled=keep))
