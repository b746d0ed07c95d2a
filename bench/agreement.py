"""Whether it matters how a run is worked off: by slots, by an executor, after an interruption.

    python -m bench.agreement [--device cuda] [--images 2048] [--precisions "float32,bf16,bf16 compiled"] [--without-ray]
                              [--keep NAME]

The same FMR run over the lab, in stores of their own, against the first: once more; with half as many slots; killed when half of
its images are out, and gone on with by the same command; through one worker of Ray. All tiles have the same size, as results
depend on that in their last digits; what is compiled is compiled anew each time. Every image must be there once. In float32 on a
CPU everything must be the same, bit by bit; elsewhere every verdict, outcome and number of steps, and it is said how many
pictures are. Otherwise the exit code is 1.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from bench.precision import Outcome, agreement, difference, numbers
from bench.results import add_keep, checked, command

from counterfoil import protocols, store
from counterfoil.engine.scheduler import CPU_BATCH
from counterfoil.metrics.answers import YES
from counterfoil.protocols.base import Progress
from counterfoil.protocols.fmr.results import read_outcomes
from counterfoil.protocols.fmr.spec import FmrSpec
from counterfoil.protocols.ray.execution import Execution

GPU_BATCH = 64
HERE, RAY = Execution(threads=1), Execution("ray", 1, threads=1)

Way = Callable[[FmrSpec, Path], store.Run]


def plain(spec: FmrSpec, out: Path) -> store.Run:
    return protocols.run(spec, out, execution=HERE)


def fewer_slots(spec: FmrSpec, out: Path) -> store.Run:
    engine = spec.engine.model_copy(update={"slots": spec.engine.batch_size})
    return protocols.run(spec.model_copy(update={"engine": engine}), out, execution=HERE)


def interrupted(spec: FmrSpec, out: Path) -> store.Run:
    """In a process that is killed half-way, and then in this one."""
    process = get_context("spawn").Process(target=_die_half_way, args=(spec, out))
    process.start()
    process.join()
    left = len({trial.image_id for trial in store.open_run(out).trials})
    if process.exitcode != -signal.SIGKILL or not 0 < left < spec.limit:
        sys.exit(f"the run was to be killed half-way: exit code {process.exitcode}, {left} of {spec.limit} images stored")
    return protocols.run(spec, out, execution=HERE)


def _die_half_way(spec: FmrSpec, out: Path) -> None:
    def watch(now: Progress) -> None:
        if 2 * now.done >= now.total:
            os.kill(os.getpid(), signal.SIGKILL)

    protocols.run(spec, out, execution=HERE, watch=watch)


def through_ray(spec: FmrSpec, out: Path) -> store.Run:
    return protocols.run(spec, out, execution=RAY)


WAYS: dict[str, Way] = {
    "first": plain,
    "again": plain,
    "half the slots": fewer_slots,
    "killed half-way and gone on": interrupted,
    "a worker of Ray": through_ray,
}


def spec_of(precision: str, asked: argparse.Namespace) -> FmrSpec:
    numbers, _, compiled = precision.partition(" ")
    tile = CPU_BATCH if asked.device == "cpu" else GPU_BATCH
    return protocols.parse(
        {
            "model": f"lab:{asked.model}",
            "data": {"name": "lab:wardrobe", "count": asked.images},
            "generator": f"lab:{asked.generator}",
            "oracle": "lab:clip",
            "device": asked.device,
            "limit": asked.images,
            "search": {"budget": asked.budget},
            "engine": {
                "precision": numbers,
                "compile": bool(compiled),
                "batch_size": tile,
                "slots": 2 * tile,
                "chunk_images": max(asked.images // 16, 1),
            },
        }
    )


def found_in(run: store.Run) -> tuple[dict[str, Outcome], dict[str, str]]:
    """What became of every image, and the hashes of all pictures."""
    said = read_outcomes(run)
    columns = [said.clean_correct == YES, said.validated == YES, (said.validated == YES) & (said.made_correct == YES), said.steps]
    rows = zip(said.keys.tolist(), *(column.tolist() for column in columns), strict=True)
    return {str(key): Outcome(*rest) for key, *rest in rows}, {trial.trial_id: trial.image_sha256 for trial in run.trials}


def compared(precision: str, asked: argparse.Namespace, folder: Path) -> Iterator[tuple[dict[str, Any], str]]:
    """A row a way, and what is wrong with it."""
    spec = spec_of(precision, asked)
    first: tuple[dict[str, Outcome], dict[str, str]] | None = None
    for way, work in WAYS.items():
        if asked.without_ray and work is through_ray:
            continue
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / f"{precision} {way} compiled".replace(" ", "_"))
        run = work(spec, folder / f"{precision} {way}")
        wrong = incomplete(run, asked.images)
        outcomes, pictures = found = found_in(run)
        row: dict[str, Any] = {"precision": precision, "way": way, "images": len(outcomes)}
        row |= {name: numbers(outcomes)[name] for name in ("SA", "FMR", "VR")}
        first = first or found
        if not wrong and way != "first":
            row |= difference([outcomes], [first[0]])
            row |= {f"same {key}": share for key, share in agreement(outcomes, first[0]).items()}
            alike = sum(pictures[name] == each for name, each in first[1].items())
            row["same pictures"] = round(100 * alike / len(pictures), 2)
            if asked.device == "cpu" and precision == "float32":
                wrong = "" if found == first else "not the same bit by bit"
            else:
                wrong = apart(outcomes, first[0])
        yield row, wrong and f"{precision}, {way}: {wrong}"


def incomplete(run: store.Run, images: int) -> str:
    """What is lost, or there twice."""
    ids = [trial.image_id for trial in run.trials if trial.arm == "guided"]
    return "" if len(ids) == len({*ids}) == images else f"{len(ids)} images, {len({*ids})} of them different, instead of {images}"


def apart(found: dict[str, Outcome], exact: dict[str, Outcome]) -> str:
    """How many images ended otherwise, if any."""
    others = sum(found[name] != each for name, each in exact.items())
    return f"{others} of {len(exact)} images ended otherwise" if others else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--images", type=int, default=128)
    parser.add_argument("--budget", type=int, default=10)
    parser.add_argument("--model", default="narrow")
    parser.add_argument("--generator", default="vqgan")
    parser.add_argument("--precisions", default="float32")
    parser.add_argument("--without-ray", action="store_true")
    add_keep(parser)
    asked = parser.parse_args()
    torch.set_num_threads(1)  # as a worker of Ray has here
    about = (
        f"FMR of lab:{asked.model} in lab:{asked.generator} on {asked.device}, {asked.budget} steps, worked off in several ways "
        "and compared with the first; differences in points, agreement in per cent of images."
    )
    with tempfile.TemporaryDirectory(prefix="agreement-") as place:
        found = (row for precision in asked.precisions.split(",") for row in compared(precision, asked, Path(place)))
        checked(found, asked.keep, command=command("bench.agreement"), about=about)


if __name__ == "__main__":
    main()
