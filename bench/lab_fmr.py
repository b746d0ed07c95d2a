"""FMR of the lab's classifiers whose order is known, over generators, seeds and settings.

    python -m bench.lab_fmr [--images 300] [--generators lab:vqgan,lab:kl] [--seeds 0,1] [--models lab:narrow,lab:diverse]
    python -m bench.lab_fmr --split tune --steps 0.02,0.03,0.05 --budgets 5,10 --norms l2,sign     # choose a setting
    python -m bench.lab_fmr --distribution full --models lab:background-shortcut,lab:diverse       # shortcuts broken

`diverse` was trained on the whole world, `narrow` on its studio corner. Where training is all that differs:

1. FMR and matched FMR put the first model below the last, their intervals apart.
2. Random steps leave every model within 5 points of where plain reconstruction does.
3. The oracle accepts at least 85 % of the plain reconstructions.

Exit code 1 if one of these fails in a setting. Settings are chosen on the `tune` garments, which no reported number uses; there
the demands are only printed.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.results import add_keep, command, keep

from counterfoil import protocols
from counterfoil.core import spec as specs
from counterfoil.core.records import Estimate

SHOWN = ("SA", "VR", "PA_reconstruction", "PA_random", "PA", "FMR", "FMR_matched", "steps")
COVERS = (
    "src/counterfoil/engine",
    "src/counterfoil/parts/generators",
    "src/counterfoil/protocols/fmr",
    "lab/src/counterfoil_lab",
)
PAGE = ("generator", "norm", "step", "budget", "seed", "model", "VR", "PA_reconstruction", "PA_random", "FMR_matched")
DRIFT, ACCEPTED = 5.0, 85.0


def main() -> None:
    """Run every setting, print and keep its rows, and check the demands."""
    given = _arguments()
    models, rows, passed = given.models.split(","), [], True
    options = (given.generators, given.norms, given.steps, given.budgets, given.seeds)
    for generator, norm, step, budget, seed in itertools.product(*(option.split(",") for option in options)):
        setting = {"generator": generator, "norm": norm, "step": float(step), "budget": int(budget), "seed": int(seed)}
        scores = {model: run(given, model, setting) for model in models}
        for model, measured in scores.items():
            print(*setting.values(), model, *(f"{key} {measured[key]}" for key in SHOWN), sep="  ", flush=True)
            rows.append({**setting, "model": model, **numbers(measured)})
        for held, line in demands(scores):
            print(f"{'pass' if held else 'FAIL'}  {line}", flush=True)
            passed &= held
    about = f"FMR of lab classifiers whose order is known, {given.images} scenes, {given.distribution}, {given.split} garments."
    if given.keep:
        keep(given.keep, rows, command=command("bench.lab_fmr"), about=about, covers=COVERS, shown=PAGE)
    sys.exit(given.split == "report" and not passed)


def run(given: argparse.Namespace, model: str, setting: Mapping[str, Any]) -> dict[str, Estimate]:
    """Measure one model in one setting."""
    data = {name: getattr(given, name) for name in ("split", "distribution")}
    spec = protocols.parse(
        {
            "model": model,
            "data": {"name": "lab:wardrobe", "count": given.images, "seed": setting["seed"], **data},
            "generator": setting["generator"],
            "oracle": "lab:clip",
            "seed": setting["seed"],
            "search": {name: setting[name] for name in ("norm", "step", "budget")},
            "device": given.device,
            "engine": {"slots": 128 if given.device.startswith("cuda") else 32},
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        return dict(protocols.run(spec, Path(folder) / "run").scores)


def numbers(measured: Mapping[str, Estimate]) -> dict[str, Any]:
    """Return the estimates as flat values with the ends of their intervals."""
    found: dict[str, Any] = {}
    for key in SHOWN:
        one = measured[key]
        found |= {key: one.value, f"{key} low": one.low, f"{key} high": one.high, f"{key} n": one.n}
    return found


def demands(scores: Mapping[str, Mapping[str, Estimate]]) -> Iterator[tuple[bool, str]]:
    """Yield every demand on the models of one setting, the one that should be lowest first, with whether it is met."""
    first, last = next(iter(scores)), next(reversed(scores))
    if first != last:
        for key in ("FMR", "FMR_matched"):
            apart, text = _apart(scores[first][key], scores[last][key])
            yield apart, f"{key}, {last} less {first}: {text}"
    for model, measured in scores.items():
        plain, random, accepted = (measured[key].value for key in ("PA_reconstruction", "PA_random", "VR"))
        if plain is None or random is None:
            yield False, f"{model}: no control ({measured['PA_random'].note or measured['PA_reconstruction'].note})"
        else:
            moved = random - plain
            yield abs(moved) <= DRIFT, f"{model}: random steps move it by {moved:+.1f} points, at most {DRIFT:g}"
        yield accepted is not None and accepted >= ACCEPTED, f"{model}: {accepted or 0:.1f} % accepted, at least {ACCEPTED:g}"


def _apart(low: Estimate, high: Estimate) -> tuple[bool, str]:
    """Say whether two intervals are apart and in order."""
    if low.value is None or high.value is None or low.high is None or high.low is None:
        return False, f"undefined: {low.note or high.note}"
    verdict = "apart" if low.high < high.low else "overlapping" if low.value < high.value else "IN THE WRONG ORDER"
    return verdict == "apart", f"{high.value - low.value:+.1f} points, {verdict}"


def _arguments() -> argparse.Namespace:
    defaults = specs.SearchSpec()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=300)
    parser.add_argument("--models", default="lab:narrow,lab:diverse", help="the one that should be lowest first")
    parser.add_argument("--generators", default="lab:vqgan,lab:kl")
    parser.add_argument("--seeds", default="0,1")
    parser.add_argument("--split", default="report", choices=("report", "tune"))
    parser.add_argument("--distribution", default="narrow")
    parser.add_argument("--steps", default=str(defaults.step or 0.03))
    parser.add_argument("--budgets", default=str(defaults.budget))
    parser.add_argument("--norms", default=defaults.norm)
    parser.add_argument("--device", default="cpu")
    add_keep(parser)
    return parser.parse_args()


if __name__ == "__main__":
    main()
