"""Measure what workers of Ray add, and check that nothing is lost when they are killed.

    python -m bench.ray [--images 160] [--workers 1 2] [--keep NAME]
    python -m bench.ray --chaos 180 [--protocol lance] [--every 4] [--images 600] [--keep NAME]
    python -m bench.ray --straggler [--images 120] [--keep NAME]

The first form runs the same images of the lab with one worker and with two, each with one thread, and compares images per
second from the moment that all workers are ready, and every stored byte. The second kills a worker process every few seconds,
runs the same images undisturbed, and compares what is stored. The third lets one of two workers run for a twentieth of the
time only, and compares how long the other one takes with it and without: the slow one may do no harm. Exit code 1 if stored
bytes differ, anything is lost or done twice, two workers give less than 1.7 times one, or the slow one holds up the end by
more than an image takes. bench/agreement.py compares a worker with a run in one process, on a GPU too.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import torch
from bench.results import add_keep, command, keep

from counterfoil import protocols, store
from counterfoil.engine.scheduler import CPU_BATCH
from counterfoil.protocols.base import Execution, Progress
from counterfoil.protocols.fmr import FmrSpec
from counterfoil_lab.demo import LANCE

LEAST = 1.7  # times one worker that two should give on two cores
LAB = {"model": "lab:narrow", "data": "lab:wardrobe", "generator": "lab:vqgan", "oracle": "lab:clip"}


def content(run: store.Run) -> list[Any]:
    """All records and the hashes of all images, in an order that does not depend on the chunks."""
    rows: list[Any] = [sorted(map(repr, rows)) for rows in (run.trials, run.predictions(), run.verdicts())]
    return [*rows, sum(run.picture(trial).is_file() for trial in run.trials if trial.image)]


def time_run(spec: FmrSpec, out: Path, workers: int) -> tuple[store.Run, dict[str, float]]:
    """The run; its images per second once it is under way, and the CPU seconds that workers used per image."""
    seen: list[tuple[int, float, float]] = []  # images, time, CPU seconds

    def watch(now: Progress) -> None:
        if not seen or now.done >= now.total or now.done - seen[-1][0] >= 4:
            seen.append((now.done, time.perf_counter(), sum(sum(each.cpu_times()[:2]) for each in _workers())))

    run = protocols.run(spec, out, execution=Execution("ray", workers, threads=1), watch=watch)
    first, last = next(mark for mark in seen if mark[0] >= 8 * workers), seen[-1]
    images = last[0] - first[0]
    return run, {"images/s": images / (last[1] - first[1]), "CPU s per image": (last[2] - first[2]) / images}


def compare(images: int, workers: list[int], budget: int, folder: Path) -> list[dict[str, Any]]:
    """A row per number of workers."""
    spec = protocols.parse({**LAB, "limit": images, "search": {"budget": budget}})
    rows: list[dict[str, Any]] = []
    first: list[Any] = []
    for count in workers:
        run, found = time_run(spec, folder / str(count), count)
        first, rate = first or content(run), found["images/s"]
        base = rows[0]["images/s"] if rows else rate
        rows.append(
            {"workers": count, "threads each": 1, "images": images, "images/s": round(rate, 3), "ratio": round(rate / base, 2),
             "CPU s per image": round(found["CPU s per image"], 3),
             "same bytes": content(run) == first}
        )  # fmt: skip
    return rows


def chaos(spec: Any, seconds: float, every: float, folder: Path) -> list[dict[str, Any]]:
    """Kill a worker every few seconds until the time is up, then let the run end; compare it with one that was left alone."""
    images = spec.limit
    over, killed, luck = threading.Event(), [], random.Random(0)

    def kill() -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until and not over.wait(every):
            if mine := _workers():  # those that still build their parts have nothing to lose
                os.kill(luck.choice(mine).pid, signal.SIGKILL)
                killed.append(time.monotonic())

    killer = threading.Thread(target=kill)
    killer.start()
    told: list[str] = []
    began = time.perf_counter()
    disturbed = protocols.run(spec, folder / "killed", execution=Execution("ray", 2, threads=1), tell=told.append)
    took = time.perf_counter() - began
    over.set()
    killer.join()
    whole = protocols.run(spec, folder / "whole")
    ids = [trial.trial_id for trial in disturbed.trials]
    wanted = {trial.trial_id for trial in whole.trials}
    return [
        {
            "protocol": spec.protocol, "images": images, "kills": len(killed), "every s": every, "seconds": round(took, 1),
            "lost": len(wanted - set(ids)), "twice": len(ids) - len(set(ids)),
            "given up": sum("ended its worker" in line for line in told),
            "same bytes as undisturbed": content(disturbed) == content(whole),
        }
    ]  # fmt: skip


def straggler(images: int, budget: int, folder: Path) -> list[dict[str, Any]]:
    """One worker alone, then one next to a worker that is stopped for nineteen twentieths of the time."""
    spec = protocols.parse({**LAB, "limit": images, "search": {"budget": budget}})
    alone, usual = _time_to_end(spec, folder / "alone", workers=1, slow=False)
    beside, _ = _time_to_end(spec, folder / "beside", workers=2, slow=True)
    same = content(store.open_run(folder / "alone")) == content(store.open_run(folder / "beside"))
    return [
        {"images": images, "alone s": round(alone, 1), "with a worker at a twentieth of the speed s": round(beside, 1),
         "an image is under way for s": round(usual, 1), "held up by s": round(max(beside - alone, 0.0), 1), "same bytes": same}
    ]  # fmt: skip


def _time_to_end(spec: FmrSpec, out: Path, *, workers: int, slow: bool) -> tuple[float, float]:
    """Seconds from the first call to the end, and those that an image takes: it shares a worker with a batch of others."""
    over, seen = threading.Event(), []

    def hold() -> None:
        while not over.wait(0.05):
            if mine := _workers():
                worst = min(mine, key=lambda each: each.pid)
                worst.suspend()
                over.wait(0.95)
                worst.resume()

    def watch(now: Progress) -> None:
        if not seen or now.done > seen[-1][0]:
            seen.append((now.done, time.perf_counter()))

    holder = threading.Thread(target=hold)
    if slow:
        holder.start()
    try:
        protocols.run(spec, out, execution=Execution("ray", workers, threads=1), watch=watch)
    finally:
        over.set()
        if slow:
            holder.join()
    took = seen[-1][1] - seen[0][1]
    return took, took / seen[-1][0] * CPU_BATCH  # a worker on a CPU has a batch of slots


def _workers() -> list[psutil.Process]:
    """Processes of the workers that have built their parts; Ray names them by what they do."""
    titles = {each: _title(each) for each in psutil.Process().children(recursive=True)}
    return [
        each
        for each, title in titles.items()
        if ("ImageWorker" in title or "StageWorker" in title) and not title.endswith((".build", ".__init__"))
    ]


def _title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=160)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--budget", type=int, default=10)
    parser.add_argument("--chaos", type=float, metavar="SECONDS", help="kill workers for this long")
    parser.add_argument("--protocol", choices=("fmr", "lance"), default="fmr", help="of the run whose workers are killed")
    parser.add_argument("--every", type=float, default=4.0, help="seconds between two kills")
    parser.add_argument("--straggler", action="store_true", help="slow one of two workers down")
    add_keep(parser)
    given = parser.parse_args()
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp(prefix="ray-bench-"))
    try:
        if given.chaos:
            fmr = {**LAB, "search": {"budget": given.budget}, "engine": {"chunk_images": 8}}
            spec = protocols.parse({**(fmr if given.protocol == "fmr" else LANCE), "limit": given.images})
            rows = chaos(spec, given.chaos, given.every, folder)
            about = "The lab through two workers of Ray, one of which is killed every few seconds."
            held = not any(row["lost"] or row["twice"] for row in rows) and rows[0]["same bytes as undisturbed"]
        elif given.straggler:
            rows = straggler(given.images, given.budget, folder)
            about = "The lab through one worker of Ray, and through two of which one is stopped for most of the time."
            held = rows[0]["same bytes"] and rows[0]["held up by s"] <= rows[0]["an image is under way for s"]
        else:
            rows = compare(given.images, given.workers, given.budget, folder)
            about = "The lab through workers of Ray with one thread each, from the first images on."
            held = all(row["same bytes"] for row in rows) and rows[-1]["ratio"] >= LEAST * (rows[-1]["workers"] > 1)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for row in rows:
        print("  ".join(f"{name} {value}" for name, value in row.items()))
    if given.keep:
        keep(given.keep, rows, command=command("bench.ray"), about=about)
    sys.exit(0 if held else 1)


if __name__ == "__main__":
    main()
