"""Seconds an image of FMR against two straightforward loops, in one run on one machine, and where the time goes.

    python bench/fmr_speed.py [--device cuda] [--rows all] [--iterations 50] [--slots 64] [--out FILE.json]

The set-up: VQGAN f16-16384 at 256 pixels, ResNet-50, CLIP ViT-B/32, all with random weights; the oracle is asked and its answer
is taken for a yes, so that every image takes all steps. The loops are what one would write from the paper: render with a
gradient, step, render again, ask the oracle. Operations are counted as the plain networks have them, 530 GFLOP an image and
iteration, whatever a row does to need fewer. `--small` takes tiny networks, to rehearse on a CPU.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import torchvision
from torch import Tensor

from counterfoil.acceleration.decoder import build
from counterfoil.acceleration.settings import Acceleration
from counterfoil.encoders.clip import TransformersEncoder
from counterfoil.engine import EightBits, Engine, Job
from counterfoil.generators.latent import LatentGenerator
from counterfoil.generators.vqgan.configuration import Architecture
from counterfoil.generators.vqgan.generator import VqganAutoencoder
from counterfoil.generators.vqgan.network import Vqgan
from counterfoil.guidance import StepLength
from counterfoil.models.inputs import IMAGENET_MEAN, IMAGENET_STD
from counterfoil.models.module import ModuleModel
from counterfoil.models.preprocessing import Preprocessing
from counterfoil.oracles.zero_shot import ZeroShotOracle
from counterfoil.parts import Verdicts
from counterfoil.spec import EngineSpec, SearchSpec

GFLOP = 530  # an image and iteration, forward and backward, one rendering
ENGINE = {
    "engine float32": Acceleration(),
    "engine tf32": Acceleration("tf32"),
    "engine bf16": Acceleration("bf16"),
    "engine bf16 compiled": Acceleration("bf16", compile=True),
    "engine bf16 fused": Acceleration("bf16", fused=True),
    "engine bf16 fused graphs": Acceleration("bf16", fused=True, graphs=True),
    "engine bf16 fused compiled": Acceleration("bf16", fused=True, compile=True),
    "engine bf16 fused compiled graphs": Acceleration("bf16", fused=True, compile=True, graphs=True),
    "engine tf32 fused compiled graphs": Acceleration("tf32", fused=True, compile=True, graphs=True),
}
LOOPS = {"one image at a time float32": (1, False), "batches of 32 tf32": (32, True)}


@dataclass(frozen=True)
class Parts:
    """What is put together."""

    model: ModuleModel
    generator: LatentGenerator
    oracle: Agreeing
    size: int


class Agreeing:
    """An oracle that is asked, and whose answer is taken for a yes."""

    def __init__(self, inner: ZeroShotOracle) -> None:
        self.inner = inner

    def bind(self, classes: Any) -> Agreeing:
        return Agreeing(self.inner.bind(classes))

    def judge(self, images: Tensor, labels: Tensor) -> Verdicts:
        said = self.inner.judge(images, labels)
        return Verdicts(said.keeps_label * 0 + 1, said.scores, said.predicted)


class WordlessEncoder(TransformersEncoder):
    """CLIP with random weights, and random directions for words: there is no tokenizer to go with them."""

    def embed_texts(self, texts: Any) -> Tensor:
        chance = torch.Generator().manual_seed(len(texts))
        return torch.randn(len(texts), self.model.config.projection_dim, generator=chance).to(self.model.device)


def parts(device: str, *, small: bool) -> Parts:
    """The networks, with random weights."""
    from transformers import CLIPConfig, CLIPModel

    torch.manual_seed(0)
    size = 32 if small else 256
    shape = Architecture(
        n_embed=64 if small else 16_384, embed_dim=32 if small else 256, z_channels=32 if small else 256, ch=32 if small else 128,
        ch_mult=(1, 2) if small else (1, 1, 2, 2, 4), num_res_blocks=1 if small else 2, resolution=size, attn_resolutions=(16,),
    )  # fmt: skip
    network = Vqgan(shape)
    generator = LatentGenerator(VqganAutoencoder(network.to(device), factor=shape.factor), size=size)
    resnet = torchvision.models.resnet18 if small else torchvision.models.resnet50
    side = 32 if small else 224
    seen = Preprocessing(size=(side, side), resize=(side + 8, side + 8), mean=IMAGENET_MEAN, std=IMAGENET_STD)
    classes = [f"thing {number}" for number in range(1000)]
    model = ModuleModel(resnet(weights=None), classes, preprocessing=seen).to(device)
    few = {
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "image_size": 32,
        "patch_size": 8,
    }
    config = CLIPConfig(vision_config=few if small else {}, text_config={"num_hidden_layers": 1})
    looked = Preprocessing(size=(side, side), interpolation="bicubic", mean=IMAGENET_MEAN, std=IMAGENET_STD)
    encoder = WordlessEncoder(CLIPModel(config).to(device), None, looked, name="random")
    oracle = Agreeing(ZeroShotOracle(encoder)).bind(classes)
    return Parts(model, generator, oracle, size)


def jobs(count: int, size: int) -> list[Job]:
    chance = torch.Generator().manual_seed(1)
    pictures = (torch.rand(count, 3, size // 8, size // 8, generator=chance) * 255).round() / 255
    larger = F.interpolate(pictures, size=(size, size), mode="nearest")
    return [Job(f"picture {number}", picture, number % 1000, number) for number, picture in enumerate(larger)]


def loop(given: Parts, work: list[Job], search: SearchSpec, *, batch: int, device: str) -> None:
    """Algorithm 1 as one would write it down, `batch` images at a time."""
    length = StepLength(search.step, search.norm, search.unit)
    model, generator, oracle = given.model, given.generator, given.oracle
    for at in range(0, len(work), batch):
        some = work[at : at + batch]
        labels = torch.tensor([job.label for job in some], device=device)
        with torch.no_grad():
            images = torch.stack([job.image for job in some]).to(device)
            state = generator.start(images, labels, labels)
        for _ in range(search.budget):
            leaf = state["latent"].detach().requires_grad_()
            pictures = EightBits.apply(generator.render({**state, "latent": leaf}))
            loss = F.cross_entropy(model.logits(pictures), labels, reduction="sum")
            gradient = torch.autograd.grad(loss, leaf)[0]
            with torch.no_grad():
                state = generator.step(state, length.fit(gradient, state["scale"]))
                pictures = EightBits.apply(generator.render(state))
                if not bool((oracle.judge(pictures, labels).keeps_label == 1).any()):
                    break


def settle(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def timed(work: Callable[[], object], device: str) -> float:
    settle(device)
    began = time.perf_counter()
    work()
    settle(device)
    return time.perf_counter() - began


def clear(device: str) -> None:
    gc.collect()
    if device == "cuda":
        torch._dynamo.reset()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def figures(seconds: float, images: int, iterations: int, device: str) -> dict[str, Any]:
    """Seconds an image at 50 iterations, and operations a second."""
    found = {"seconds_an_image": seconds / images * 50 / iterations, "tflops": GFLOP * images * iterations / seconds / 1e3}
    if device == "cuda":
        found["gib"] = torch.cuda.max_memory_allocated() / 2**30
    return {**found, "images": images, "iterations": iterations, "seconds": seconds}


def run_loop(given: Parts, name: str, asked: argparse.Namespace) -> dict[str, Any]:
    batch, tf32 = LOOPS[name]
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    count = 2 if batch == 1 else batch
    iterations = min(asked.iterations, 10) if batch == 1 else asked.iterations  # they take the same time each
    search = SearchSpec(budget=iterations, control=False)
    work = jobs(count, given.size)
    loop(given, work[:batch], SearchSpec(budget=1, control=False), batch=batch, device=asked.device)
    seconds = timed(lambda: loop(given, work, search, batch=batch, device=asked.device), asked.device)
    return figures(seconds, count, iterations, asked.device)


def engine_of(given: Parts, name: str, asked: argparse.Namespace, slots: int) -> Engine:
    search = SearchSpec(budget=asked.iterations, control=False)
    return Engine(
        given.model, given.generator, given.oracle, columns=list(range(1000)), search=search,
        layout=EngineSpec(slots=slots, tile=min(asked.tile, slots)), device=asked.device, acceleration=ENGINE[name],
    )  # fmt: skip


def run_engine(given: Parts, name: str, asked: argparse.Namespace) -> tuple[dict[str, Any], Engine]:
    plain = not ENGINE[name].fused and not ENGINE[name].compile
    slots = asked.slots if ENGINE[name].precision == "bf16" or not plain else min(asked.slots, 32)
    iterations = asked.iterations if ENGINE[name].compile else min(asked.iterations, 20)
    engine = engine_of(given, name, asked, slots)
    engine.search = SearchSpec(budget=3, control=False)
    began = time.perf_counter()
    try:
        list(engine.run(jobs(slots, given.size)))
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        print(f"  {name}: not pipelined, as that failed: {error!r}"[:400], flush=True)
        engine = engine_of(given, name, asked, slots)
        engine.search, engine.pipelined = SearchSpec(budget=3, control=False), False
        list(engine.run(jobs(slots, given.size)))
    settle(asked.device)
    warm = time.perf_counter() - began
    engine.search = SearchSpec(budget=iterations, control=False)
    work = jobs(slots * (1 if plain else asked.rounds), given.size)
    seconds = timed(lambda: list(engine.run(work)), asked.device)
    found = figures(seconds, len(work), iterations, asked.device)
    return {**found, "slots": slots, "tile": engine.tile, "pipelined": engine.pipelined, "warm_up_seconds": warm}, engine


KINDS = {  # by what a kernel's name contains, the first that fits
    "norm and SiLU (own kernels)": (
        "moments_kernel", "join_kernel", "apply_kernel", "slopes_kernel", "back_kernel", "coefficients_kernel",
    ),
    "nearest codes": ("candidates_kernel",),
    "convolutions": ("fprop", "dgrad", "wgrad", "conv", "implicit"),
    "matrix products": ("gemm", "nvjet", "cutlass", "cublas", "splitk"),
    "attention": ("attention", "flash", "fmha"),
    "compiled pointwise": ("triton_",),
    "copies": ("copy", "memcpy", "memset", "nchwtonhwc", "nhwctonchw", "tensortransform"),
    "normalisation (library)": ("norm", "rowwisemoments", "computefused"),
    "resampling": ("upsample",),
    "reductions and softmax": ("reduce", "softmax", "sum"),
    "pointwise": ("elementwise", "vectorized", "silu", "fill"),
}  # fmt: skip


def profile(work: Callable[[], object], *, steps: int) -> dict[str, Any]:
    """Milliseconds a step by kind of kernel; the rest of the step the card waits."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiling

    with profiling(activities=[ProfilerActivity.CUDA]) as seen:
        wall = timed(work, "cuda")
    rows: dict[str, list[float]] = {}
    kernels: list[tuple[float, int, str]] = []
    for event in seen.key_averages():
        took = event.self_device_time_total / 1e3 / steps
        if took <= 0:
            continue
        name = event.key.lower()
        kind = next((kind for kind, marks in KINDS.items() if any(mark in name for mark in marks)), "other")
        entry = rows.setdefault(kind, [0.0, 0])
        entry[0] += took
        entry[1] += event.count / steps
        kernels.append((took, round(event.count / steps), event.key[:110]))
    busy = sum(entry[0] for entry in rows.values())
    print(
        f"\n  a step of a tile: {wall * 1e3 / steps:.1f} ms by the clock, {busy:.1f} ms of kernels (start of the images included)"
    )
    for kind, (took, count) in sorted(rows.items(), key=lambda row: -row[1][0]):
        print(f"  {kind:<30} {took:8.2f} ms {count:8.1f} kernels  {100 * took / busy:5.1f} %")
    print("  the longest:")
    for took, count, name in sorted(kernels, reverse=True)[:25]:
        print(f"  {took:8.2f} ms {count:5d}  {name}")
    return {"wall_ms": wall * 1e3 / steps, "kernels_ms": busy, "kinds": {kind: entry[0] for kind, entry in rows.items()}}


def agreement(given: Parts, device: str) -> dict[str, float]:
    """How far pictures and gradients of the fused decoder are from those of the network in float32, relative to their size."""
    codes = torch.randn(2, given.generator.autoencoder.network.post_quant_conv.in_channels, 16, 16, device=device)
    answers = {}
    with Acceleration().numbers(torch.device(device)):
        network = given.generator.autoencoder.network
        ways = {"network": network.decode, "float32": build(network, torch.float32), "bf16": build(network, torch.bfloat16)}
        for name, decode in ways.items():
            leaf = codes.clone().requires_grad_()
            pictures = decode(leaf)
            weights = torch.linspace(-1, 1, pictures.numel(), device=device).view_as(pictures)
            answers[name] = (pictures.detach(), torch.autograd.grad((pictures * weights).sum(), leaf)[0])
    exact = answers.pop("network")
    return {
        f"{name} {what}": float((found - wanted).norm() / wanted.norm())
        for name, both in answers.items()
        for what, found, wanted in zip(("pictures", "gradients"), both, exact, strict=True)
    }


def matmul_limit(device: str) -> float:
    """TFLOP/s of large bf16 matrix products."""
    side = 8192 if device == "cuda" else 256
    left, right = (torch.randn(side, side, device=device, dtype=torch.bfloat16) for _ in range(2))
    for _ in range(3):
        left @ right
    seconds = timed(lambda: [left @ right for _ in range(20)], device)
    return 20 * 2 * side**3 / seconds / 1e12


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rows", default="all", help="parts of rows' names, separated by commas, or all")
    parser.add_argument("--iterations", type=int, default=50)
    parser.add_argument("--slots", type=int, default=128)
    parser.add_argument("--tile", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=1, help="times the slots are filled in a timed run")
    parser.add_argument("--profile", default="engine bf16 fused compiled graphs", help="the row that is profiled, or none")
    parser.add_argument("--small", action="store_true", help="tiny networks, to rehearse")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    names = [*LOOPS, *ENGINE]
    if asked.rows != "all":
        names = [name for name in names if any(name == part.strip() for part in asked.rows.split(","))]
    if not names:
        sys.exit(f"--rows: no row is called {asked.rows!r}; there are {', '.join([*LOOPS, *ENGINE])}")
    given = parts(asked.device, small=asked.small)
    limit = matmul_limit(asked.device)
    about = {
        "device": torch.cuda.get_device_name() if asked.device == "cuda" else platform.processor(),
        "torch": torch.__version__, "python": platform.python_version(), "cudnn": torch.backends.cudnn.version(),
        "matmul_tflops": limit, "gflop": GFLOP, "small": asked.small, "fused_differs_by": agreement(given, asked.device),
    }  # fmt: skip
    print(json.dumps(about))
    print(f"{'':<36} s an image  TFLOP/s  of the limit     GiB", flush=True)
    rows: dict[str, Any] = {}
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
        cells = f"{row['seconds_an_image']:10.4f} {row['tflops']:8.1f} {row['tflops'] / limit:12.1%} {row.get('gib', 0):8.1f}"
        print(f"{name:<36} {cells}", flush=True)
        write(asked.out, about, rows)
        if engine is not None and asked.profile == name:
            row["profile"] = profiled(engine, given, row["slots"])
            write(asked.out, about, rows)


def profiled(engine: Engine, given: Parts, slots: int) -> dict[str, Any]:
    """Where the time of a few steps goes."""
    engine.search = SearchSpec(budget=5, control=False)
    return profile(lambda: list(engine.run(jobs(slots, given.size))), steps=6 * -(-slots // engine.tile))


def write(out: Path | None, about: dict[str, Any], rows: dict[str, Any]) -> None:
    if out:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps({"about": about, "rows": rows}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
