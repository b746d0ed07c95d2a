"""Seconds per image of FMR against two straightforward loops, in one run on one machine, and where the time goes.

    python -m bench.fmr_speed [--device cuda] [--rows all] [--iterations 50] [--slots 128] [--keep NAME]

The set-up is that of bench/setup.py. The loops are what one would write from the paper: render with a gradient, step, render
again, ask the oracle. Operations are counted as the plain networks have them, 530 GFLOP per image and
iteration, whatever a row does to need fewer. `--small` takes tiny networks, to rehearse on a CPU.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import torch
from bench.plain import loop
from bench.results import add_keep, command, keep
from bench.setup import Parts, clear, jobs, matmul_limit, measure, parts, profile

from counterfoil.core.spec import EngineSpec, SearchSpec
from counterfoil.engine.device import GPU_BATCH, synchronize
from counterfoil.engine.fast import Acceleration
from counterfoil.engine.scheduler import Engine
from counterfoil.parts.fast import codes, passes
from counterfoil.parts.fast.coders import build_decoder

GFLOP = 530  # per image and iteration, forward and backward, one rendering
ENGINE = {
    "engine float32": Acceleration(),
    "engine bf16": Acceleration("bf16"),
    "engine bf16 compiled": Acceleration("bf16", compile=True),
    "engine bf16 fused": Acceleration("bf16", fused=True),
    "engine bf16 fused graphs": Acceleration("bf16", fused=True, graphs=True),
    "engine bf16 fused compiled": Acceleration("bf16", fused=True, compile=True),
    "engine bf16 fused compiled graphs": Acceleration("bf16", fused=True, compile=True, graphs=True),
}
COVERS = ["src/counterfoil/engine", "src/counterfoil/parts/fast", "src/counterfoil/parts/generators/vqgan.py"]
LOOPS = {"one image at a time float32": (1, False), "batches of 32 tf32": (32, True)}


def figures(seconds: float, images: int, iterations: int, device: str) -> dict[str, Any]:
    """Seconds per image at 50 iterations, and operations per second."""
    found = {"seconds_per_image": seconds / images * 50 / iterations, "tflops": GFLOP * images * iterations / seconds / 1e3}
    if device == "cuda":
        found["gib"] = torch.cuda.max_memory_allocated() / 2**30
    return {**found, "images": images, "iterations": iterations, "seconds": seconds}


def run_loop(given: Parts, name: str, asked: argparse.Namespace) -> dict[str, Any]:
    batch, tf32 = LOOPS[name]
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    count = 2 if batch == 1 else batch
    iterations = min(asked.iterations, 10) if batch == 1 else asked.iterations  # they take the same time each
    search = SearchSpec(budget=iterations, control="none")
    work = jobs(count, given.size)
    loop(given, work[:batch], SearchSpec(budget=1, control="none"), batch=batch, device=asked.device)
    seconds, _ = measure(lambda: loop(given, work, search, batch=batch, device=asked.device), asked.device)
    return figures(seconds, count, iterations, asked.device)


def engine_of(given: Parts, name: str, asked: argparse.Namespace, slots: int) -> Engine:
    search = SearchSpec(budget=asked.iterations, control="none")
    return Engine(
        given.model, given.generator, given.oracle, columns=list(range(1000)), search=search,
        layout=EngineSpec(slots=slots, batch_size=min(asked.batch, slots)), device=asked.device, acceleration=ENGINE[name],
    )  # fmt: skip


def run_engine(given: Parts, name: str, asked: argparse.Namespace) -> tuple[dict[str, Any], Engine]:
    plain = not ENGINE[name].fused and not ENGINE[name].compile
    slots = asked.slots if ENGINE[name].precision == "bf16" or not plain else min(asked.slots, 32)
    iterations = asked.iterations if ENGINE[name].compile else min(asked.iterations, 20)
    engine = engine_of(given, name, asked, slots)
    engine.search = SearchSpec(budget=3, control="none")
    began = time.perf_counter()
    try:
        list(engine.run(jobs(slots, given.size)))
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        print(f"  {name}: not pipelined, as that failed: {error!r}"[:400], flush=True)
        engine = engine_of(given, name, asked, slots)
        engine.search, engine.pipelined = SearchSpec(budget=3, control="none"), False
        list(engine.run(jobs(slots, given.size)))
    synchronize(asked.device)
    warm = time.perf_counter() - began
    engine.search = SearchSpec(budget=iterations, control="none")
    work = jobs(slots * (1 if plain else asked.rounds), given.size)
    seconds, _ = measure(lambda: list(engine.run(work)), asked.device)
    found = figures(seconds, len(work), iterations, asked.device)
    return {**found, "slots": slots, "batch": engine.batch_size, "pipelined": engine.pipelined, "warm_up_seconds": warm}, engine


def agreement(given: Parts, device: str) -> dict[str, float]:
    """Relative distance of images and gradients of the fused decoder from those of the network in float32."""
    codes = torch.randn(2, given.generator.autoencoder.network.post_quant_conv.in_channels, 16, 16, device=device)
    answers = {}
    with Acceleration().computing(torch.device(device)):
        network = given.generator.autoencoder.network
        ways = {
            "network": lambda codes: network.decoder(network.post_quant_conv(codes)),
            "float32": build_decoder(network, torch.float32),
            "bf16": build_decoder(network, torch.bfloat16),
        }
        for name, decode in ways.items():
            leaf = codes.clone().requires_grad_()
            images = decode(leaf)
            weights = torch.linspace(-1, 1, images.numel(), device=device).view_as(images)
            answers[name] = (images.detach(), torch.autograd.grad((images * weights).sum(), leaf)[0])
    exact = answers.pop("network")
    return {
        f"{name} {what}": float((found - wanted).norm() / wanted.norm())
        for name, both in answers.items()
        for what, found, wanted in zip(("images", "gradients"), both, exact, strict=True)
    }


def kernels_agreement(device: str) -> dict[str, float]:
    """Relative distance of passes by Triton from those by PyTorch, and how many of 16,384 codes are not those of float64."""
    by_triton, answers = passes.by_triton, []
    x, gradient = (torch.randn(3, 96, 24, 20, device=device).contiguous(memory_format=torch.channels_last) for _ in range(2))
    gain, bias = torch.randn(2, 96, device=device)
    weight = torch.randn(3, 96, 3, 3, device=device)
    with Acceleration().computing(torch.device(device)):  # float32 is not to be TF32 here
        for triton in (True, False):
            passes.by_triton = lambda x, triton=triton: triton and by_triton(x)  # type: ignore[misc]
            found = passes.coefficients(passes.moments(x), gain, bias, bias, pixels=480, groups=32, epsilon=1e-6)
            sums = passes.gradient_sums(x, gradient, found, silu=True)
            correction = passes.correction(sums, gain, found, pixels=480, groups=32)
            answers.append(
                {
                    "apply": passes.apply(x, found, silu=True),
                    "back": passes.back(x, gradient, found, correction, skip=x, silu=True),
                    "join": passes.join(x, gradient, bias)[0],
                    "to rgb": passes.to_rgb(x, found, weight, bias[:3]),
                }
            )
        passes.by_triton = by_triton
    cells, book = torch.randn(16_384, 256, device=device), torch.randn(16_384 if device == "cuda" else 64, 256, device=device)
    exact = torch.cat([torch.cdist(some.double(), book.double()).argmin(1) for some in cells.split(2048)])
    found = {name: float((answer - answers[1][name]).norm() / answers[1][name].norm()) for name, answer in answers[0].items()}
    return {**found, "other codes": int((codes.nearest_codes(cells, book) != exact).sum())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rows", default="all", help="parts of rows' names, separated by commas, or all")
    parser.add_argument("--iterations", type=int, default=50)
    parser.add_argument("--slots", type=int, default=2 * GPU_BATCH)
    parser.add_argument("--batch", type=int, default=GPU_BATCH)
    parser.add_argument("--rounds", type=int, default=1, help="times the slots are filled in a timed run")
    parser.add_argument("--profile", default="engine bf16 fused compiled graphs", help="the row that is profiled, or none")
    parser.add_argument("--small", action="store_true", help="tiny networks, to rehearse")
    add_keep(parser)
    asked = parser.parse_args()
    names = [*LOOPS, *ENGINE]
    if asked.rows != "all":
        names = [name for name in names if any(name == part.strip() for part in asked.rows.split(","))]
    if not names:
        sys.exit(f"--rows: no row is called {asked.rows!r}; there are {', '.join([*LOOPS, *ENGINE])}")
    given = parts(asked.device, small=asked.small)
    limit = matmul_limit(asked.device)
    details: dict[str, Any] = {"matmul_tflops": limit, "gflop": GFLOP, "cudnn": torch.backends.cudnn.version(), "profile": {}}
    details["fused_differs_by"], details["kernels_differ_by"] = agreement(given, asked.device), kernels_agreement(asked.device)
    print(details, flush=True)
    print(f"{'':<36} s per image TFLOP/s  of the limit     GiB", flush=True)
    rows: dict[str, dict[str, Any]] = {}

    def write() -> None:
        """Return what there is so far."""
        if asked.keep:
            listed = [{"what": name, **row} for name, row in rows.items()]
            told = {"command": command("bench.fmr_speed"), "about": about(limit, asked), "details": details, "covers": COVERS}
            keep(asked.keep, listed, **told, shown=("what", "seconds_per_image", "tflops", "gib", "warm_up_seconds"))

    for name in names:
        clear(asked.device)
        engine: Engine | None = None
        try:
            if name in LOOPS:
                rows[name] = run_loop(given, name, asked)
            else:
                rows[name], engine = run_engine(given, name, asked)
        except Exception as error:  # the other rows are worth having
            rows[name] = {"error": repr(error)[:500]}
            print(f"{name:<36} {error!r}"[:600], flush=True)
            continue
        row = rows[name]
        cells = f"{row['seconds_per_image']:10.4f} {row['tflops']:8.1f} {row['tflops'] / limit:12.1%} {row.get('gib', 0):8.1f}"
        print(f"{name:<36} {cells}", flush=True)
        write()
        if engine is not None and asked.profile == name and asked.device == "cuda":
            details["profile"][name] = profile_steps(engine, given, row["slots"])
            write()


def about(limit: float, asked: argparse.Namespace) -> str:
    """Return what the rows show, in a sentence or two."""
    networks = "tiny networks, a rehearsal" if asked.small else "VQGAN f16-16384 at 256 px, ResNet-50 and CLIP ViT-B/32"
    return (
        f"FMR with {networks}, random weights, no control arm, nothing stored; seconds per image at 50 iterations. Large bf16 "
        f"matrix products reach {limit:.0f} TFLOP/s in the same run."
    )


def profile_steps(engine: Engine, given: Parts, slots: int) -> dict[str, Any]:
    """Return where the time of a few steps goes."""
    engine.search = SearchSpec(budget=5, control="none")
    return profile(lambda: list(engine.run(jobs(slots, given.size))))


if __name__ == "__main__":
    main()
