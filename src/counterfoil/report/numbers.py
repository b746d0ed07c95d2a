"""The numbers of `results.json` as a reader sees them: value, interval, number of images, and why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

NONE = "–"
FEWEST = 3  # images of a class from which its rates are drawn, and its ratios shown


@dataclass(frozen=True)
class Number:
    """One estimate; where it or its interval is not defined, `note` says why."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int | None = None
    note: str = ""

    @property
    def text(self) -> str:
        """The value for people."""
        return decimal(self.value)

    @property
    def interval(self) -> str:
        """The 95 % interval for people."""
        if self.low is None or self.high is None:
            return NONE
        return f"{decimal(self.low)} to {decimal(self.high)}"

    @property
    def words(self) -> str:
        """The value with its interval, for a sentence."""
        return f"{self.text} ({'no interval' if self.interval == NONE else self.interval})"

    @property
    def width(self) -> float:
        """How wide the interval is; 0 without one."""
        return self.high - self.low if self.low is not None and self.high is not None else 0.0

    @property
    def rests_on_few(self) -> bool:
        """Whether there are too few images for a rate worth drawing."""
        return self.n is not None and self.n < FEWEST

    def overlaps(self, other: Number) -> bool:
        """Whether the two intervals have a point in common; True when one is missing, as then nothing is clear."""
        if self.low is None or self.high is None or other.low is None or other.high is None:
            return True
        return self.low <= other.high and other.low <= self.high


def number(values: Mapping[str, Any] | None, name: str) -> Number:
    """The estimate called `name`, also when the results hold a plain number or nothing under that name."""
    found = (values or {}).get(name)
    if isinstance(found, bool) or found is None:
        return Number()
    if isinstance(found, int | float):
        return Number(float(found))
    if not isinstance(found, Mapping):
        return Number()
    return Number(
        value=_float(found.get("value")),
        low=_float(found.get("low")),
        high=_float(found.get("high")),
        n=int(found["n"]) if isinstance(found.get("n"), int | float) else None,
        note=str(found.get("note") or ""),
    )


def decimal(value: float | None) -> str:
    """One decimal, and a real minus sign."""
    if value is None:
        return NONE
    text = f"{value:.1f}"
    return "0.0" if text == "-0.0" else text.replace("-", "−")


def count(value: int, singular: str, plural: str = "") -> str:
    """`1 image`, `1,204 images`."""
    return f"{value:,} {singular if value == 1 else plural or singular + 's'}"


def _float(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
