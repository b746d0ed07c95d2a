"""Images per second of the painter, the editor and the diffusion generator against straightforward ways, in one run.

    python -m bench.diffusion_speed [--device cuda] [--rows "painter; editor"] [--profile] [--tiny] [--keep NAME]

Painter and editor: Stable Diffusion 1.4's architecture at 512 pixels, 50 DDIM steps, guidance 7.5. Generator: the UNet2DModel of
DDPM at 256 pixels, ten levels of guided denoising, the loss a weighted sum of the pixels. All weights are random. Straightforward
are the pipeline call of diffusers, and loops over its modules written from the papers (bench/plain.py).

Editing an image is null-text inversion, without early stop, and five edits with a sweep of five, as LANCE has them by default.
Steps that cost the same are not all made: the fitting is timed for the first few of the 50, the inversion of the straightforward
way for ten of them, its redrawing for one candidate of 25. What is made is scaled to the whole.

Operations are counted by torch's counter for one row of a call, and are those that a way really does: candidates that are still
one image count once. The limit is that of large bf16 matrix products in the same run. Rows are kept as they come.
--rows takes names or parts of them, and runs them in that order. Compiling takes a minute a row; the generator is only compiled
when that row is named.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Callable, Iterable
from typing import Any

import torch
from bench.diffusion_rows import Editing, Generating, Painting, Row, Scale, fused_agreement
from bench.results import add_keep, command, keep
from bench.timing import matmul_limit

from bench import setup as sd

FULL_SIZE = "Painter and editor: Stable Diffusion 1.4's architecture at 512 px, 50 steps; generator: DDPM's at 256 px, ten levels"
COVERS = ["src/counterfoil/parts/fast", "src/counterfoil/parts/editors", "src/counterfoil/parts/painters"]
ANSWERS = "answers: the fused UNet from its own, relative"
ON_REQUEST = ("generator: ours, compiled",)


def rows_of(scale: Scale) -> dict[str, Callable[[], Any]]:
    """Return what can be timed, by name. Networks are made when the first of their rows is."""
    half, single, parts = torch.bfloat16, torch.float32, Lazily(lambda: sd.stable_diffusion(scale.sizes, device=scale.device))
    painting, editing = Lazily(lambda: Painting(scale, parts())), Lazily(lambda: Editing(scale, parts()))
    generating = Lazily(lambda: Generating(scale))
    return {
        ANSWERS: lambda: fused_agreement(parts()["unet"], device=scale.device),
        "painter: diffusers' call, one prompt, float32": lambda: painting().straightforward(1, single),
        "painter: diffusers' call, one prompt, bfloat16": lambda: painting().straightforward(1, half),
        f"painter: diffusers' call, {scale.loop} prompts, bfloat16": lambda: painting().straightforward(scale.loop, half),
        "painter: ours": lambda: painting().painter(compiled=False),
        "painter: ours, compiled": lambda: painting().painter(compiled=True),
        "editor: one at a time, bfloat16": lambda: editing().straightforward(half),
        "editor: ours": lambda: editing().editor(),
        "generator: loop, one image, float32": lambda: generating().straightforward(1),
        f"generator: loop, {scale.loop} images, float32": lambda: generating().straightforward(scale.loop),
        "generator: ours": lambda: generating().generator(compiled=False),
        "generator: ours, compiled": lambda: generating().generator(compiled=True),
    }


class Lazily:
    """Something that is made at its first use and kept."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make, self.made = make, None

    def __call__(self) -> Any:
        if self.made is None:
            self.made = self.make()
        return self.made


def slowest_kernels(work: Callable[[], object]) -> list[Row]:
    """The kernels that take the longest, in milliseconds."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        work()
        torch.cuda.synchronize()
    events = sorted(seen.key_averages(), key=lambda event: -event.self_device_time_total)
    whole = sum(event.self_device_time_total for event in events) / 1e3
    print(f"  {whole:.1f} ms of kernels", flush=True)
    for event in events[:30]:
        print(f"  {event.self_device_time_total / 1e3:9.2f} ms {event.count:6d}  {event.key[:120]}", flush=True)
    return [{"ms": event.self_device_time_total / 1e3, "count": event.count, "kernel": event.key[:80]} for event in events[:30]]


def compare(rows: dict[str, Row], known: Iterable[str], limit: float) -> dict[str, Row]:
    """The rows in their usual order, their share of the limit, and how many times faster they are than the first of a kind."""
    found: dict[str, Row] = {}
    first: dict[str, float] = {}
    for name in [name for name in known if name in rows]:
        row = rows[name]
        if "seconds_per_image" in row:
            seconds = first.setdefault(name.partition(":")[0], row["seconds_per_image"])
            row = {**row, "of_the_limit": row["tflops"] / limit, "times": seconds / row["seconds_per_image"]}
        found[name] = row
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rows", default="all", help="parts of rows' names, separated by semicolons, or all")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--fitted", type=int, default=2, help="steps of the fitting that are timed")
    parser.add_argument("--profile", action="store_true", help="print the longest kernels of the painter")
    parser.add_argument("--tiny", action="store_true", help="tiny networks, to rehearse on a CPU")
    add_keep(parser)
    asked = parser.parse_args()
    scale = Scale(asked.device, sd.FULL, 256, steps=asked.steps, fitted=asked.fitted, inverted=16, loop=16, drawn=32)
    if asked.tiny:
        scale = Scale(asked.device, sd.TINY, 16, steps=4, fitted=1, inverted=2, loop=2, drawn=2)
    known = rows_of(scale)
    names = [name for name in known if name not in ON_REQUEST]
    if asked.rows != "all":
        parts = [part.strip() for part in asked.rows.split(";")]
        wanted = [[part] if part in known else [name for name in known if part in name] for part in parts]
        names = list(dict.fromkeys(name for some in wanted for name in some))
    if not names:
        sys.exit(f"--rows: no row has {asked.rows!r} in its name; there are {'; '.join(known)}")
    limit, rows = matmul_limit(asked.device), {}
    details: dict[str, Any] = {"matmul_tflops": limit, "steps": scale.steps, "fitted_steps": scale.fitted, "profile": {}}
    print(details, flush=True)
    for name in names:
        gc.collect()
        if asked.device == "cuda":
            torch.cuda.empty_cache()
        work = None
        try:
            found = known[name]()
            rows[name], work = found if isinstance(found, tuple) else (found, None)
        except Exception as error:  # the other rows are worth having
            rows[name] = {"error": repr(error)[:300]}
        if work is not None and asked.profile and asked.device == "cuda":
            details["profile"][name] = slowest_kernels(work)
        so_far = compare(rows, known, limit)
        numbers = {key: f"{value:.4g}" for key, value in so_far[name].items() if isinstance(value, int | float)}
        print(f"{name}: {', '.join(f'{key} {value}' for key, value in numbers.items()) or rows[name]['error']}", flush=True)
        if name == ANSWERS:
            details["fused_differs_by"] = rows[name]
        if asked.keep:
            listed = [{"what": row, **found} for row, found in so_far.items() if row != ANSWERS]
            keep(
                asked.keep,
                listed,
                command=command("bench.diffusion_speed"),
                about=about(limit, asked),
                details=details,
                covers=COVERS,
            )


def about(limit: float, asked: argparse.Namespace) -> str:
    """Return what the rows show, in a sentence or two."""
    networks = "Tiny networks, a rehearsal" if asked.tiny else FULL_SIZE
    return f"{networks}; random weights. Large bf16 matrix products reach {limit:.0f} TFLOP/s in the same run."


if __name__ == "__main__":
    main()
