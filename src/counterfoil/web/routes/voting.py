"""For reviewers: the picture to judge, a vote, passing, taking back."""

from __future__ import annotations

from fastapi import APIRouter

from counterfoil.web.review.queue import Shown, next_item, votes_by
from counterfoil.web.review.voting import Answer, count_items, undo, vote
from counterfoil.web.routes.schemas import ERRORS, ItemIn, ItemOut, Turn, VoteIn
from counterfoil.web.security.visitors import Visitor
from counterfoil.web.server import Asked, Here, Server, Who, invited

router = APIRouter(prefix="/api/reviews/{key}", tags=["reviewing"], responses=ERRORS)


@router.get("/next", response_model=Turn)
def next_picture(key: str, here: Here, visitor: Who) -> Turn:
    """The picture to judge now."""
    return _turn(here, visitor, here.asked(key))


@router.post("/votes", response_model=Turn)
def give_vote(key: str, said: VoteIn, here: Here, visitor: Who) -> Turn:
    """Judge a picture, or judge it anew. Once this has answered with success, the vote is on the disk."""
    # Whoever does not see the class has nothing to say of whether it is alone.
    single = said.single if said.present is not False else None
    return _enter(here, visitor, key, said.item, Answer(said.present, single, said.usable, said.comment.strip()))


@router.post("/skips", response_model=Turn)
def skip(key: str, passed: ItemIn, here: Here, visitor: Who) -> Turn:
    """Leave a picture to others."""
    return _enter(here, visitor, key, passed.item, Answer(skipped=True))


@router.post("/undo", response_model=Turn)
def take_back(key: str, here: Here, visitor: Who) -> Turn:
    """Take back the last vote or skip, and see that picture again."""
    asked = here.asked(key)
    me = invited(visitor, asked.review)
    taken = here.database.write(lambda transaction: undo(transaction, asked.review, me.id))
    turn = _turn(here, visitor, asked)
    if taken is None:
        return turn
    item, said = taken
    before = VoteIn(item=item.id, present=said.present, single=said.single, usable=said.usable, comment=said.comment)
    return turn.model_copy(update={"item": _item(item), "said": None if said.skipped else before})


def _enter(here: Server, visitor: Visitor, key: str, item: int, answer: Answer) -> Turn:
    asked = here.asked(key)
    me = invited(visitor, asked.review)
    here.database.write(lambda transaction: vote(transaction, asked.review, me.id, item=item, answer=answer))
    return _turn(here, visitor, asked)


def _turn(here: Server, visitor: Visitor, asked: Asked) -> Turn:
    """What comes next, read after the vote is kept, so that nobody who votes waits for it."""
    me = invited(visitor, asked.review)
    with here.database.looking() as connection:
        mine = votes_by(connection, me)
        found = next_item(connection, asked.review, me, judged=mine, items=asked.items, leases=here.leases)
        pictures, done = count_items(connection, asked.review)
    return Turn(item=None if found is None else _item(found), mine=mine, done=done, pictures=pictures)


def _item(item: Shown) -> ItemOut:
    return ItemOut(id=item.id, class_name=item.class_name, picture=f"/api/pictures/{item.id}")
