"""Does the instrument read right? FMR of the lab's classifiers whose order is known, over generators, seeds and settings.

    python -m bench.instrument [--images 300] [--generators lab:vqgan,lab:kl] [--seeds 0,1] [--models lab:narrow,lab:diverse]
    python -m bench.instrument --split tune --steps 0.02,0.03,0.05 --budgets 5,10 --norms l2,sign     # choose a setting
    python -m bench.instrument --distribution full --models lab:background-shortcut,lab:diverse       # shortcuts broken

`diverse` was trained on the whole world, `narrow` on its studio corner. Where training is all that differs:

1. FMR and matched FMR put the first model below the last, their intervals apart.
2. Random steps leave every model within 5 points of where plain reconstruction does.
3. The oracle accepts at least 85 % of the plain reconstructions.

Exit code 1 if one of these does not hold in a setting. Settings are chosen on the `tune` garments, which no reported number
uses; there the verdicts are only printed. `--keep NAME` keeps the rows
of the table at the end.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.results import add_keep, command, keep

from counterfoil import protocols
from counterfoil.core import spec as specs
from counterfoil.core.records import Estimate

SHOWN = {
    "SA": "SA",
    "VR": "VR",
    "PA_reconstruction": "PA, reconstruction only",
    "PA_random": "PA, random steps",
    "PA": "PA",
    "FMR": "FMR",
    "FMR_matched": "matched FMR",
    "steps": "steps",
}
JUDGED = ("FMR", "FMR_matched")
DRIFT, ACCEPTED = 5.0, 85.0


@dataclass(frozen=True)
class Setting:
    """One setting of the search, with the generator that it is searched in and the seed."""

    generator: str
    norm: str
    step: float
    budget: int
    seed: int

    def __str__(self) -> str:
        return f"{self.generator} {self.norm} step {self.step:g} budget {self.budget} seed {self.seed}"


def main() -> None:
    given = _arguments()
    models = given.models.split(",")
    table, held = [], []
    for setting in _settings(given):
        scores = {model: _scores(given, model, setting) for model in models}
        for model, measured in scores.items():
            cells = [f"{key} {_cell(key, measured[key])}" for key in SHOWN]
            print(f"{setting} {model}: {', '.join(cells)}, n {measured['FMR'].n}", flush=True)
            table.append((setting, model, measured))
        for passed, line in verdicts(scores):
            print(f"{'pass' if passed else 'FAIL'}  {setting} {line}", flush=True)
            held.append(passed)
    print("", *_markdown(table), sep="\n")
    if given.keep:
        rows = [_flat(setting, model, measured) for setting, model, measured in table]
        about = (
            f"FMR of lab classifiers whose order is known, {given.images} scenes, {given.distribution}, {given.split} garments."
        )
        keep(given.keep, rows, command=command("bench.instrument"), about=about)
    sys.exit(given.split == "report" and not all(held))


def verdicts(scores: Mapping[str, Mapping[str, Estimate]]) -> Iterator[tuple[bool, str]]:
    """Every demand on the models of one setting, the one that should read lowest first, with whether it is met."""
    first, last = next(iter(scores)), next(reversed(scores))
    if first != last:
        for key in JUDGED:
            apart, said = _apart(scores[first][key], scores[last][key])
            yield apart, f"{key}, {last} less {first}: {said}"
    for model, measured in scores.items():
        plain, random, accepted = (measured[key].value for key in ("PA_reconstruction", "PA_random", "VR"))
        if plain is None or random is None:
            yield False, f"{model}: no control ({measured['PA_random'].note or measured['PA_reconstruction'].note})"
        else:
            said = f"random steps move it by {random - plain:+.1f} points, at most {DRIFT:g}"
            yield abs(random - plain) <= DRIFT, f"{model}: {said}"
        yield accepted is not None and accepted >= ACCEPTED, f"{model}: {accepted or 0:.1f} % accepted, at least {ACCEPTED:g}"


def _settings(given: argparse.Namespace) -> Iterator[Setting]:
    options = (given.generators, given.norms, given.steps, given.budgets, given.seeds)
    for generator, norm, step, budget, seed in itertools.product(*(option.split(",") for option in options)):
        yield Setting(generator, norm, float(step), int(budget), int(seed))


def _markdown(table: Sequence[tuple[Setting, str, Mapping[str, Estimate]]]) -> Iterator[str]:
    """The rows as the page has them; of the setting, beside generator and seed, what differs between rows."""
    varied = [name for name in ("norm", "step", "budget") if len({getattr(setting, name) for setting, _, _ in table}) > 1]
    named = ["generator", *varied, "seed"]
    yield f"| {' | '.join([*named, 'model', *SHOWN.values(), 'n'])} |"
    yield f"|{'---|' * (len(named) + len(SHOWN) + 2)}"
    for setting, model, measured in table:
        cells = [str(getattr(setting, name)) for name in named]
        yield f"| {' | '.join([*cells, model, *(_cell(key, measured[key]) for key in SHOWN), str(measured['FMR'].n)])} |"


def _cell(key: str, estimate: Estimate) -> str:
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return "–"
    interval = "" if key in ("VR", "steps") else f" ({estimate.low:.1f} to {estimate.high:.1f})"
    return f"{estimate.value:.1f}{interval}"


def _flat(setting: Setting, model: str, measured: Mapping[str, Estimate]) -> dict[str, Any]:
    numbers: dict[str, Any] = {}
    for key in SHOWN:
        estimate = measured[key]
        numbers |= {key: estimate.value, f"{key} low": estimate.low, f"{key} high": estimate.high, f"{key} n": estimate.n}
    return {**vars(setting), "model": model, **numbers}


def _scores(given: argparse.Namespace, model: str, setting: Setting) -> dict[str, Estimate]:
    data = {
        "name": "lab:wardrobe",
        "count": given.images,
        "seed": setting.seed,
        "split": given.split,
        "distribution": given.distribution,
    }
    spec = protocols.parse(
        {
            "model": model,
            "data": data,
            "generator": {"name": setting.generator, **({"space": given.space} if setting.generator == "lab:vqgan" else {})},
            "oracle": "lab:clip",
            "seed": setting.seed,
            "search": {"norm": setting.norm, "step": setting.step, "budget": setting.budget},
            "device": given.device,
            "engine": {"slots": 128 if given.device.startswith("cuda") else 32},
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        return dict(protocols.run(spec, Path(folder) / "run").scores)


def _apart(low: Estimate, high: Estimate) -> tuple[bool, str]:
    """Whether two intervals are apart and in order, and by how many of their half-widths the values are."""
    if low.value is None or low.low is None or low.high is None or high.value is None or high.low is None or high.high is None:
        return False, f"undefined: {low.note or high.note}"
    spread = max(1e-9, ((low.high - low.low) ** 2 + (high.high - high.low) ** 2) ** 0.5 / 2)
    verdict = "apart" if low.high < high.low else "overlapping" if low.value < high.value else "IN THE WRONG ORDER"
    points = high.value - low.value
    return verdict == "apart", f"{points:+.1f} points, {points / spread:.2f} half-widths, {verdict}"


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
    add_keep(parser)
    return parser.parse_args()


if __name__ == "__main__":
    main()
