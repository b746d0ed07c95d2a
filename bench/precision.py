"""What lower precision does to the science: FMR and VR on the lab in bf16 and TF32 against float32, and image by image.

    python bench/precision.py [--device cuda] [--images 600] [--compiled] [--out FILE.json]

The same images, seeds and steps each time; only the number format differs, and with it the layers that are fused. A climb goes
through nearest codes and a verdict at every step, so that the last digit can send an image another way. How many go another way
by rounding alone is what the row `rounding` says: float32 both times, once by the network's own layers and once by the fused
ones. A format changes the science if its differences are larger than that, or lean to one side; the 95 % interval of a
difference is paired, by resampling images.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from counterfoil import spec as specs
from counterfoil.acceleration.settings import Acceleration
from counterfoil.assembly import Assembly, assemble
from counterfoil.engine import Engine, Finished, Job

WAYS = {
    "rounding": Acceleration(fused=True),
    "tf32": Acceleration("tf32", fused=True),
    "bf16": Acceleration("bf16", fused=True),
}
RESAMPLES = 2000


def climbs(assembly: Assembly, work: list[Job], how: Acceleration) -> dict[str, Finished]:
    """Every image's outcome."""
    engine = Engine(
        assembly.model, assembly.generator, assembly.oracle, columns=assembly.columns, search=assembly.spec.search,
        layout=assembly.spec.engine, device=assembly.spec.device, acceleration=how,
    )  # fmt: skip
    return {done.job.image_id: done for done in engine.run(work)}


def validated(done: Finished) -> bool:
    return done.climbs[0].ending != "unvalidated"


def right(done: Finished) -> bool:
    return validated(done) and done.climbs[0].kept[-1].correct


def numbers(found: dict[str, Finished]) -> dict[str, float]:
    """SA over all images, PA over those whose picture the oracle accepts, FMR = PA / SA, VR, in per cent."""
    every = list(found.values())
    accepted = [done for done in every if validated(done)]
    source = sum(done.clean.correct for done in every) / len(every)
    made = sum(map(right, accepted)) / max(len(accepted), 1)
    steps = sum(done.climbs[0].steps for done in accepted) / max(len(accepted), 1)
    return {
        "SA": 100 * source,
        "PA": 100 * made,
        "FMR": 100 * made / source,
        "VR": 100 * len(accepted) / len(every),
        "steps": steps,
    }


def intervals(found: dict[str, Finished], exact: dict[str, Finished]) -> dict[str, tuple[float, float]]:
    """95 % intervals of the differences of FMR and VR, over the same resampled images for both."""
    names = list(exact)
    table = np.array(
        [[one[name].clean.correct, validated(one[name]), right(one[name])] for one in (found, exact) for name in names],
        dtype=float,
    ).reshape(2, len(names), 3)
    drawn = np.random.default_rng(0).integers(len(names), size=(RESAMPLES, len(names)))
    source, accepted, made = np.moveaxis(table[:, drawn].mean(2), 2, 0)  # (2, RESAMPLES) each
    fmr, vr = 100 * made / np.maximum(accepted, 1e-9) / source, 100 * accepted
    return {key: tuple(np.quantile(each[0] - each[1], (0.025, 0.975)).round(2)) for key, each in (("FMR", fmr), ("VR", vr))}


def agreement(found: dict[str, Finished], exact: dict[str, Finished]) -> dict[str, float]:
    """Per cent of images for which two runs say the same."""
    pairs = [(found[name], exact[name]) for name in exact]

    def share(same: list[bool]) -> float:
        return 100 * sum(same) / len(same)

    return {
        "validated": share([validated(ours) == validated(theirs) for ours, theirs in pairs]),
        "outcome": share([(validated(a), right(a)) == (validated(b), right(b)) for a, b in pairs]),
        "steps": share([a.climbs[0].steps == b.climbs[0].steps for a, b in pairs]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--images", type=int, default=600)
    parser.add_argument("--budget", type=int, default=10)
    parser.add_argument("--generators", default="vqgan,kl")
    parser.add_argument("--models", default="diverse,narrow")
    parser.add_argument("--ways", default="rounding,bf16", help=f"of {', '.join(WAYS)}; tf32 is a GPU's")
    parser.add_argument("--compiled", action="store_true", help="also bf16 with the parts compiled and steps recorded")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    ways = {name: WAYS[name] for name in asked.ways.split(",")}
    if asked.compiled:
        ways["bf16 compiled"] = replace(WAYS["bf16"], compile=True, graphs=asked.device.startswith("cuda"))
    about = {
        "device": torch.cuda.get_device_name() if asked.device.startswith("cuda") else platform.machine(),
        "torch": torch.__version__, "images": asked.images, "budget": asked.budget,
    }  # fmt: skip
    print(json.dumps(about))
    heads = " ".join(f"{name:>6}" for name in ("SA", "PA", "FMR", "VR", "steps"))
    print(f"{'':<34} {heads} | difference of FMR and VR | same verdict, outcome, steps")
    rows: list[dict[str, Any]] = []
    for generator in asked.generators.split(","):
        for model in asked.models.split(","):
            spec = specs.parse(
                {
                    "model": f"lab:{model}",
                    "generator": f"lab:{generator}",
                    "oracle": "lab:clip",
                    "device": asked.device,
                    "data": {"name": "lab:wardrobe", "count": asked.images},
                    "engine": {"precision": "float32"},
                    "search": {"budget": asked.budget, "control": False},
                }
            )
            assembly = assemble(spec)
            work = list(assembly.jobs(iter(assembly.dataset), lambda sample, problem: None))
            exact = climbs(assembly, work, Acceleration())
            plain = numbers(exact)
            print(
                f"{generator + ' ' + model + ' float32':<34} " + " ".join(f"{value:6.2f}" for value in plain.values()), flush=True
            )
            rows.append({"generator": generator, "model": model, "way": "float32", **plain})
            for name, how in ways.items():
                began = time.perf_counter()
                found = climbs(assembly, work, how)
                took = time.perf_counter() - began
                values, same, span = numbers(found), agreement(found, exact), intervals(found, exact)
                away = {key: values[key] - plain[key] for key in ("FMR", "VR")}
                row = {
                    "generator": generator,
                    "model": model,
                    "way": name,
                    **values,
                    "away": away,
                    "interval": span,
                    "same": same,
                }
                rows.append({**row, "seconds": took})
                told = ", ".join(f"{key} {away[key]:+.2f} ({low:+.2f} to {high:+.2f})" for key, (low, high) in span.items())
                cells = " ".join(f"{value:6.2f}" for value in values.values())
                shares = " ".join(f"{value:5.1f}" for value in same.values())
                print(f"{generator + ' ' + model + ' ' + name:<34} {cells} | {told} | {shares}", flush=True)
    worst = max(max(abs(value) for value in row["away"].values()) for row in rows if "away" in row)
    print(f"largest difference of FMR or VR from float32: {worst:.2f} points")
    if asked.out:
        asked.out.parent.mkdir(parents=True, exist_ok=True)
        asked.out.write_text(json.dumps({"about": about, "rows": rows, "largest": worst}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
