"""Requirements that let all people use a page, looked up in the page as the browser sees it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_FIND = Path(__file__).with_name("checks.js").read_text(encoding="utf-8")


def problems(page: Any) -> list[str]:
    """List what is wrong with the page, in words."""
    found: list[str] = page.evaluate(_FIND)
    return found


def focus_is_visible(page: Any) -> list[str]:
    """Tab through the page's first controls; those whose focus can't be seen."""
    hidden = []
    for _ in range(25):
        page.keyboard.press("Tab")
        seen = page.evaluate(
            """() => { const e = document.activeElement; if (!e || e === document.body) return null;
            const own = getComputedStyle(e), after = getComputedStyle(e, "::after");
            const ring = (s) => s.outlineStyle !== "none" && parseFloat(s.outlineWidth) >= 2;
            return [ring(own) || ring(after), e.outerHTML.slice(0, 80)]; }"""
        )
        if seen and not seen[0]:
            hidden.append(seen[1])
    return hidden
