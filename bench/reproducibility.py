"""Check that a run's results do not depend on how it is processed: again, with other slots, after an interruption, on Ray.

    python -m bench.reproducibility [--device cuda] [--protocols fmr,lance,imagenet-d,gradients] [--images 128]
                                    [--precisions "float32,bf16,bf16 compiled"] [--without-ray] [--keep NAME]

The lab's runs, each in a directory of its own, against the first: again; for FMR with half as many slots; killed when half of
it is stored, and resumed by the same command; through one worker of Ray. All batches have the same size, as results depend on
that in their last digits; what is compiled is compiled again each time. Every image must be there once. In float32 on a CPU
everything must be the same, bit by bit, tables of stages too; elsewhere every verdict, outcome and number of steps, and the
number of identical images is printed. `gradients` asks timm models with random weights for the same gradients repeatedly.
Exit code 1 if anything differs that must not.
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
import torch.nn.functional as F
from bench.precision import Outcome, agreement, difference, numbers
from bench.results import add_keep, command, print_checked
from bench.setup import clear
from torch import Tensor

from counterfoil import protocols, store
from counterfoil.engine.fast import Acceleration
from counterfoil.engine.scheduler import CPU_BATCH
from counterfoil.metrics.observations import YES
from counterfoil.protocols.base import Execution
from counterfoil.protocols.fmr.outcomes import read_outcomes
from counterfoil_lab.demo import LANCE, imagenet_d_spec

GPU_BATCH = 64
HERE, RAY = Execution(threads=1), Execution("ray", 1, threads=1)
SHOWN = 4  # lines that differ
POLL = 0.02  # seconds between two looks at how far a run is
MODELS = ("resnet50", "convnext_tiny", "efficientnet_b0", "densenet121", "vit_base_patch16_224", "swin_tiny_patch4_window7_224")
TIMES = 6

Row = tuple[dict[str, Any], str]
"""A row of the result, and what is wrong with it."""
Variant = Callable[[Any, Path, int], store.Run]


def plain(spec: Any, out: Path, lines: int) -> store.Run:
    return protocols.run(spec, out, execution=HERE)


def fewer_slots(spec: Any, out: Path, lines: int) -> store.Run:
    engine = spec.engine.model_copy(update={"slots": spec.engine.batch_size})
    return protocols.run(spec.model_copy(update={"engine": engine}), out, execution=HERE)


def interrupt(spec: Any, out: Path, lines: int) -> store.Run:
    """In a process that is killed when half as much is stored as the first run has, and then in this one."""
    process = get_context("spawn").Process(target=plain, args=(spec, out, lines))
    process.start()
    while process.is_alive() and 2 * len(stored_lines(out)) < lines:
        time.sleep(POLL)
    os.kill(process.pid or 0, signal.SIGKILL)
    process.join()
    left = len(stored_lines(out))
    if process.exitcode != -signal.SIGKILL or not 0 < left < lines:
        sys.exit(f"the run was to be killed half-way: exit code {process.exitcode}, {left} of {lines} stored")
    return protocols.run(spec, out, execution=HERE)


def through_ray(spec: Any, out: Path, lines: int) -> store.Run:
    return protocols.run(spec, out, execution=RAY)


VARIANTS: dict[str, Variant] = {
    "first": plain,
    "again": plain,
    "half the slots": fewer_slots,
    "killed half-way and resumed": interrupt,
    "a worker of Ray": through_ray,
}


def stored_lines(out: Path) -> set[tuple[str, str]]:
    """The lines of all tables of stages, or the trials of a run without any."""
    if (out / "stages").is_dir():
        return {(file.name, line) for file in sorted((out / "stages").glob("*.jsonl")) for line in file.read_text().splitlines()}
    try:
        return {("trials", trial.trial_id) for trial in store.open_run(out).trials}
    except Exception:  # not begun yet
        return set()


def spec_of(protocol: str, precision: str, asked: argparse.Namespace) -> Any:
    if protocol == "lance":
        return protocols.parse({**LANCE, "device": asked.device, "limit": asked.images})
    if protocol == "imagenet-d":
        return imagenet_d_spec(asked.images).model_copy(update={"device": asked.device})
    precision, _, compiled = precision.partition(" ")
    batch = CPU_BATCH if asked.device == "cpu" else GPU_BATCH
    engine = {"precision": precision, "compile": bool(compiled), "batch_size": batch, "slots": 2 * batch}
    return protocols.parse(
        {
            "model": "lab:narrow",
            "data": {"name": "lab:wardrobe", "count": asked.images},
            "generator": "lab:vqgan",
            "oracle": "lab:clip",
            "device": asked.device,
            "limit": asked.images,
            "search": {"budget": asked.budget},
            "engine": {**engine, "chunk_images": max(asked.images // 16, 1)},
        }
    )


def outcomes_of(run: store.Run) -> dict[str, Outcome]:
    """The outcome of every image of an FMR run."""
    found = read_outcomes(run)
    right = (found.validated == YES) & (found.made_correct == YES)
    columns = [found.clean_correct == YES, found.validated == YES, right, found.steps]
    rows = zip(found.keys.tolist(), *(column.tolist() for column in columns), strict=True)
    return {str(key): Outcome(*rest) for key, *rest in rows}


def compare(protocol: str, precision: str, asked: argparse.Namespace, folder: Path) -> Iterator[Row]:
    """A row for every variant of a run."""
    spec, exact = spec_of(protocol, precision, asked), asked.device == "cpu" and precision == "float32"
    first: dict[str, str] = {}
    outcomes: dict[str, Outcome] = {}
    lines: set[tuple[str, str]] = set()
    for name, variant in VARIANTS.items():
        if (asked.without_ray and variant is through_ray) or (protocol != "fmr" and variant is fewer_slots):
            continue
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / f"{precision} {name} compiled".replace(" ", "_"))
        run = variant(spec, folder / f"{protocol} {precision} {name}", len(lines))
        trials = [(trial.trial_id, trial.image_sha256) for trial in run.trials]
        images, found = dict(trials), stored_lines(run.path)
        row: dict[str, Any] = {"protocol": protocol, "precision": precision, "variant": name, "images": len(images)}
        wrong = "" if len(images) == len(trials) else "images are stored twice"
        ends = outcomes_of(run) if protocol == "fmr" else {}
        row |= {key: value for key, value in (numbers(ends) if ends else {}).items() if key in ("SA", "FMR", "VR")}
        if not first:
            first, outcomes, lines = images, ends, found
        else:
            same = sum(first.get(key) == image for key, image in images.items())
            row["same images, %"] = round(100 * same / max(len({*first, *images}), 1), 2)
            row["same lines, %"] = round(100 * len(lines & found) / len(lines), 2)
            if ends and not wrong:
                row |= difference([ends], [outcomes])
                row |= {f"same {key}": share for key, share in agreement(ends, outcomes).items()}
            wrong = wrong or problem(first, images, lines, found, exact=exact) or apart(ends, outcomes)
        yield row, wrong and f"{protocol} {precision}, {name}: {wrong}"


def problem(
    first: dict[str, str], images: dict[str, str], lines: set[tuple[str, str]], found: set[tuple[str, str]], *, exact: bool
) -> str:
    """Images that are lost or new and, where all must be the same, lines that differ."""
    if {*images} != {*first}:
        return f"{len({*first} - {*images})} images of the first are lost, {len({*images} - {*first})} are new"
    if not exact or (images == first and found == lines):
        return ""
    for table, line in sorted(found - lines)[:SHOWN]:
        near = difflib.get_close_matches(line, [other for name, other in lines - found if name == table], n=1, cutoff=0.0)
        print(f"in {table} {line}\n  and not {next(iter(near), 'there')}", flush=True)
    return "not the same bit by bit"


def apart(found: dict[str, Outcome], exact: dict[str, Outcome]) -> str:
    """Measure how many images ended otherwise, if any."""
    others = sum(found[name] != each for name, each in exact.items())
    return f"{others} of {len(exact)} images ended otherwise" if others else ""


def gradients(name: str, precision: Any, asked: argparse.Namespace) -> Row:
    """Measure how many different answers and gradients a model gives; something else is computed between."""
    import timm

    clear(asked.device)
    torch.manual_seed(0)
    network, chance = timm.create_model(name, pretrained=False).eval().to(asked.device), torch.Generator().manual_seed(1)
    for weight in network.parameters():
        if weight.dim() > 1 and not weight.any():  # a head of zeros would have a gradient of zeros
            torch.nn.init.normal_(weight, std=0.02)
    side, how = network.default_cfg["input_size"][-1], Acceleration(precision)

    def answer(count: int) -> tuple[Tensor, Tensor]:
        images = torch.rand(count, 3, side, side, generator=chance).to(asked.device).requires_grad_()
        with how.computing(images.device), how.deterministic_attention():
            logits = network(images).float()
            (gradient,) = torch.autograd.grad(F.cross_entropy(logits, torch.zeros_like(logits[:, 0]).long()), images)
        return logits.detach(), gradient

    seen = []
    for number in range(TIMES):
        answer(number + 1)
        chance.manual_seed(2)
        seen.append(answer(4 if asked.device == "cpu" else 64))
    different = [distinct(kind) for kind in zip(*seen, strict=True)]
    row = {"protocol": "gradients", "precision": precision, "variant": name, "answers": different[0], "gradients": different[1]}
    return row, "" if different == [1, 1] else f"{name} in {precision} is not the same every time"


def distinct(tensors: tuple[Tensor, ...]) -> int:
    return sum(not any(torch.equal(each, other) for other in tensors[:at]) for at, each in enumerate(tensors))


def rows(asked: argparse.Namespace, folder: Path) -> Iterator[Row]:
    """All rows that are asked for."""
    for protocol in asked.protocols.split(","):
        for precision in asked.precisions.split(",") if protocol in ("fmr", "gradients") else ["float32"]:
            if protocol == "gradients":
                yield from (gradients(name, precision.partition(" ")[0], asked) for name in asked.models.split(","))
            else:
                yield from compare(protocol, precision, asked, folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--protocols", default="fmr", help="of fmr, lance, imagenet-d, gradients")
    parser.add_argument("--images", type=int, default=128, help="sources of FMR and LANCE, and images that ImageNet-D paints")
    parser.add_argument("--budget", type=int, default=10)
    parser.add_argument("--precisions", default="float32", help="of FMR and gradients")
    parser.add_argument("--models", default=",".join(MODELS), help="of gradients")
    parser.add_argument("--without-ray", action="store_true")
    add_keep(parser)
    asked = parser.parse_args()
    torch.set_num_threads(1)  # as a worker of Ray has here
    about = f"Runs of the lab on {asked.device}, processed in several ways and compared with the first; agreement in per cent."
    with tempfile.TemporaryDirectory(prefix="reproducibility-") as place:
        print_checked(rows(asked, Path(place)), asked.keep, command=command("bench.reproducibility"), about=about)


if __name__ == "__main__":
    main()
