"""Pages of a review: for reviewers the pictures, for the owner how it goes, invitations, ties and verdicts."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Request
from fastapi.responses import RedirectResponse, Response
from sqlalchemy.orm import Session as Transaction

from counterfoil.web.pages import page
from counterfoil.web.review.agreement import QUESTIONS, agreements
from counterfoil.web.review.people import the_owner
from counterfoil.web.review.planning import Plan, create_review
from counterfoil.web.review.publishing import publish
from counterfoil.web.review.tally import ballots
from counterfoil.web.review.voting import SENTINELS_TO_TELL
from counterfoil.web.routes.reviews import invitation, settle_item, summary, take_away
from counterfoil.web.security.visitors import Visitor, set_cookie
from counterfoil.web.server import Here, Owner, Server, Who, invited

router = APIRouter(include_in_schema=False)

TIES_SHOWN = 50


@router.get("/review/{key}")
def voting_page(request: Request, key: str, here: Here, visitor: Who) -> Response:
    """Where reviewers judge pictures."""
    review = here.asked(key).review
    return page(request, "vote.html", visitor, review=review, name=invited(visitor, review).name)


@router.post("/reviews")
def make_review(
    here: Here,
    _: Owner,
    run: Annotated[str, Form(max_length=1000)],
    votes: Annotated[int, Form(ge=1, le=99)] = 3,
    sentinels: Annotated[float, Form(ge=0, le=50)] = 10,
    control: Annotated[bool, Form()] = False,
    limit: Annotated[str, Form(max_length=9, pattern=r"^\d*$")] = "",
) -> Response:
    """Have people judge the pictures of a run."""
    plan = Plan(votes=votes, sentinels=sentinels / 100, control=control, limit=int(limit) if limit else None)
    opened = here.catalogue.open(run)

    def work(transaction: Transaction) -> str:
        return create_review(transaction, opened, name=run, plan=plan).key

    return RedirectResponse(f"/reviews/{here.database.write(work)}", status_code=303)


@router.get("/reviews/{key}")
def review_page(request: Request, key: str, here: Here, visitor: Owner) -> Response:
    """How a review goes."""
    return _review_page(request, here, visitor, key)


@router.post("/reviews/{key}/reviewers")
def invite_reviewer(
    request: Request, key: str, here: Here, visitor: Owner, name: Annotated[str, Form(max_length=200)]
) -> Response:
    """Invite somebody; the page shows the link this once."""
    made = invitation(here, key, name)
    link = str(request.base_url).rstrip("/") + made.link
    return _review_page(request, here, visitor, key, newcomer=made.name, link=link)


@router.post("/reviews/{key}/myself")
def review_myself(request: Request, key: str, here: Here, visitor: Owner) -> Response:
    """Let the owner review too, under a name of their own."""
    response: Response = RedirectResponse(f"/review/{key}", status_code=303)
    if visitor.review != here.asked(key).review.id:
        with here.database.writing() as transaction:
            me = the_owner(transaction, here.review(transaction, key))
        secret = here.visitors.start_session(owner=visitor.owner and not here.settings.open, reviewer=me)
        set_cookie(request, response, secret, days=here.settings.session_days)
    return response


@router.post("/reviews/{key}/reviewers/{who}/revoke")
def revoke_reviewer(key: str, who: str, here: Here, _: Owner) -> Response:
    """Withdraw an invitation."""
    take_away(here, key, who)
    return RedirectResponse(f"/reviews/{key}#reviewers", status_code=303)


@router.get("/reviews/{key}/ties")
def ties_page(request: Request, key: str, here: Here, visitor: Owner) -> Response:
    """Pictures on which votes are tied, for the owner to settle."""
    with here.database.reading() as transaction:
        review = here.review(transaction, key)
        tied = [ballot for ballot in ballots(transaction, review) if ballot.outcome(review.votes_wanted) == "tie"]
    return page(request, "ties.html", visitor, review=review, tied=tied[:TIES_SHOWN], more=max(len(tied) - TIES_SHOWN, 0))


@router.post("/reviews/{key}/ties")
def settle_tie(
    key: str, here: Here, _: Owner, item: Annotated[int, Form(ge=1, lt=2**31)], keep: Annotated[bool, Form()]
) -> Response:
    """Decide on one of them."""
    here.database.write(lambda transaction: settle_item(transaction, here.review(transaction, key), item, keep))
    return RedirectResponse(f"/reviews/{key}/ties", status_code=303)


@router.post("/reviews/{key}/verdicts")
def write_verdicts(request: Request, key: str, here: Here, visitor: Owner) -> Response:
    """Write what the votes came to into the run."""
    with here.database.reading() as transaction:
        review = here.review(transaction, key)
    written = publish(here.database, here.catalogue.open(review.run), review)
    said = f"{written.kept} pictures kept and {written.rejected} rejected, as verdicts of the oracle {written.oracle}."
    said += f" {written.note}." if written.note else ""
    return _review_page(request, here, visitor, key, said=said)


def _review_page(
    request: Request, here: Server, visitor: Visitor, key: str, *, newcomer: str = "", link: str = "", said: str = ""
) -> Response:
    with here.database.reading() as transaction:
        review = here.review(transaction, key)
        how_far, agreed = summary(transaction, review), agreements(transaction, review)
    return page(
        request,
        "review.html",
        visitor,
        review=review,
        questions=QUESTIONS,
        least=SENTINELS_TO_TELL,
        newcomer=newcomer,
        link=link,
        said=said,
        summary=how_far,
        agreements=agreed,
    )
