"""Pages from templates. Everything that comes from a run or a person is escaped."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from importlib import resources
from typing import Any
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment

from counterfoil.metrics.table import unit
from counterfoil.report.templating import templates_of
from counterfoil.web.security.visitors import Visitor, set_cookie, with_secret

STATIC = ("web.css", "vote.css", "vote.js", "enter.js", "progress.js", "copy.js", "tables.js", "ticks.js", "icon.svg")
SHARED = ("colours.css",)  # of reports
_KINDS = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}


def page(
    request: Request, template: str, visitor: Visitor, *, status: int = 200, forms: bool = True, **content: Any
) -> HTMLResponse:
    """A page for somebody. If it has forms, whoever has no cookie yet gets one, so that their forms can be told from others'."""
    fresh = forms and not visitor.secret and not visitor.by_header
    visitor = with_secret(visitor) if fresh else visitor
    text = _environment().get_template(template).render(visitor=visitor, path=request.url.path, **content)
    response = HTMLResponse(text.encode("utf-8", "replace"), status_code=status)
    if fresh:
        set_cookie(request, response, visitor.secret, days=request.app.state.server.settings.session_days)
    return response


def static_file(name: str) -> tuple[bytes, str] | None:
    """A style sheet or script, and its media type."""
    return _static().get(name)


@lru_cache(maxsize=1)
def _static() -> Mapping[str, tuple[bytes, str]]:
    own, reports = (resources.files(package).joinpath("static") for package in ("counterfoil.web", "counterfoil.report"))
    files = {**{name: own.joinpath(name) for name in STATIC}, **{name: reports.joinpath(name) for name in SHARED}}
    return {name: (file.read_bytes(), _KINDS[name.rpartition(".")[2]]) for name, file in files.items()}


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = templates_of("counterfoil.web", static=_address)
    environment.filters.update({"path": _path, "number": number, "count": "{:,}".format, "percent": _percent, "unit": unit})
    return environment


def _address(name: str) -> str:
    """A static file's address, which changes with its content so that it may be kept for long."""
    return f"/static/{name}?{hashlib.sha256(_static()[name][0]).hexdigest()[:10]}"


def _path(name: str) -> str:
    """A run's name as part of an address."""
    return quote(name.encode("utf-8", "replace"))


def number(value: float | None, digits: int = 1) -> str:
    """A number with a fixed number of decimals and a real minus sign, or a dash."""
    return "–" if value is None else f"{value:.{digits}f}".replace("-", "−")


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "–"
