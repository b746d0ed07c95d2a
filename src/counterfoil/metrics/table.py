"""The results as rows of text, in the words that command line and report share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from counterfoil.core.records import Estimate

MEANINGS = {
    "SA": "accuracy on the source images",
    "PA": "accuracy on the pictures made against the model, where the oracle accepts them",
    "FMR": "PA as a share of SA, as published",
    "SA_matched": "accuracy on the source images whose made picture the oracle accepts",
    "FMR_matched": "PA as a share of SA on the same images",
    "VR": "share of images whose picture the oracle accepts",
    "PA_reconstruction": "control: accuracy on the generator's plain rendering of the same images",
    "PA_random": "control: accuracy after steps of equal length in random directions",
    "FMR_random": "control: PA_random as a share of SA",
    "steps": "steps taken before the oracle or the budget ended it",
    "steps_random": "the same for random directions",
}
"""What each number says, in a sentence."""


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    value: str
    interval: str
    n: str
    meaning: str


def rows(results: Mapping[str, Any]) -> list[Row]:
    """The rows for the estimates that `results` has, in the order people read them."""
    return [row(name, Estimate.from_dict(results[name])) for name in MEANINGS if name in results]


def row(name: str, found: Estimate) -> Row:
    """One estimate in words; where it is undefined, the reason stands in the place of its meaning."""
    if found.value is None:
        return Row(name, "–", "", str(found.n), f"undefined: {found.note}")
    value = f"{found.value:.1f}{unit(name)}"
    if found.low is None or found.high is None:
        return Row(name, value, "–", str(found.n), f"{MEANINGS.get(name, '')} ({found.note})".strip())
    return Row(name, value, f"{found.low:.1f} to {found.high:.1f}", str(found.n), MEANINGS.get(name, ""))


def unit(name: str) -> str:
    """The unit a number is given in."""
    if name.startswith("steps"):
        return ""
    return " points" if name.startswith("drop") or name == "sensitivity" else " %"


def text(results: Mapping[str, Any]) -> str:
    """The table as plain text, columns lined up."""
    head = Row("", "value", "95 % interval", "n", "")
    lines = [(each.name, each.value, each.interval, each.n, each.meaning) for each in (head, *rows(results))]
    widths = [max(len(line[column]) for line in lines) for column in range(4)]
    return "\n".join(
        f"{name:<{widths[0]}}  {value:>{widths[1]}}  {interval:>{widths[2]}}  {n:>{widths[3]}}  {meaning}".rstrip()
        for name, value, interval, n, meaning in lines
    )
