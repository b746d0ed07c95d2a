"""Whether LANCE finds the lab's planted flaws, how faithful the edits it accepts are, and how long it takes.

    python -m bench.lance [--images 40] [--split report] [--out counterfoil-demo/lance] [--set KEY=VALUE …]

Makes the demo's run, or reads it if it is there. For each classifier: the drop of every factor, the largest one and whether it
can be chance, and the groups of edits beyond chance at 1 %. The attribute checker, which took no part, reads the accepted
pictures: is the asked-for change there, is the garment the same, is everything else as it was? Exit code 1 if a planted flaw is
not found.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import torch
from lab.training.edit_faithfulness import Outcome, by_factor, outcome, readings

from counterfoil import protocols
from counterfoil.metrics.tables import p_text
from counterfoil.parts import images
from counterfoil.protocols.base import Progress
from counterfoil.protocols.lance.results import lance_results
from counterfoil.protocols.lance.spec import LanceSpec
from counterfoil.store import Run
from counterfoil_lab.captions import PLACES, parse
from counterfoil_lab.checker import Checker
from counterfoil_lab.demo import LANCE as SPEC
from counterfoil_lab.demo import LANCE_MODELS as MODELS
from counterfoil_lab.world import FACTORS, PLANTED_BACKGROUNDS, PLANTED_COLOURS

BOUND = 8.0  # points that no factor may cost a classifier without a flaw
LEVEL = 0.01
PLANTED = {
    "lab:background-shortcut": ("background", {name: PLACES[place] for name, place in PLANTED_BACKGROUNDS.items()}),
    "lab:colour-shortcut": ("adjective", dict(PLANTED_COLOURS)),
}


def main() -> None:
    """Run, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=40)
    parser.add_argument("--split", default="report")
    parser.add_argument("--out", type=Path, default=Path("counterfoil-demo/lance"))
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    given = parser.parse_args()
    values: dict[str, Any] = {**SPEC, "limit": given.images}
    if given.split != "report":
        values["data"] = {**SPEC["data"], "split": given.split}
    for assignment in given.settings:
        protocols.override(values, assignment)
    run = timed(protocols.parse(values), given.out)
    results = {model: lance_results(run, model=model) for model in MODELS}
    for model, found in results.items():
        print(f"\n{model}\n{protocols.get('lance').text(found)}")
    faithfulness(run)
    verdicts = list(judged(results))
    print()
    for passed, line in verdicts:
        print(f"{'pass' if passed else 'FAIL'}  {line}")
    sys.exit(not all(passed for passed, _ in verdicts))


def timed(asked: LanceSpec, out: Path) -> Run:
    """The run, with the seconds of every stage."""
    began: dict[str, float] = {}

    def watch(progress: Progress) -> None:
        began.setdefault(progress.stage, time.monotonic())

    run = protocols.run(asked, out, watch=watch, tell=print)
    ends = [*list(began.values())[1:], time.monotonic()]
    seconds = {stage: end - start for (stage, start), end in zip(began.items(), ends, strict=True)}
    print(", ".join(f"{stage} {spent:.0f} s" for stage, spent in seconds.items()), f"(threads: {torch.get_num_threads()})")
    return run


def faithfulness(run: Run) -> None:
    """What the attribute checker reads off the pictures that quality control and oracle accepted."""
    checker = Checker()
    accepted = {verdict.trial_id for verdict in run.verdicts() if verdict.picture == "made" and verdict.keeps_label}
    found: list[Outcome] = []
    for trial in run.trials:
        wanted, had = parse(trial.prompt), parse(trial.caption)
        if trial.trial_id not in accepted or wanted is None or had is None:
            continue
        (factor,) = [name for name in FACTORS if wanted[name] != had[name]]
        read = checker.read(torch.stack([images.read(run.picture(trial, kind)) for kind in ("clean", "made")]))
        source, edited = ({name: int(rows[place]) for name, rows in read.items()} for place in (0, 1))
        places = {name: FACTORS[name].index(value) for name, value in wanted.items()}
        found.append(outcome(factor, wanted=places, source=source, edited=edited))
    print("\nread off the accepted edits by the attribute checker, per cent with 95 % intervals")
    for one in [*readings(found), *(each for each in by_factor(found) if each.name.endswith("asked change found"))]:
        print(f"{one.name:<32} {one.value:5.1f} ({one.low:.0f} to {one.high:.0f}), n {one.n}")


def judged(results: dict[str, dict[str, Any]]) -> Any:
    """Every demand with whether it is met."""
    for model, (factor, planted) in PLANTED.items():
        found = results[model]
        own = found["factors"].get(factor, {"p_adjusted": 1.0})
        largest = (found["largest"] or {}).get("factor")
        yield largest == factor, f"{model}: largest drop is {largest}, planted is {factor}"
        yield own["p_adjusted"] <= LEVEL, f"{model}: the drop of {factor} is beyond chance, p = {p_text(own['p_adjusted'])}"
        heads = [_is_planted(entry, planted) for entry in found["bias"][:3]]
        yield bool(heads) and all(heads), f"{model}: {sum(heads)} of the first {len(heads)} biases are planted pairs"
        sure = [_is_planted(entry, planted) for entry in found["bias"] if entry["p_adjusted"] <= LEVEL]
        yield all(sure), f"{model}: {sum(sure)} of {len(sure)} biases beyond chance are planted pairs"
    worst = max((entry["drop"]["value"] or 0.0 for entry in results["lab:diverse"]["factors"].values()), default=0.0)
    yield worst <= BOUND, f"lab:diverse: largest drop {worst:.1f} points, at most {BOUND:g}"


def _is_planted(entry: dict[str, Any], planted: dict[str, str]) -> bool:
    removed = entry["name"].split(" → ")[0]
    return planted[entry["class"]] in removed or (removed in planted[entry["class"]] and removed != "nothing")


if __name__ == "__main__":
    main()
