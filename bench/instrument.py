"""Does the instrument read right? FMR of the lab's classifiers whose order is known, over generators, seeds and settings.

    python bench/instrument.py [--images 300] [--generators lab:vqgan,lab:kl] [--seeds 0,1] [--models lab:narrow,lab:diverse]
    python bench/instrument.py --split tune --steps 0.02,0.03,0.05 --budgets 5,10 --norms l2,sign     # choose a setting
    python bench/instrument.py --distribution full --models lab:background-shortcut,lab:diverse       # shortcuts broken

`diverse` was trained on the whole world, `narrow` on its studio corner. Where training is all that differs, FMR has to
put them in that order, and the controls have to stay near the plain reconstruction. Settings are chosen on the `tune`
garments, which no reported number uses. With `--json FILE` every row is kept.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from counterfoil import spec as specs
from counterfoil.metrics.estimate import Estimate
from counterfoil.metrics.table import row
from counterfoil.protocols import fmr

SHOWN = ("SA", "VR", "PA_reconstruction", "PA_random", "PA", "FMR", "FMR_matched", "steps")
JUDGED = ("FMR", "FMR_matched")


def main() -> None:
    given = _arguments()
    settings = itertools.product(
        given.generators.split(","),
        given.norms.split(","),
        given.steps.split(","),
        given.budgets.split(","),
        given.seeds.split(","),
    )
    kept = []
    for generator, norm, step, budget, seed in settings:
        search = {"norm": norm, "step": float(step), "budget": int(budget)}
        name = f"{generator} {norm} step {step} budget {budget} seed {seed}"
        scores = {model: _scores(given, model, generator, search, int(seed)) for model in given.models.split(",")}
        for model, measured in scores.items():
            cells = [f"{key} {line.value} ({line.interval})" for key in SHOWN if (line := row(key, measured[key]))]
            print(f"{name} {model}: {', '.join(cells)}, n {measured['FMR'].n}", flush=True)
            kept.append({"setting": name, "model": model, **{key: asdict(measured[key]) for key in SHOWN}})
        first, *_, last = scores.values()
        for key in JUDGED:
            print(f"{name} {key}: {_apart(first[key], last[key])}", flush=True)
    if given.json:
        Path(given.json).write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def _scores(given: argparse.Namespace, model: str, generator: str, search: dict[str, Any], seed: int) -> dict[str, Estimate]:
    data = {
        "name": "lab:wardrobe",
        "count": given.images,
        "seed": seed,
        "split": given.split,
        "distribution": given.distribution,
    }
    spec = specs.parse(
        {
            "model": model,
            "data": data,
            "generator": {"name": generator, **({"space": given.space} if generator == "lab:vqgan" else {})},
            "oracle": "lab:clip",
            "seed": seed,
            "search": search,
            "device": given.device,
            "engine": {"slots": 128 if given.device.startswith("cuda") else 32},
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        return dict(fmr.run(spec, Path(folder) / "run").scores)


def _apart(low: Estimate, high: Estimate) -> str:
    """Whether two intervals are apart, and by how many of their half-widths the values are."""
    spread = max(1e-9, ((low.high - low.low) ** 2 + (high.high - high.low) ** 2) ** 0.5 / 2)
    verdict = "apart" if low.high < high.low else "overlapping" if low.value < high.value else "IN THE WRONG ORDER"
    return (
        f"last minus first {high.value - low.value:+.1f} points, {(high.value - low.value) / spread:.2f} half-widths, {verdict}"
    )


def _arguments() -> argparse.Namespace:
    defaults = specs.SearchSpec()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=300)
    parser.add_argument("--models", default="lab:narrow,lab:diverse", help="the one that should read lowest first")
    parser.add_argument("--generators", default="lab:vqgan,lab:kl")
    parser.add_argument("--seeds", default="0,1")
    parser.add_argument("--split", default="report", choices=("report", "tune"))
    parser.add_argument("--distribution", default="narrow")
    parser.add_argument("--steps", default=str(defaults.step))
    parser.add_argument("--budgets", default=str(defaults.budget))
    parser.add_argument("--norms", default=defaults.norm)
    parser.add_argument("--space", default="before", choices=("before", "code"), help="where lab:vqgan's latent moves")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json")
    return parser.parse_args()


if __name__ == "__main__":
    main()
