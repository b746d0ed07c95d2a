"""Pages from templates, in which everything that comes from a run or a person is escaped."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import HTMLResponse, Response
from jinja2 import Environment

from counterfoil.metrics.observations import unit_of
from counterfoil.report.html import templates_of

if TYPE_CHECKING:
    from counterfoil.web.access import Visitor


def page(request: Request, template: str, visitor: Visitor, *, status: int = 200, **content: Any) -> Response:
    """A page for a visitor."""
    text = _environment().get_template(template).render(visitor=visitor, path=request.url.path, **content)
    return HTMLResponse(text.encode("utf-8", "replace"), status_code=status)


def number(value: float | None, digits: int = 1) -> str:
    """A number with a fixed number of decimals and a real minus sign, or a dash."""
    return "–" if value is None else f"{value:.{digits}f}".replace("-", "−")


def _path(name: str) -> str:
    """A run's name as part of an address."""
    return quote(name.encode("utf-8", "replace"))


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = templates_of("counterfoil.web")
    filters: dict[str, Callable[..., str]] = {"number": number, "count": "{:,}".format, "unit": unit_of, "path": _path}
    environment.filters.update(filters)
    return environment
