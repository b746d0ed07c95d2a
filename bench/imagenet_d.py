"""Does mining do on the lab what it should? Runs the demo's specification, or reads a run, and checks what it must show.

    python -m bench.imagenet_d [--out DIR] [--images 216] [--seed 0] [--device cpu]

1. Transfer: classifiers that took no part are at least 15 points worse on the mined set than on what was painted, at 1 %: on
   average over all of them, and each by itself of those whose training left gaps. The one that has seen the whole world in
   training is the control: it still recognises what was kept, so that the set is hard and not spoilt.
2. Faithfulness: before mining, the lab's attribute checker finds garment and nuisance in at least 85 % of each kind.
3. Planted flaw: the background-shortcut classifier's mistakes are sorted as background-driven far more often than those of
   the diverse one, per picture and at 1 %.
4. Time: prompts to exported set within ten minutes on two cores (only where this run made everything).

The same directory goes on with an interrupted run. Exit code 1 if a claim does not hold.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path

from scipy.stats import fisher_exact

from counterfoil import protocols, store
from counterfoil.metrics.tables import p_text
from counterfoil.report.export import export
from counterfoil_lab.checker import faithfulness
from counterfoil_lab.demo import CONTROL
from counterfoil_lab.demo import PAINTED as IMAGES
from counterfoil_lab.demo import imagenet_d_spec as demo_spec

DROP, SOUND, FAITHFUL, LEVEL, MINUTES = 15.0, 90.0, 85.0, 0.01, 10.0


def main() -> None:
    given = _arguments()
    fresh, begun = not given.out.exists(), time.monotonic()
    spec = demo_spec(given.images).model_copy(update={"seed": given.seed, "device": given.device})
    run = protocols.run(spec, given.out, tell=print)
    shutil.rmtree(given.out.with_name(given.out.name + "-set"), ignore_errors=True)
    export(run, given.out.with_name(given.out.name + "-set"), licence="MIT")
    minutes = (time.monotonic() - begun) / 60
    print(protocols.get("imagenet-d").text(run.results or {}), "\n")
    held = [*_transfer(run), *_faithful(run), _planted(run)]
    if fresh:
        held.append(_claim(minutes <= MINUTES, f"prompts to set in {minutes:.1f} minutes, at most {MINUTES:.0f}"))
    sys.exit(0 if all(held) else 1)


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


def _planted(run: store.Run) -> bool:
    models = (run.results or {})["models"]
    counts = []
    for name in ("lab:background-shortcut", CONTROL):
        modes = models[name]["failure_modes"]["painted"]
        counts.append((modes["background"]["times"], modes["pictures"], modes["mistakes"]))
    (flawed, pictures, mistakes), (sound, others, few) = counts
    p = float(fisher_exact([(flawed, pictures - flawed), (sound, others - sound)], alternative="greater").pvalue)
    text = f"background-shortcut {flawed} of {mistakes} mistakes, diverse {sound} of {few}; per picture p {p:.2g}"
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
    return parser.parse_args()


if __name__ == "__main__":
    main()
