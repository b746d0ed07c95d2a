"""Check the instrument on the lab, where it is known what each classifier has learned. Exit code 1 if a demand fails.

    python -m bench.lab fmr [--images 300] [--generators lab:vqgan,lab:kl] [--seeds 0,1] [--models lab:narrow,lab:diverse]
    python -m bench.lab fmr --split tune --steps 0.02,0.03,0.05 --budgets 5,10 --norms l2,sign     # choose a setting
    python -m bench.lab fmr --distribution full --models lab:background-shortcut,lab:diverse       # shortcuts broken
    python -m bench.lab lance [--images 40] [--out DIR]
    python -m bench.lab edits [--images 60] [--inversions edit-friendly,negative-prompt,null-text] [--out DIR]
    python -m bench.lab imagenet-d [--images 216] [--out DIR]

`fmr`: `diverse` was trained on the whole world, `narrow` on its studio corner. FMR and matched FMR put the first model below the
last, their intervals apart; random steps leave every model within 5 points of where plain reconstruction does; the oracle accepts
at least 85 % of the plain reconstructions. Settings are chosen on the `tune` garments, where the demands are only printed.

`lance`: for each classifier with a planted shortcut, the largest drop and the first class biases are those planted, beyond
chance; no factor costs the one without a flaw more than 8 points. `edits`: the attribute checker, which takes no part, reads
every attribute off source and edit; one that it misreads in the source is left out of that edit's account.

`imagenet-d`: classifiers that took no part are at least 15 points worse on the mined set than on what was painted, at 1 %, on
average and each by itself of those whose training left gaps; the control, which has seen everything, still recognises what was
kept. Before mining the checker finds garment and nuisance in at least 85 % of each kind. The background-shortcut classifier's
mistakes are driven by the background far more often than those of the diverse one. A directory that is there is resumed.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from bench.results import add_keep, command, keep
from scipy.stats import fisher_exact

from counterfoil import protocols
from counterfoil.core import spec as specs
from counterfoil.core.records import Estimate
from counterfoil.metrics.tables import p_text
from counterfoil.parts import images
from counterfoil.protocols.lance.results import lance_results
from counterfoil.store import Run
from counterfoil_lab.captions import PLACES, parse
from counterfoil_lab.checker import Checker, Reading, faithfulness, mean, share
from counterfoil_lab.demo import CONTROL, LANCE, LANCE_MODELS, imagenet_d_spec
from counterfoil_lab.world import FACTORS, PLANTED_BACKGROUNDS, PLANTED_COLOURS

SHOWN = ("SA", "VR", "PA_reconstruction", "PA_random", "PA", "FMR", "FMR_matched", "steps")
PAGE = ("generator", "norm", "step", "budget", "seed", "model", "VR", "PA_reconstruction", "PA_random", "FMR_matched")
LEVEL = 0.01
DRIFT, ACCEPTED = 5.0, 85.0  # points and per cent, of FMR
BOUND = 8.0  # points, of LANCE
ASKED, CLASS, UNTOUCHED = 80.0, 95.0, 85.0  # per cent of accepted edits
DROP, SOUND, FAITHFUL = 15.0, 90.0, 85.0  # points and per cent, of ImageNet-D
PARTS_OF_SET = ("painted", "mined", "drop")
PLANTED = {
    "lab:background-shortcut": ("background", {name: PLACES[place] for name, place in PLANTED_BACKGROUNDS.items()}),
    "lab:colour-shortcut": ("adjective", dict(PLANTED_COLOURS)),
}
Values = Mapping[str, int]
"""Of each factor, a place in the vocabulary."""


PACKAGE = "src/counterfoil"
COVERS = {
    "fmr": [f"{PACKAGE}/engine", f"{PACKAGE}/parts/generators", f"{PACKAGE}/protocols/fmr"],
    "lance": [f"{PACKAGE}/protocols/lance", f"{PACKAGE}/parts/editors", f"{PACKAGE}/parts/language"],
    "edits": [f"{PACKAGE}/protocols/lance", f"{PACKAGE}/parts/editors", f"{PACKAGE}/parts/language"],
    "imagenet-d": [f"{PACKAGE}/protocols/imagenet_d", f"{PACKAGE}/metrics/mining.py"],
}
Rows = list[dict[str, Any]]
Demands = Iterable[tuple[bool, str]]
"""Lines that say what was found, each with whether it is as demanded."""


def fmr(given: argparse.Namespace) -> tuple[Rows, Demands]:
    """Measure the models in every setting."""
    models, rows, found = given.models.split(","), [], []
    options = (given.generators, given.norms, given.steps, given.budgets, given.seeds)
    for generator, norm, step, budget, seed in itertools.product(*(option.split(",") for option in options)):
        setting = {"generator": generator, "norm": norm, "step": float(step), "budget": int(budget), "seed": int(seed)}
        scores = {model: run(given, model, setting) for model in models}
        for model, measured in scores.items():
            print(*setting.values(), model, *(f"{key} {measured[key]}" for key in SHOWN), sep="  ", flush=True)
            rows.append({**setting, "model": model, **numbers(measured)})
        found += demands(scores)
    return rows, found


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


def lance(given: argparse.Namespace) -> tuple[Rows, Demands]:
    """Make the demo's run; return a row per number and model, and the demands."""
    values: dict[str, Any] = {**LANCE, "limit": given.images, "device": given.device}
    values["data"] = {**LANCE["data"], "split": given.split}
    run = protocols.run(protocols.parse(values), given.out, tell=print)
    results = {model: lance_results(run, model=model) for model in LANCE_MODELS}
    rows = []
    for name in ("accuracy_source", *LANCE["edit"]["factors"], "drop_reconstruction"):
        row = {"points": name}
        for model, found in results.items():
            each = found["factors"][name]["drop"] if name in found["factors"] else found[name]
            row[model] = f"{each['value']:.0f} ({each['low']:.0f} to {each['high']:.0f})"
        rows.append(row)
        print(row)
    return rows, lance_demands(results)


def lance_demands(results: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[bool, str]]:
    """Yield every demand on the three classifiers with whether it is met."""
    for model, (factor, planted) in PLANTED.items():
        found = results[model]
        p = found["factors"].get(factor, {"p_adjusted": 1.0})["p_adjusted"]
        largest = (found["largest"] or {}).get("factor")
        yield largest == factor and p <= LEVEL, f"{model}: largest drop is {largest}, planted is {factor}, p = {p_text(p)}"
        heads = [_is_planted(entry, planted) for entry in found["bias"][:3]]
        yield bool(heads) and all(heads), f"{model}: {sum(heads)} of the first {len(heads)} biases are planted pairs"
        sure = [_is_planted(entry, planted) for entry in found["bias"] if entry["p_adjusted"] <= LEVEL]
        yield all(sure), f"{model}: {sum(sure)} of {len(sure)} biases beyond chance are planted pairs"
    worst = max((entry["drop"]["value"] or 0.0 for entry in results["lab:diverse"]["factors"].values()), default=0.0)
    yield worst <= BOUND, f"lab:diverse: largest drop {worst:.1f} points, at most {BOUND:g}"


def _is_planted(entry: Mapping[str, Any], planted: Mapping[str, str]) -> bool:
    removed = entry["name"].split(" → ")[0]
    return planted[entry["class"]] in removed or (removed in planted[entry["class"]] and removed != "nothing")


@dataclass(frozen=True)
class Outcome:
    """One accepted edit, as the checker reads it."""

    factor: str  # the one that was to change
    hit: bool
    kept: Mapping[str, bool]  # of every other factor that the checker reads right in the source


def edits(given: argparse.Namespace) -> tuple[Rows, Demands]:
    """Edit scenes under each inversion; return what the checker reads, and the demands."""
    rows, found = [], []
    for inversion in given.inversions.split(","):
        values = {
            **LANCE,
            "limit": given.images,
            "device": given.device,
            "data": {"name": "lab:wardrobe", "distribution": "full", "split": given.split},
            "captioner": "captions:",
            "editor": {"name": "lab:diffusion", "inversion": inversion},
            "others": [],
        }
        run = protocols.run(protocols.parse(values), given.out / inversion, tell=print)
        accepted = {verdict.trial_id for verdict in run.verdicts() if verdict.picture == "made" and verdict.keeps_label}
        asked = [trial for trial in run.trials if trial.arm == "edited"]
        rows.append(
            {"inversion": inversion, "what": "edits accepted of those asked for", "value": len(accepted), "n": len(asked)}
        )
        for one in [*readings(outcomes(run, accepted)), reconstruction(run)]:
            bars = {"at least": one.at_least} if one.at_least is not None else {}
            ends = {name: round(getattr(one, name), 1) for name in ("value", "low", "high")}
            rows.append({"inversion": inversion, "what": one.name, **ends, "n": one.n, "unit": one.unit, **bars})
            line = f"{inversion}: {one.name} {one.value:.1f} {one.unit} ({one.low:.1f} to {one.high:.1f}), n {one.n}"
            found.append((one.holds is not False, line))
    return rows, found


def outcomes(run: Run, accepted: set[str]) -> Iterator[Outcome]:
    """Yield what the checker reads off the accepted edits."""
    checker = Checker()
    for trial in run.trials:
        wanted, had = parse(trial.prompt), parse(trial.caption)
        if trial.trial_id not in accepted or wanted is None or had is None:
            continue
        (factor,) = [name for name in FACTORS if wanted[name] != had[name]]
        read = checker.read(torch.stack([images.read(run.picture(trial, kind)) for kind in ("clean", "made")]))
        source, edited = ({name: int(rows[place]) for name, rows in read.items()} for place in (0, 1))
        yield outcome(
            factor, wanted={name: FACTORS[name].index(value) for name, value in wanted.items()}, source=source, edited=edited
        )


def outcome(factor: str, *, wanted: Values, source: Values, edited: Values) -> Outcome:
    """Compare what a scene should be with what the checker reads off source and edit."""
    kept = {name: edited[name] == wanted[name] for name in FACTORS if name != factor and source[name] == wanted[name]}
    return Outcome(factor, edited[factor] == wanted[factor], kept)


def readings(found: Iterable[Outcome]) -> list[Reading]:
    """Return what is demanded of accepted edits: the change found, the class and every untouched attribute kept."""
    rows = list(found)
    if not rows:
        return []
    shares = [share("asked change found", torch.tensor([row.hit for row in rows]), at_least=ASKED)]
    for name in FACTORS:
        kept = [row.kept[name] for row in rows if name in row.kept]
        if kept:
            shares.append(share(f"{name} kept", torch.tensor(kept), at_least=CLASS if name == "garment" else UNTOUCHED))
    return shares


def reconstruction(run: Run) -> Reading:
    """Compare plain reconstructions with their sources, in decibels."""
    pairs = [
        [images.read(run.picture(trial, kind)) for kind in ("clean", "reconstruction")]
        for trial in run.trials
        if trial.arm == "source"
    ]
    return mean("reconstruction", torch.tensor([_psnr(*pair) for pair in pairs]), "dB")


def _psnr(image: torch.Tensor, other: torch.Tensor) -> float:
    return float(-10 * torch.log10((image - other).square().mean()))


def imagenet_d(given: argparse.Namespace) -> tuple[Rows, Demands]:
    """Paint and mine; return what models make of the set and what the checker reads off the paintings, and the demands."""
    made = protocols.run(imagenet_d_spec(given.images).model_copy(update={"device": given.device}), given.out, tell=print)
    results = made.results or {}
    print(protocols.get("imagenet-d").text(results), "\n")
    unseen = {name: entry for name, entry in results["models"].items() if entry["role"] == "unseen"}
    drops = [("mean drop of those that took no part", results["drop"], results["drop_p"])]
    drops += [(f"{name} by itself", entry["drop"], entry["p"]) for name, entry in unseen.items() if name != CONTROL]
    found = [
        (each["value"] >= DROP and p <= LEVEL, f"{what}: {_text(each)} points, p {p_text(p)}, at least {DROP:.0f}")
        for what, each, p in drops
    ]
    kept = unseen[CONTROL]["mined"]
    found.append((kept["value"] >= SOUND, f"{CONTROL} recognises {_text(kept)} % of what was kept, at least {SOUND:g}"))
    rows: Rows = [{"what": "mean drop", **results["drop"]}]
    rows += [
        {"what": f"{name}, {what}", **entry[what]} for name, entry in unseen.items() for what in ("painted", "mined", "drop")
    ]
    for kind in faithfulness(made, made.trials):
        both = {name: getattr(kind.both, name) for name in ("value", "low", "high", "n")}
        rows.append({"what": f"garment and {kind.kind} as asked for", **both})
        found.append((both["value"] >= FAITHFUL, f"garment and {kind.kind}: {_text(both)} %, at least {FAITHFUL:g}"))
    return rows, [*found, _driven_by_background(results)]


def _text(each: Mapping[str, Any]) -> str:
    return f"{each['value']:.1f} ({each['low']:.1f} to {each['high']:.1f}, n {each['n']})"


def _driven_by_background(results: Mapping[str, Any]) -> tuple[bool, str]:
    modes = [results["models"][name]["failure_modes"]["painted"]["background"] for name in ("lab:background-shortcut", CONTROL)]
    flawed, sound = (mode["times"] for mode in modes)
    p = float(fisher_exact([(mode["times"], mode["pictures"] - mode["times"]) for mode in modes], alternative="greater").pvalue)
    text = " and ".join(f"{mode['times']} of {mode['mistakes']}" for mode in modes)
    return flawed > 4 * sound and p <= LEVEL, f"background drives {text} mistakes of background-shortcut and diverse, p {p:.2g}"


CHECKS: dict[str, tuple[Callable[[argparse.Namespace], tuple[Rows, Demands]], int, str]] = {
    "fmr": (fmr, 300, "FMR of lab classifiers whose order is known, by generator, setting and seed."),
    "lance": (lance, 40, "Accuracy on the sources and points lost to accepted edits; two models have a planted shortcut."),
    "edits": (edits, 60, "Accepted edits of the lab's scenes as an attribute checker reads them that took no part."),
    "imagenet-d": (imagenet_d, 216, "Accuracy of models that took no part in mining, and faithfulness of the paintings."),
}


def main() -> None:
    """Run a check, print and keep its rows, and end with 1 if a demand fails."""
    defaults = specs.SearchSpec()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("check", choices=CHECKS)
    parser.add_argument("--images", type=int)
    parser.add_argument("--models", default="lab:narrow,lab:diverse", help="of fmr; the one that should be lowest first")
    parser.add_argument("--generators", default="lab:vqgan,lab:kl")
    parser.add_argument("--seeds", default="0,1")
    parser.add_argument("--split", default="report", choices=("report", "tune"))
    parser.add_argument("--distribution", default="narrow")
    parser.add_argument("--steps", default=str(defaults.step or 0.03))
    parser.add_argument("--budgets", default=str(defaults.budget))
    parser.add_argument("--norms", default=defaults.norm)
    parser.add_argument("--inversions", default="edit-friendly,negative-prompt,null-text")
    parser.add_argument("--out", type=Path, help="directory of the run, which is resumed; default runs/bench-CHECK")
    parser.add_argument("--device", default="cpu")
    add_keep(parser)
    given = parser.parse_args()
    check, count, about = CHECKS[given.check]
    given.images, given.out = given.images or count, given.out or Path("runs") / f"bench-{given.check}"
    rows, found = check(given)
    passed = True
    for held, line in found:
        print(f"{'pass' if held else 'FAIL'}  {line}", flush=True)
        passed &= held
    if given.keep:
        covers = [*COVERS[given.check], "lab/src/counterfoil_lab"]
        shown = PAGE if given.check == "fmr" else ()
        keep(given.keep, rows, command=command("bench.lab"), about=about, covers=covers, shown=shown)
    sys.exit(given.split == "report" and not passed)


if __name__ == "__main__":
    main()
