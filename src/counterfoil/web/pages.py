"""Pages from templates, in which everything that comes from a run or a person is escaped; style sheets and scripts."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from importlib import resources
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import HTMLResponse, Response
from jinja2 import Environment

from counterfoil.metrics.observations import unit_of
from counterfoil.report.templating import templates_of

if TYPE_CHECKING:
    from counterfoil.web.access import Visitor

STATIC = ("web.css", "web.js", "vote.js", "icon.svg")
SHARED = ("colours.css",)  # of reports
_KINDS = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}

routes = APIRouter(include_in_schema=False)


def page(request: Request, template: str, visitor: Visitor, *, status: int = 200, **content: Any) -> Response:
    """A page for a visitor."""
    text = _environment().get_template(template).render(visitor=visitor, path=request.url.path, **content)
    return HTMLResponse(text.encode("utf-8", "replace"), status_code=status)


@routes.get("/favicon.ico")
def icon() -> Response:
    """The icon that browsers ask for on pages that name none, as reports do not."""
    return static("icon.svg")


@routes.get("/static/{name}")
def static(name: str) -> Response:
    """A style sheet or script."""
    if name not in _static():
        raise HTTPException(404, "There is no such file.")
    content, kind = _static()[name]
    return Response(content, media_type=kind, headers={"cache-control": "public, max-age=31536000, immutable"})


@lru_cache(maxsize=1)
def _static() -> Mapping[str, tuple[bytes, str]]:
    own, reports = (resources.files(package).joinpath("static") for package in ("counterfoil.web", "counterfoil.report"))
    files = {**{name: own.joinpath(name) for name in STATIC}, **{name: reports.joinpath(name) for name in SHARED}}
    return {name: (file.read_bytes(), _KINDS[name.rpartition(".")[2]]) for name, file in files.items()}


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = templates_of("counterfoil.web", static=_address)
    environment.filters.update({"path": _path, "number": number, "count": "{:,}".format, "unit": unit_of})
    return environment


def _address(name: str) -> str:
    """A static file's address, which changes with its content so that browsers may keep it for long."""
    return f"/static/{name}?{hashlib.sha256(_static()[name][0]).hexdigest()[:10]}"


def _path(name: str) -> str:
    """A run's name as part of an address."""
    return quote(name.encode("utf-8", "replace"))


def number(value: float | None, digits: int = 1) -> str:
    """A number with a fixed number of decimals and a real minus sign, or a dash."""
    return "–" if value is None else f"{value:.{digits}f}".replace("-", "−")
