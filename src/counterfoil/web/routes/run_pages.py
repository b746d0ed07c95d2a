"""Pages about runs: all of them, one of them, and what a program can ask of this server."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from sqlalchemy import select

from counterfoil.core.errors import BadRun, CounterfoilError
from counterfoil.store import Run
from counterfoil.web.database import Review
from counterfoil.web.pages import page
from counterfoil.web.progress import WORDS, progress
from counterfoil.web.review.publishing import oracle_name
from counterfoil.web.routes.reviews import summary
from counterfoil.web.routes.runs import describe, estimates
from counterfoil.web.routes.schemas import RunOut
from counterfoil.web.routes.sites import MOST
from counterfoil.web.server import Here, Owner, Server

router = APIRouter(include_in_schema=False)

HEADLINES = ("FMR", "FMR_matched", "SA", "PA", "VR", "accuracy", "drop")


@router.get("/")
def all_runs(request: Request, here: Here, visitor: Owner) -> Response:
    """Every run of the folder."""
    runs = [describe(here.catalogue, name) for name in here.catalogue.names()]
    columns = [name for name in HEADLINES if any(name in run.numbers for run in runs)]
    return page(request, "runs.html", visitor, runs=runs, columns=columns, words=WORDS, most=MOST)


@router.get("/runs/{name:path}")
def one_run(request: Request, name: str, here: Here, visitor: Owner) -> Response:
    """One run: how far it is, its numbers, its reviews."""
    folder = here.catalogue.folder(name)
    described = describe(here.catalogue, name)
    if described.problem:
        return page(request, "broken.html", visitor, status=422, run=described)
    with here.database.reading() as transaction:
        reviews = [
            summary(transaction, review)
            for review in transaction.scalars(select(Review).where(Review.run == name).order_by(Review.id.desc()))
        ]
    run = Run(folder)
    return page(
        request,
        "run.html",
        visitor,
        run=described,
        progress=progress(folder),
        words=WORDS,
        classes=len(run.classes),
        reviews=reviews,
        beside=_beside_people(here, described) if any(review.published for review in reviews) else None,
    )


@router.get("/api")
def interface(request: Request, visitor: Owner) -> Response:
    """What programs can ask, from the same description as /openapi.json."""
    return page(
        request, "interface.html", visitor, operations=list(_operations(request.app.openapi())), about=request.app.description
    )


@dataclass(frozen=True)
class Operation:
    """One thing a program can ask."""

    method: str
    path: str
    says: str
    fields: tuple[tuple[str, str], ...]


def _operations(description: dict[str, Any]) -> Iterator[Operation]:
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
            schema = description["components"]["schemas"].get(body.get("$ref", "").rpartition("/")[2], {})
            fields = tuple((name, each.get("description", "")) for name, each in schema.get("properties", {}).items())
            yield Operation(method.upper(), path, operation.get("description", ""), fields)


def _beside_people(here: Server, described: RunOut) -> list[tuple[str, Any, Any]] | str:
    """The run's numbers by its own oracle and by what people said, or why there are none."""
    from counterfoil.protocols.reading import results_of  # slow to load, and seldom asked for

    try:
        run = here.catalogue.open(described.name)
        people = estimates(results_of(run, oracle=oracle_name(run)))
    except (BadRun, CounterfoilError) as error:
        return here.catalogue.said(error)
    return [(name, described.numbers.get(name), found) for name, found in people.items()]
