"""What a mask saves on this machine: climbs with the whole decoder and with a window of it, in turn.

    python -m bench.sparse [MASK] [--generators lab:vqgan lab:kl] [--windows 12 11 8] [--device cpu] [--keep NAME]
    python -m bench.sparse --full-size [--windows 11 8] [--device cuda] [--iterations 50] [--rounds 2] [--keep NAME]

The first form times steps part by part on the lab, with a mask that `counterfoil study sparse` fitted or, without one, with
squares of so many of the latent's 16 cells a side (11: 47 % of the picture); the study says what becomes of FMR. The second
times whole climbs in the engine, as `counterfoil run` has them on that device: on a GPU in bf16, with fused layers and a recorded
step. Its networks are those of bench/fmr_setup.py. `--small` takes tiny ones, to rehearse on a CPU.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from bench.fmr_setup import Parts, jobs, parts
from bench.results import add_keep, command, keep
from torch import Tensor

from counterfoil.core.spec import EngineSpec, SearchSpec
from counterfoil.engine.scheduler import Engine
from counterfoil.parts import registry
from counterfoil.parts.contracts import Generator, State
from counterfoil.parts.fast.generators import hastened
from counterfoil.parts.fast.graphs import Recorded
from counterfoil.parts.fast.settings import Acceleration
from counterfoil.parts.generators.sparse import Mask, SparseGenerator, WindowedGenerator, load, masked
from counterfoil.studies.sparse_fit.saving import PARTS, Saving, in_turn, measure

WINDOWS = [12, 11, 8]
Rows = list[dict[str, Any]]


def lab(asked: argparse.Namespace) -> Rows:
    """Steps of the lab's generators, part by part."""
    if asked.device == "cpu":
        torch.set_num_threads(1)
    found: Rows = []
    model = registry.create("model", asked.model).to(asked.device)
    for name in asked.generators:
        generator = registry.create("generator", name).to(asked.device)
        data = registry.create("dataset", "lab:wardrobe", {"count": asked.rows})
        oracle = registry.create("oracle", asked.oracle).to(asked.device).bind(data.classes)
        images = torch.stack([data.load(sample, generator.size or 64) for sample in data]).to(asked.device)
        masks = [load(asked.mask)] if asked.mask else [_square(generator, images[:1], side) for side in asked.windows]
        for mask in masks:
            sparse = masked(generator, mask)
            saving = measure(sparse, model, images, oracle=oracle, rounds=asked.rounds)
            found.append({"generator": name, **_figures(sparse, saving)})
            print("\n".join(f"{key}: {value}" for key, value in found[-1].items()), end="\n\n", flush=True)
    return found


def _figures(sparse: SparseGenerator, saving: Saving) -> dict[str, Any]:
    """One mask's figures, a value a column."""
    window = f"{100 * sparse.share:.0f} %" if isinstance(sparse, WindowedGenerator) else "none"
    told: dict[str, Any] = {"window": window, "held still %": sparse.mask.sparsity}
    spans = {"step": saving.step, "start and 10 steps": saving.ratio(10), "start and 50 steps": saving.ratio(50)}
    for name, (low, middle, high) in spans.items():
        told |= {f"{name}, masked / whole": middle, f"{name}, quartiles": f"{low:.3f} to {high:.3f}"}
    for place, part in enumerate(PARTS):
        whole, less = (1000 * float(np.median(rows[:, place])) for rows in (saving.dense, saving.sparse))
        told[f"{part}, ms whole and masked"] = f"{whole:.1f} and {less:.1f}"
    return {**told, "PSNR to the whole decoder, dB": float(np.median(saving.psnr))}


def full_size(asked: argparse.Namespace, write: Any) -> None:
    """Climbs in the engine with the paper's networks, all of them random; `write` is told the rows as they come."""
    given = parts(asked.device, small=asked.small)
    picture = jobs(1, given.size)[0].image[None].to(asked.device)
    ways: dict[str, Generator] = {"whole": given.generator}
    for side in asked.windows:
        ways[f"window of {side} × {side} cells"] = WindowedGenerator(given.generator, _square(given.generator, picture, side))
    differs = {name: agreement(way, picture) for name, way in ways.items() if isinstance(way, WindowedGenerator)}
    print(f"fused windows differ from the network's own by {differs}", flush=True)
    engines = {name: engine_of(given, way, asked) for name, way in ways.items()}
    work, seconds = jobs(asked.slots, given.size), {name: list[float]() for name in ways}
    warm = dict(zip(engines, next(in_turn([*engines.values()], work, 1)), strict=True))
    print(f"warming up took { ({name: round(each, 1) for name, each in warm.items()}) } seconds", flush=True)
    for engine in engines.values():
        engine.search = SearchSpec(budget=asked.iterations, control=False)
    for round_ in in_turn([*engines.values()], work, asked.rounds):
        for name, each in zip(engines, round_, strict=True):
            seconds[name].append(each)
        rows = [_row(name, seconds, asked, way=ways[name], engine=engines[name]) for name in ways]
        print("\n".join(str(row) for row in rows), end="\n\n", flush=True)
        write(rows, {"warm_up_seconds": warm, "fused_differs_by": differs, "seconds": seconds})


def _row(name: str, seconds: dict[str, list[float]], asked: argparse.Namespace, *, way: Any, engine: Engine) -> dict[str, Any]:
    ratios = np.array(seconds[name]) / np.array(seconds["whole"])
    a_climb = float(np.median(seconds[name])) / asked.slots
    return {
        "decodes": name,
        "share of the picture": getattr(way, "share", 1.0),
        "seconds an image": a_climb,
        "masked / whole": float(np.median(ratios)),
        "least": float(ratios.min()),
        "most": float(ratios.max()),
        "iterations": asked.iterations,
        "images": asked.slots,
        "rounds": len(ratios),
        "fused": _fused(engine),
        "recorded": isinstance(engine.ascent._climb, Recorded) and engine.ascent._climb.graph is not None,
    }


def _fused(engine: Engine) -> bool:
    """Whether fused layers decode, and did not give way to the network's own."""
    generator = engine.ascent.generator
    return engine.ascent.fused and (
        not isinstance(generator, WindowedGenerator) or getattr(generator.submodel, "fast", None) is not None
    )


def engine_of(given: Parts, generator: Generator, asked: argparse.Namespace) -> Engine:
    """An engine as a run would have it, but for the compiler; short, to warm up."""
    layout = EngineSpec(slots=asked.slots, tile=min(64, asked.slots), precision="bf16" if asked.device == "cuda" else "float32")
    rehearsed = None if asked.device == "cuda" else Acceleration(fused=True)
    return Engine(
        given.model, generator, given.oracle, columns=list(range(1000)), search=SearchSpec(budget=3, control=False),
        layout=layout, device=asked.device, acceleration=rehearsed,
    )  # fmt: skip


def agreement(windowed: WindowedGenerator, picture: Tensor) -> dict[str, float]:
    """How far fused windows and their gradients are from those of the network's own layers in float32, one step away."""
    zeros = torch.zeros(1, dtype=torch.long, device=picture.device)
    answers: dict[str, tuple[Tensor, Tensor]] = {}
    with Acceleration().numbers(picture.device):
        state = windowed.start(picture, zeros, zeros)
        ways: dict[str, Any] = {"": windowed}
        ways |= {name: hastened(windowed, kind) for name, kind in (("float32", torch.float32), ("bf16", torch.bfloat16))}
        for name, way in ways.items():
            whole, notes = way.submodel.record(state["codes"])
            answers[name] = _moved(way, {**state, "picture": whole, "surroundings": notes})
    exact = answers.pop("")
    return {
        f"{name} {what}": float((found - wanted).norm() / wanted.norm())
        for name, both in answers.items()
        for what, found, wanted in zip(("pictures", "gradients"), both, exact, strict=True)
    }


def _moved(way: WindowedGenerator, state: State) -> tuple[Tensor, Tensor]:
    chance = torch.Generator().manual_seed(0)
    kept = state["kept"] + 0.1 * torch.randn(state["kept"].shape, generator=chance).to(state["kept"].device)
    leaf = kept.requires_grad_()
    drawn = way.render({**state, "kept": leaf})
    weights = torch.linspace(-1, 1, drawn.numel(), device=drawn.device).view_as(drawn)
    return drawn.detach(), torch.autograd.grad((drawn * weights).sum(), leaf)[0]


def _square(generator: Generator, picture: Tensor, side: int) -> Mask:
    """A square in the middle of the latent."""
    zeros = torch.zeros(1, dtype=torch.long, device=picture.device)
    kept = torch.zeros(generator.start(picture, zeros, zeros)["latent"].shape[1:], dtype=torch.bool)
    top, left = ((cells - side) // 2 for cells in kept.shape[1:])
    kept[:, top : top + side, left : left + side] = True
    return Mask(kept)


def arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mask", type=Path, nargs="?")
    parser.add_argument("--full-size", action="store_true")
    parser.add_argument("--windows", type=int, nargs="+", default=WINDOWS, help="cells a side")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--generators", nargs="+", default=["lab:vqgan", "lab:kl"])
    parser.add_argument("--model", default="lab:narrow")
    parser.add_argument("--oracle", default="lab:clip")
    parser.add_argument("--rows", type=int, default=8, help="pictures of the lab")
    parser.add_argument("--iterations", type=int, default=50, help="of a climb, with --full-size")
    parser.add_argument("--slots", type=int, default=128, help="images of a timed run, with --full-size")
    parser.add_argument("--small", action="store_true", help="tiny networks, to rehearse --full-size")
    add_keep(parser)
    asked = parser.parse_args()
    if asked.full_size and asked.mask:
        sys.exit("--full-size takes squares (--windows) and no mask, as its networks are random; leave one of the two out")
    return asked


def main() -> None:
    """Measure and print."""
    logging.basicConfig(level=logging.WARNING)  # what falls back says so
    asked, began = arguments(), time.perf_counter()
    if not asked.full_size:
        about = (
            f"A guided step of {asked.rows} pictures of the lab, model {asked.model}, oracle {asked.oracle}, with the whole "
            f"decoder and with a window, {asked.rounds} of each in turn; processor time of one thread (of a GPU, the clock's)."
        )
        rows = lab(asked)
        if asked.keep:
            keep(asked.keep, rows, command=command("bench.sparse"), about=about)
        return

    def write(rows: Rows, details: dict[str, Any]) -> None:
        """What there is so far."""
        networks = "tiny networks, a rehearsal" if asked.small else "VQGAN f16-16384 at 256 px, ResNet-50 and CLIP ViT-B/32"
        about = (
            f"Climbs in the engine with the whole decoder and with windows of it, {networks}, random weights, no control arm, "
            "nothing stored and nothing compiled; a climb is its start and all its iterations."
        )
        if asked.keep:
            keep(asked.keep, rows, command=command("bench.sparse"), about=about, details=details)

    full_size(asked, write)
    print(f"{time.perf_counter() - began:.0f} seconds in all")


if __name__ == "__main__":
    main()
