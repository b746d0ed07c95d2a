"""`strict`: a run that ends at the first picture which it could leave out. It changes no number, so it can be taken back."""

from __future__ import annotations

from pathlib import Path

from counterfoil.core.errors import BadData, BadImage
from counterfoil.core.spec import RunSpec


def stopped(problem: BadImage | str) -> BadData:
    """The error that ends a run at a picture."""
    what = "unreadable picture" if isinstance(problem, BadImage) else "failure"
    kept = "what was done is kept, and the same command without strict goes on"
    return BadData(f"{problem} (strict: stopping at the first {what}; {kept})")


def insist(spec: RunSpec, out: Path, *, left_out: int) -> None:
    """Refuse to go on strictly with a run that has left pictures out."""
    if spec.strict and left_out:
        raise BadData(
            f"{out}: pictures that could not be used were left out before ({left_out}), and strict allows none; "
            "go on without strict, or repair them and choose another --out"
        )
