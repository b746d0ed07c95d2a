"""The application: routes, errors and what every request passes through."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from anyio import to_thread
from fastapi import Depends, FastAPI
from starlette.types import ASGIApp

from counterfoil.web.catalogue import Catalogue
from counterfoil.web.database import Database
from counterfoil.web.database.migrate import bring_up_to_date
from counterfoil.web.failures import add_handlers
from counterfoil.web.rendered import Sites
from counterfoil.web.routes import entering, files, review_pages, reviews, run_pages, runs, sites, voting
from counterfoil.web.security.guard import Guard
from counterfoil.web.security.visitors import Visitors
from counterfoil.web.server import Server, protect
from counterfoil.web.settings import Settings

THREADS = 8

DESCRIPTION = """Runs under a folder, reports on them, and reviews by people.

Send a token as `Authorization: Bearer TOKEN`: the owner's for everything, a reviewer's for their review. A browser's cookie
does as well; then changes carry the header `X-Form-Token`, which `GET /api/session` tells."""


def create_app(settings: Settings) -> FastAPI:
    """The application for these settings; opens the database and brings it up to date."""
    database = Database(settings.database_url)
    bring_up_to_date(database)
    server = Server(
        settings,
        database,
        Catalogue(settings.root, settings.only),
        Sites(settings.state / "sites"),
        Visitors(settings, database),
    )

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        # Few threads: they share one interpreter, and each more that wants it makes all others wait longer.
        to_thread.current_default_thread_limiter().total_tokens = THREADS
        yield
        server.sites.close()
        database.close()

    app = FastAPI(
        title="Counterfoil",
        version=_version(),
        description=DESCRIPTION,
        docs_url=None,  # they load scripts from elsewhere; /api shows the same without
        redoc_url=None,
        lifespan=lifespan,
        redirect_slashes=False,
        dependencies=[Depends(protect)],
    )
    app.state.server = server
    for module in (voting, runs, reviews, entering, files, run_pages, review_pages, sites):
        app.include_router(module.router)
    add_handlers(app)
    return app


def guarded(settings: Settings) -> ASGIApp:
    """The application as it is served."""
    return Guard(create_app(settings), settings)


def _version() -> str:
    from counterfoil.report.page import program_version

    return program_version()
