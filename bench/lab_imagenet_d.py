"""ImageNet-D on the lab: is what several models miss hard for others, and are the paintings what was asked for?

    python -m bench.lab_imagenet_d [--out DIR] [--images 216] [--seed 0] [--device cpu] [--keep NAME]

1. Transfer: classifiers that took no part are at least 15 points worse on the mined set than on what was painted, at 1 %: on
   average over all of them, and each by itself of those whose training left gaps. The one that has seen the whole world in
   training is the control: it still recognises what was kept, so that the set is hard and not broken.
2. Faithfulness: before mining, the lab's attribute checker finds garment and nuisance in at least 85 % of each kind.
3. Planted flaw: the background-shortcut classifier's mistakes are background-driven far more often than those of the diverse
   one, per image and at 1 %.

The same directory resumes an interrupted run. Exit code 1 if a claim does not hold.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from bench.results import add_keep, command, keep
from scipy.stats import fisher_exact

from counterfoil import protocols, store
from counterfoil.metrics.tables import p_text
from counterfoil_lab.checker import faithfulness
from counterfoil_lab.demo import CONTROL
from counterfoil_lab.demo import PAINTED as IMAGES
from counterfoil_lab.demo import imagenet_d_spec as demo_spec

DROP, SOUND, FAITHFUL, LEVEL = 15.0, 90.0, 85.0, 0.01
COVERS = ("src/counterfoil/protocols/imagenet_d", "src/counterfoil/metrics/mining.py", "lab/src/counterfoil_lab")


def main() -> None:
    """Run, print, keep, judge."""
    given = _arguments()
    spec = demo_spec(given.images).model_copy(update={"seed": given.seed, "device": given.device})
    run = protocols.run(spec, given.out, tell=print)
    print(protocols.get("imagenet-d").text(run.results or {}), "\n")
    held = [*_transfer(run), *_faithful(run), _finds_planted(run)]
    if given.keep:
        about = (
            f"{given.images} images painted and mined by four surrogates: accuracy of models that took no part, and faithfulness."
        )
        keep(given.keep, _rows(run), command=command("bench.lab_imagenet_d"), about=about, covers=COVERS)
    sys.exit(not all(held))


def _rows(run: store.Run) -> list[dict[str, Any]]:
    """Return what models make of the set, and what the checker reads off the paintings."""
    results = run.results or {}
    unseen = {name: entry for name, entry in results["models"].items() if entry["role"] == "unseen"}
    found = {f"{name}, {what}": entry[what] for name, entry in unseen.items() for what in ("painted", "mined", "drop")}
    rows = [{"what": "mean drop", **results["drop"]}, *({"what": what, **each} for what, each in found.items())]
    for each in faithfulness(run, run.trials):
        one = each.both
        rows.append(
            {"what": f"garment and {each.kind} as asked for", "value": one.value, "low": one.low, "high": one.high, "n": one.n}
        )
    return rows


def _transfer(run: store.Run) -> list[bool]:
    results = run.results or {}
    drop, p = results["drop"], results["drop_p"]
    text = f"{drop['value']:.1f} points ({drop['low']:.1f} to {drop['high']:.1f}), p {p_text(p)}"
    held = [_claim(drop["value"] >= DROP and p <= LEVEL, f"mean drop of those that took no part: {text}, at least {DROP:.0f}")]
    for name, entry in results["models"].items():
        if entry["role"] == "unseen" and name != CONTROL:
            found, p = entry["drop"], entry["p"]
            text = f"{found['value']:.1f} points ({found['low']:.1f} to {found['high']:.1f}), p {p_text(p)}"
            held.append(_claim(found["value"] >= DROP and p <= LEVEL, f"{name} by itself: {text}, at least {DROP:.0f}"))
    mined = results["models"][CONTROL]["mined"]
    text = f"{mined['value']:.1f} % ({mined['low']:.1f} to {mined['high']:.1f}, n {mined['n']}) of what was kept is recognised"
    held.append(_claim(mined["value"] >= SOUND, f"{text} by {CONTROL}, at least {SOUND:g}"))
    return held


def _faithful(run: store.Run) -> list[bool]:
    return [
        _claim(
            found.both.value >= FAITHFUL,
            f"{found.kind}: garment {found.garment.value:.1f} %, {found.kind} {found.nuisance.value:.1f} %, both "
            f"{found.both.value:.1f} % ({found.both.low:.1f} to {found.both.high:.1f}, n {found.both.n}), at least {FAITHFUL:g}",
        )
        for found in faithfulness(run, run.trials)
    ]


def _finds_planted(run: store.Run) -> bool:
    models = (run.results or {})["models"]
    counts = []
    for name in ("lab:background-shortcut", CONTROL):
        modes = models[name]["failure_modes"]["painted"]
        counts.append((modes["background"]["times"], modes["pictures"], modes["mistakes"]))
    (flawed, pictures, mistakes), (sound, others, few) = counts
    p = float(fisher_exact([(flawed, pictures - flawed), (sound, others - sound)], alternative="greater").pvalue)
    text = f"background-shortcut {flawed} of {mistakes} mistakes, diverse {sound} of {few}; per image p {p:.2g}"
    return _claim(flawed > 4 * sound and p <= LEVEL, f"background-driven: {text}")


def _claim(held: bool, text: str) -> bool:
    print(f"{'holds' if held else 'FAILS'}  {text}", flush=True)
    return held


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/bench-imagenet-d"))
    parser.add_argument("--images", type=int, default=IMAGES)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    add_keep(parser)
    return parser.parse_args()


if __name__ == "__main__":
    main()
