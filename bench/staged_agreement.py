"""Whether it matters how a staged run is worked off: by one process, in pieces, by a worker of Ray.

    python -m bench.staged_agreement [--device cuda] [--protocols lance,imagenet-d] [--images 40] [--without-ray] [--keep NAME]

The lab's LANCE and ImageNet-D runs, in directories of their own, against the first: once more; killed when half of the lines of
its tables are written, and gone on with by the same command; through one worker of Ray. The same pictures must have been made,
each once. On a CPU all lines and pixels must be the same too; elsewhere it is said how many are.
"""

from __future__ import annotations

import argparse
import difflib
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from bench.results import add_keep, checked, command

from counterfoil import protocols
from counterfoil.protocols.ray.execution import Execution
from counterfoil.store import Run
from counterfoil_lab.demo import LANCE as SPEC
from counterfoil_lab.demo import imagenet_d_spec as demo_spec

HERE, RAY = Execution(threads=1), Execution("ray", 1, threads=1)
SHOWN = 4  # lines that differ
LOOKING = 0.02  # seconds between two looks at how far a run is

Way = Callable[[str, Any, Path, int], Run]


def spec_of(protocol: str, asked: argparse.Namespace) -> Any:
    if protocol == "lance":
        return protocols.parse({**SPEC, "device": asked.device, "limit": asked.images})
    return demo_spec(asked.images).model_copy(update={"device": asked.device})


def run(spec: Any, out: Path, execution: Execution = HERE) -> Run:
    return protocols.run(spec, out, execution=execution)


def plain(protocol: str, spec: Any, out: Path, lines: int) -> Run:
    return run(spec, out)


def interrupted(protocol: str, spec: Any, out: Path, lines: int) -> Run:
    """In a process that is killed when half of `lines` are written, and then in this one."""
    process = get_context("spawn").Process(target=run, args=(spec, out))
    process.start()
    while process.is_alive() and 2 * len(lines_of(out)) < lines:
        time.sleep(LOOKING)
    os.kill(process.pid or 0, signal.SIGKILL)
    process.join()
    if process.exitcode != -signal.SIGKILL or not 0 < len(lines_of(out)) < lines:
        sys.exit(f"the run was to be killed half-way: exit code {process.exitcode}, {len(lines_of(out))} of {lines} lines")
    return run(spec, out)


def through_ray(protocol: str, spec: Any, out: Path, lines: int) -> Run:
    return run(spec, out, RAY)


WAYS: dict[str, Way] = {
    "first": plain,
    "again": plain,
    "killed half-way and gone on": interrupted,
    "a worker of Ray": through_ray,
}


def lines_of(out: Path) -> set[tuple[str, str]]:
    """The lines of all tables, each with the table's name."""
    return {(file.name, line) for file in sorted((out / "stages").glob("*.jsonl")) for line in file.read_text().splitlines()}


def _nearest(table: str, line: str, others: set[tuple[str, str]]) -> str:
    """The line of another run that has most in common with one."""
    there = [other for name, other in others if name == table]
    return next(iter(difflib.get_close_matches(line, there, n=1, cutoff=0.0)), "there")


def compared(protocol: str, asked: argparse.Namespace, folder: Path) -> Iterator[tuple[dict[str, Any], str]]:
    """A row a way, and what is wrong with it."""
    spec, first = spec_of(protocol, asked), None
    lines: set[tuple[str, str]] = set()
    for way, work in WAYS.items():
        if asked.without_ray and work is through_ray:
            continue
        made = work(protocol, spec, folder / f"{protocol} {way}", len(lines))
        trials = [(trial.trial_id, trial.image_sha256) for trial in made.trials]
        pictures = dict(trials)
        wrong = "" if len(pictures) == len(trials) else "pictures are there twice"
        row: dict[str, Any] = {"protocol": protocol, "way": way, "pictures": len(pictures)}
        found = lines_of(made.path)
        if first is None:
            first, lines = pictures, found
        else:
            alike = sum(first.get(name) == picture for name, picture in pictures.items())
            row["same pictures"] = round(100 * alike / max(len({*first, *pictures}), 1), 2)
            row["same lines of tables"] = round(100 * len(lines & found) / len(lines), 2)
            for table, line in sorted(found - lines)[:SHOWN]:
                print(f"{protocol}, {way}: in {table} {line}\n  and not {_nearest(table, line, lines - found)}", flush=True)
            if {*pictures} != {*first}:
                wrong = f"{len({*first} - {*pictures})} pictures of the first are lost, {len({*pictures} - {*first})} are new"
            elif asked.device == "cpu" and (pictures != first or found != lines):
                wrong = "not the same bit by bit"
        yield row, wrong and f"{protocol}, {way}: {wrong}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--protocols", default="lance,imagenet-d")
    parser.add_argument("--images", type=int, default=40, help="sources of LANCE, and pictures that ImageNet-D paints")
    parser.add_argument("--without-ray", action="store_true")
    add_keep(parser)
    asked = parser.parse_args()
    torch.set_num_threads(1)  # as a worker of Ray has here
    about = f"Staged runs of the lab on {asked.device}, worked off in several ways; agreement with the first in per cent."
    with tempfile.TemporaryDirectory(prefix="agreement-") as place:
        found = (row for protocol in asked.protocols.split(",") for row in compared(protocol, asked, Path(place)))
        checked(found, asked.keep, command=command("bench.staged_agreement"), about=about)


if __name__ == "__main__":
    main()
