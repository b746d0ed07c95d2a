"""Pictures of items, and the pages' own style sheets and scripts."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, HTTPException, Path
from fastapi.responses import Response
from sqlalchemy import bindparam, select

from counterfoil.web.catalogue import picture_file
from counterfoil.web.database import Item, Review
from counterfoil.web.pages import static_file
from counterfoil.web.routes.schemas import ERRORS
from counterfoil.web.server import Here, Who

router = APIRouter()

_PNG = {**ERRORS, 200: {"content": {"image/png": {}}}}
_PICTURE = (
    select(Item.file, Item.review_id, Review.run).join(Review, Review.id == Item.review_id).where(Item.id == bindparam("item"))
)


@router.get("/api/pictures/{item}", tags=["reviewing"], responses=_PNG, response_class=Response)
def picture(item: Annotated[int, Path(ge=1, lt=2**31)], here: Here, visitor: Who) -> Response:
    """The picture of an item, for the owner and for those who were invited to its review."""
    if not visitor.owner and visitor.reviewer is None:
        raise HTTPException(401, "Pictures need an invitation.")
    with here.database.looking() as connection:
        found = connection.execute(_PICTURE, {"item": item}).first()
    if found is None or not (visitor.owner or visitor.review == found.review_id):
        raise HTTPException(404, "There is no such picture.")
    path = picture_file(here.catalogue.folder(found.run), found.file)
    return Response(path.read_bytes(), media_type="image/png", headers={"cache-control": "private, max-age=86400"})


@router.get("/favicon.ico", include_in_schema=False)
def icon() -> Response:
    """What browsers ask for on pages that name no icon, as reports do not."""
    return static("icon.svg")


@router.get("/static/{name}", include_in_schema=False)
def static(name: str) -> Response:
    """A style sheet or script."""
    found = static_file(name)
    if found is None:
        raise HTTPException(404, "There is no such file.")
    content, kind = found
    return Response(content, media_type=kind, headers={"cache-control": "public, max-age=31536000, immutable"})
