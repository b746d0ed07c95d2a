"""What a run says of its review by people, once verdicts were written: numbers alone, no names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from counterfoil.core.errors import BadRun

NAME = "review.json"
HUMAN = "human"


def by_people(oracle: str) -> bool:
    """Whether an oracle of that name is people."""
    return oracle.partition(":")[0] == HUMAN


def review_of(run: Path) -> dict[str, Any] | None:
    """The account of a run's review, or None without one."""
    path = run / NAME
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise BadRun(f"{path}: cannot be read ({error}); write the verdicts again") from None
    if not isinstance(found, dict):
        raise BadRun(f"{path}: not the account of a review; write the verdicts again")
    return found


def review_lines(found: dict[str, Any]) -> list[str]:
    """The account in sentences."""
    pictures, people, sentinels = found["pictures"], found["reviewers"], found["sentinels"]
    lines = [
        f"{people['counted']} reviewers, {found['votes_a_picture']} votes a picture: {pictures['kept']} kept, "
        f"{pictures['rejected']} rejected, {pictures['undecided']} undecided"
    ]
    if sentinels["answered"] or people["left_out"]:
        left = f"; {people['left_out']} below the bar of {100 * sentinels['bar']:.0f} % left out" if people["left_out"] else ""
        lines.append(f"sentinels: {sentinels['right']} of {sentinels['answered']} answered right{left}")
    keep = found["agreement"]["keep"]
    if keep["raw"]["value"] is not None:
        alpha = keep["alpha"]["value"]
        said = (
            f"Krippendorff's alpha {alpha:.2f}" if alpha is not None else f"no alpha ({keep['alpha'].get('note', 'undefined')})"
        )
        lines.append(
            f"agreement on keeping a picture: {said}, {keep['raw']['value']:.1f} % of pairs agree (n {keep['raw']['n']})"
        )
    return lines
