"""A p-value in print."""

from __future__ import annotations


def p_text(p: float) -> str:
    """With the digits that matter, for a table."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


def p_is(p: float) -> str:
    """In a sentence: `p = 0.02`, `p < 0.001`."""
    return f"p {p_text(p)}" if p < 0.001 else f"p = {p_text(p)}"
