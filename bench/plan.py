"""Time, price and room of runs that no one has made yet, from measured constants: files under bench/results, nothing typed in."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.results import read

from counterfoil.store import layout

SETS = {
    "ImageNet-1k validation": 50_000,
    "ImageNet-21k": 14_197_122,
    "LAION-400M": 400_000_000,
    "LAION-2B": 2_320_000_000,
    "LAION-5B": 5_850_000_000,
}
EDITED = ("ImageNet-1k validation", "ImageNet-21k")
PAIRS = 113 * (468 + 47 + 32)  # the paper's objects with each of its backgrounds, textures and materials
GPUS = (1, 8, 256)


@dataclass(frozen=True)
class Pace:
    """Measured speed of a protocol's costliest part."""

    seconds: float  # an image and GPU
    warm_up: float  # seconds, once a GPU
    source: str


def plan(seconds: float | None, price: float | None) -> tuple[list[dict[str, Any]], str]:
    """A row a protocol, data set and number of GPUs; and what they were computed from."""
    climbing = Pace(seconds, 0.0, "given") if seconds is not None else _climbing()
    editing, painting = _diffusion("editor: ours"), _diffusion("painter: ours")
    runs = [("FMR", name, images, climbing) for name, images in SETS.items()]
    runs += [("LANCE, five edits each", name, SETS[name], editing) for name in EDITED if editing]
    runs += [("ImageNet-D, one image per prompt", "the paper's prompts", PAIRS, painting)] if painting else []
    (size, where), rate = _bytes_per_image(), _measurement("scale", "finished images per second")
    rows = [
        {
            "protocol": protocol,
            "data": name,
            "images": images,
            "GPUs": gpus,
            "time": duration(pace.warm_up + images * pace.seconds / gpus),
            **({"price": round((pace.warm_up * gpus + images * pace.seconds) / 3600 * price)} if price is not None else {}),
            "images/s": round(gpus / pace.seconds, 1 if pace.seconds < 1 else 3),
            **({"MB/s to store": round(gpus / pace.seconds * size / 1e6, 1)} if size and protocol == "FMR" else {}),
            **({"of the driver's rate, %": round(100 * gpus / pace.seconds / rate, 1)} if rate and protocol == "FMR" else {}),
        }
        for protocol, name, images, pace in runs
        for gpus in GPUS
    ]
    said = [_in_words("FMR", climbing), *([_in_words("LANCE's editor", editing)] if editing else [])]
    said += [_in_words("ImageNet-D's painter", painting)] if painting else []
    said += [f"an FMR image takes {size / 1e3:,.0f} kB of disk ({where})"] if size else []
    said += [f"driver and store pass on {rate:,.0f} images/s with tiny images (scale)"] if rate else []
    said += [f"{price:g} per GPU and hour"] if price is not None else []
    return rows, f"{'; '.join(said)}."


def room() -> tuple[list[dict[str, Any]], str]:
    """A row a data set: what an FMR run over it needs next to GPUs; and what that was computed from."""
    size, where = _bytes_per_image()
    if size is None:
        sys.exit(
            "no 'bytes on the disk an image' in bench/results/scale_pictures.json; run bench.scale with --keep scale_pictures"
        )
    images = _needed("scale", "images")
    quarter, end = (_needed("scale", f"MiB of the driver {when}") for when in ("after a quarter", "at the end"))
    scan = _needed("scale", "seconds to list what is left") / images
    growth = (end - quarter) * 2**20 / (0.75 * images)
    rows = [
        {
            "data": name,
            "images": count,
            "disk, TB": round(count * size / 1e12, 2),
            "driver memory, GB": round((end * 2**20 + growth * max(count - images, 0)) / 1e9, 1),
            "parts": -(-count // layout(count, at_least=64)["chunk_images"]),
            "resume scan": duration(count * scan),
        }
        for name, count in SETS.items()
    ]
    about = (
        f"{size:,.0f} bytes of disk an image ({where}); {end:,.0f} MiB of the driver at {images:,.0f} images and "
        f"{growth:.1f} bytes more for each beyond them, {1e6 * scan:.1f} µs an image to list what is left (scale)."
    )
    return rows, about


def _climbing() -> Pace:
    """The whole run with its control arm where that was measured on a GPU; else the engine alone, without control and store."""
    alone = _best("fmr_speed", "seconds_per_image", lambda row: str(row["what"]).startswith("engine"))
    whole = _best("fmr_whole", "seconds per image", lambda row: row["what"] == "whole run" and row["control"] == "path")
    if alone and whole:
        return Pace(whole[0], alone[1], "fmr_whole, control arm and store included; warming up as in fmr_speed")
    if alone:
        return Pace(*alone, "fmr_speed, the engine alone, neither control arm nor store")
    sys.exit("no measured seconds per image in bench/results/fmr_speed.json; run bench/fmr_speed.py, or give --seconds-per-image")


def _bytes_per_image() -> tuple[float | None, str]:
    """Bytes on the disk an image, of a whole run where one was timed on a GPU, else of the simulation; and where that is from."""
    content = read("fmr_whole")
    rows = content["rows"] if content and "gpu" in content["hardware"] else []
    whole = next(
        (float(row["MB stored per image"]) * 1e6 for row in rows if row.get("control") == "path" and "MB stored an image" in row),
        None,
    )
    return (whole, "fmr_whole") if whole else (_measurement("scale_pictures", "bytes on the disk an image"), "scale_pictures")


def _diffusion(name: str) -> Pace | None:
    found = _best("diffusion_speed", "seconds_per_image", lambda row: str(row["what"]).startswith(name))
    return Pace(*found, "diffusion_speed") if found else None


def _best(name: str, column: str, wanted: Callable[[dict[str, Any]], bool]) -> tuple[float, float] | None:
    """The least seconds of the rows that are wanted, and the seconds to warm up; only what a GPU took counts."""
    content = read(name)
    if not content or "gpu" not in content["hardware"]:
        return None
    found = [row for row in content["rows"] if wanted(row) and column in row]
    row = min(found, key=lambda each: float(each[column]), default=None)
    return (float(row[column]), float(row.get("warm_up_seconds", 0.0))) if row else None


def _measurement(name: str, what: str) -> float | None:
    """A value of the simulation, by how its name begins."""
    content = read(name)
    rows = content["rows"] if content else []
    return next((float(row["value"]) for row in rows if str(row.get("what", "")).startswith(what)), None)


def _needed(name: str, what: str) -> float:
    found = _measurement(name, what)
    if found is None:
        sys.exit(f"no '{what}' in bench/results/{name}.json; run bench.scale with --keep {name}")
    return found


def _in_words(who: str, pace: Pace) -> str:
    warmed = f", {pace.warm_up:.3g} to warm up" if pace.warm_up else ""
    return f"{who}: {pace.seconds:.4g} seconds per image and GPU{warmed} ({pace.source})"


def duration(seconds: float) -> str:
    """A time as people say it."""
    for size, unit in ((365.25 * 86400, "years"), (86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:.1f} seconds" if seconds < 10 else f"{seconds:.0f} seconds"
