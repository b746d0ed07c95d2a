"""Time and price of runs that nobody has made yet, from measured constants."""

from __future__ import annotations

import sys
from typing import Any

from bench.results import read

SETS = {
    "ImageNet-1k validation": 50_000,
    "ImageNet-21k": 14_197_122,
    "LAION-400M": 400_000_000,
    "LAION-2B": 2_320_000_000,
    "LAION-5B": 5_850_000_000,
}
GPUS = (1, 8, 256)
ENGINE = "fmr_speed"


def plan(seconds: float | None, price: float | None) -> tuple[list[dict[str, Any]], str]:
    """A row a data set and number of GPUs; and what they were worked out from."""
    source, warm_up = "given", 0.0
    if seconds is None:
        seconds, warm_up, source = _measured()
    rate = _store_rate()
    rows = [
        {
            "data": name,
            "images": images,
            "GPUs": gpus,
            "time": _spoken(warm_up + images * seconds / gpus),
            **({"price": round((warm_up * gpus + images * seconds) / 3600 * price)} if price is not None else {}),
            "images/s": round(gpus / seconds, 1),
            **({"of what the store takes, %": round(100 * gpus / seconds / rate, 1)} if rate else {}),
        }
        for name, images in SETS.items()
        for gpus in GPUS
    ]
    stored = f"; the store takes {rate:,.0f} images/s (bench/results/scale.json)" if rate else ""
    warmed = f", {warm_up:g} seconds to warm up" if warm_up else ""
    priced = f", {price:g} a GPU and hour" if price is not None else ""
    return rows, f"{seconds:g} seconds an image and GPU{warmed} ({source}){priced}{stored}."


def _measured() -> tuple[float, float, str]:
    """Seconds an image and to warm up of the engine on a GPU, the best row of its benchmark."""
    content = read(ENGINE) or {}
    rows = content.get("rows", {})
    found = {
        name: row["seconds_an_image"] for name, row in rows.items() if name.startswith("engine") and "seconds_an_image" in row
    }
    if not found or content["about"].get("small"):
        sys.exit(
            f"no measured seconds an image in bench/results/{ENGINE}.json; run bench/{ENGINE}.py, or give --seconds-per-image"
        )
    best = min(found, key=lambda name: float(found[name]))
    return (
        float(found[best]),
        float(rows[best].get("warm_up_seconds", 0)),
        f"bench/results/{ENGINE}.json, {best}, {content['about']['device']}",
    )


def _store_rate() -> float | None:
    content = read("scale")
    rows = content["rows"] if content else []
    return next((float(row["value"]) for row in rows if row.get("what") == "finished images a second through the store"), None)


def _spoken(seconds: float) -> str:
    for size, unit in ((365.25 * 86400, "years"), (86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:.0f} seconds"
