"""Coverage and width of every printed interval that bench/coverage.py has no population for, on made-up data of known truth.

    python -m bench.coverage_others [--repetitions 1000] [--images 60 300]

Each statistic is estimated by the code that the product prints it with. A full run takes about four minutes on one core.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.random import Generator

from counterfoil.core.records import Estimate
from counterfoil.metrics.agreement import agreement
from counterfoil.metrics.estimate import estimate
from counterfoil.protocols.fmr.results import _AUDIT, STATISTICS
from counterfoil.protocols.fmr.transfer import HARM
from counterfoil.protocols.imagenet_d.surrogates import _accuracy
from counterfoil.protocols.lance.bias import _STATISTICS as GROUPS
from counterfoil.protocols.lance.realism import _geometric
from counterfoil.protocols.lance.results import STATISTICS as LANCE
from counterfoil.studies.oracles import _FMR, Standardised

LOW = 92.0  # per cent: below, an interval falls short by more than chance over a thousand repetitions
Found = Mapping[str, tuple[Estimate, float]]
"""By statistic, the estimate of one repetition and the truth."""


def fmr(draw: Generator, images: int, seed: int) -> Found:
    """Shares, ratios and means of FMR, its controls and its audit."""
    clean, accepted = draw.random(images) < 0.9, draw.random(images) < 0.8
    made, plain, random = (draw.random(images) < share for share in (0.4, 0.85, 0.7))
    random_accepted, sees = draw.random(images) < 0.75, draw.random(images) < 0.95
    steps, random_steps = draw.integers(0, 11, images), draw.integers(0, 11, images)
    columns: dict[str, Any] = {
        "clean": np.ones(images), "clean_right": clean, "judged": np.ones(images), "accepted": accepted,
        "made": accepted, "made_right": accepted & made, "matched": accepted, "matched_made_right": accepted & made,
        "matched_clean_right": accepted & clean, "reconstruction": accepted, "reconstruction_right": accepted & plain,
        "random_accepted": random_accepted, "random": random_accepted, "random_right": random_accepted & random,
        "steps": accepted * steps, "random_steps": random_accepted * random_steps,
    }  # fmt: skip
    truth = {
        "SA": 90.0, "PA": 40.0, "FMR": 100 * 0.4 / 0.9, "SA_matched": 90.0, "FMR_matched": 100 * 0.4 / 0.9, "VR": 80.0,
        "PA_reconstruction": 85.0, "PA_random": 70.0, "FMR_random": 100 * 0.7 / 0.9, "steps": 5.0, "steps_random": 5.0,
    }  # fmt: skip
    found = {name: (each, truth[name]) for name, each in estimate(columns, STATISTICS, seed=seed).items()}
    audit = {
        "oracle_asked": np.ones(images), "oracle_right": sees, "judged": np.ones(images), "rejected": ~accepted,
        "decided": np.ones(images), "clean_right": clean, "right_if_lost": accepted & made,
        "right_if_kept": (accepted & made) | (~accepted & clean),
    }  # fmt: skip
    kept = 0.8 * 0.4 + 0.2 * 0.9
    known = {
        "clean_accuracy": 95,
        "lost": 20,
        "PA_kept": 100 * kept,
        "PA_lost": 32,
        "FMR_kept": 100 * kept / 0.9,
        "FMR_lost": 32 / 0.9,
    }
    found |= {f"audit {name}": (each, float(known[name])) for name, each in estimate(audit, _AUDIT, seed=seed).items()}
    harmed = {"both": accepted, "both_before_right": accepted & plain, "both_made_right": accepted & made}
    return {**found, "harm": (estimate(harmed, {"": HARM}, seed=seed)[""], 45.0)}


def lance(draw: Generator, images: int, seed: int) -> Found:
    """Accuracies, drops and sensitivity over one to six edits per source, and a group of them."""
    image = np.repeat(np.arange(images), draw.integers(1, 7, images))
    luck = draw.random(images)[image]
    alike = draw.random(len(image)) < 0.5
    clean = draw.random(images)[image] < 0.9
    made = np.where(alike, luck, draw.random(len(image))) < 0.6
    plain = draw.random(images)[image] < 0.85
    moved = 100 * draw.beta(1, 4, len(image))
    ones = np.ones(len(image), dtype=bool)
    columns: dict[str, Any] = {
        "pairs": ones, "clean_right": clean, "made_right": made, "reconstructed": ones, "reconstruction_right": plain,
        "clean_right_reconstructed": clean, "moved": moved, "judged": ones, "accepted": made,
    }  # fmt: skip
    truth = {"accuracy_source": 90, "accuracy_edited": 60, "drop": 30, "sensitivity": 20, "drop_reconstruction": 5, "VR": 60}
    wanted = {name: each for name, each in LANCE.items() if name in truth}
    found = {name: (each, float(truth[name])) for name, each in estimate(columns, wanted, clusters=image, seed=seed).items()}
    inside = draw.random(len(image)) < 0.3
    group = {
        "group": inside, "moved": np.where(inside, moved, 0), "before": inside & clean, "after": inside & made,
        "others": ~inside, "moved_others": np.where(inside, 0, moved),
    }  # fmt: skip
    known = {"sensitivity": 20.0, "drop": 30.0, "others": 20.0}
    return {
        **found,
        **{f"group {name}": (each, known[name]) for name, each in estimate(group, GROUPS, clusters=image, seed=seed).items()},
    }


def others(draw: Generator, images: int, seed: int) -> Found:
    """FMR by class, accuracy by the number of surrogates, perplexity, and agreement of reviewers."""
    classes, kept, accepting = 6, np.linspace(0.2, 0.8, 6), np.linspace(0.4, 0.95, 6)
    label = draw.integers(classes, size=images)
    clean, accepted, made = draw.random(images) < 0.9, draw.random(images) < accepting[label], draw.random(images) < kept[label]
    strata: dict[str, Any] = {}
    parts = []
    for at in range(classes):
        mine = label == at
        if (mine & accepted).any():
            strata |= {f"{at} made": mine & accepted, f"{at} made_right": mine & accepted & made}
            strata |= {f"{at} clean": mine, f"{at} clean_right": mine & clean}
            parts.append(_FMR.prefixed(f"{at} "))
    by_class = estimate(strata, {"": Standardised(tuple(parts))}, seed=seed)[""]
    sets = [draw.random(images) < 0.5 for _ in range(4)]
    right = np.mean([draw.random(images) < share for share in (0.3, 0.5)], axis=0)
    by_number = Estimate.from_dict(_accuracy(sets, right, np.arange(images), seed=(seed,))["accuracy"])
    perplexity = _geometric(np.exp(draw.normal(3, 0.8, images)).tolist())
    votes = {at: [bool(each) for each in draw.random(3) < (0.9 if at % 2 else 0.2)] for at in range(images)}
    raw = agreement(votes, seed=seed, resamples=1000).raw
    agree = 100 * np.mean([0.9**2 + 0.1**2, 0.2**2 + 0.8**2])
    return {
        "FMR_by_class": (by_class, float(100 * kept.mean() / 0.9)), "accuracy by number of surrogates": (by_number, 40.0),
        "perplexity": (perplexity, float(np.exp(3))), "raw agreement": (raw, float(agree)),
    }  # fmt: skip


WORLDS: Mapping[str, Callable[[Generator, int, int], Found]] = {"fmr": fmr, "lance": lance, "others": others}


def tally(world: str, images: int, *, repetitions: int) -> dict[str, tuple[float, float, int]]:
    """By statistic: per cent of intervals that hold the truth, their mean width, and the number of intervals."""
    held: dict[str, list[bool]] = {}
    widths: dict[str, list[float]] = {}
    for repetition in range(repetitions):
        for name, (found, truth) in WORLDS[world](np.random.default_rng((repetition, images)), images, repetition).items():
            if found.low is not None and found.high is not None:
                held.setdefault(name, []).append(found.low - 1e-9 <= truth <= found.high + 1e-9)
                widths.setdefault(name, []).append(found.width)
    return {name: (100 * float(np.mean(each)), float(np.mean(widths[name])), len(each)) for name, each in held.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=1000)
    parser.add_argument("--images", type=int, nargs="*", default=[60, 300])
    options = parser.parse_args()
    began, missed = time.monotonic(), []
    print("| images | statistic | coverage, % | mean width |\n|--:|---|--:|--:|")
    for images in options.images:
        for world in WORLDS:
            for name, (share, width, _) in tally(world, images, repetitions=options.repetitions).items():
                print(f"| {images} | {name} | {share:.1f} | {width:.1f} |", flush=True)
                if share < LOW - 300 * np.sqrt(0.95 * 0.05 / options.repetitions):
                    missed.append(f"{name}, {images}: {share:.1f}")
    print(f"\n{options.repetitions} repetitions, {time.monotonic() - began:.0f} s")
    if missed:
        sys.exit("not as it should be: " + "; ".join(missed))


if __name__ == "__main__":
    main()
