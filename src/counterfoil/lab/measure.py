"""`python -m counterfoil.lab.measure NAME …`: measure the lab's models on garments that no recipe has seen.

Every number comes with its n and a 95 % interval. With `--keep` they are written beside the weights, from where
`counterfoil.lab.cards` makes the model cards. The splits, all of Fashion-MNIST's test split, each with scenes of its own:

- `tune`: garments that ship, to choose by; never kept.
- `report`: garments that ship and that no choice should be made by.
- `fresh`: usable garments that do not ship.
- `whole`: every garment of the eight classes, those that are left out elsewhere included; no target is set on it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from counterfoil.core.errors import BadData, UsageError
from counterfoil.lab.commands import errors_in_a_line, usable_device
from counterfoil.lab.measures.attributes import attributes
from counterfoil.lab.measures.bench import REPORT, SEEDS, TUNE, WHOLE, Bench
from counterfoil.lab.measures.classifiers import classifier
from counterfoil.lab.measures.decoders import ddpm, vqgan
from counterfoil.lab.measures.language import blip, rewriter
from counterfoil.lab.measures.painter import diffusion
from counterfoil.lab.measures.record import FILES, Record
from counterfoil.lab.measures.zero_shot import clip
from counterfoil.lab.places import WEIGHTS, known
from counterfoil.lab.readings import Reading
from counterfoil.lab.train.classifiers import RECIPES

MEASURES: Mapping[str, Callable[[Bench], list[Reading]]] = {
    "vqgan": vqgan,
    "clip": clip,
    "diffusion": diffusion,
    "blip": blip,
    "rewriter": rewriter,
    "ddpm": ddpm,
    "attributes": attributes,
    **{name: partial(classifier, name=name) for name in RECIPES},
}
COUNTS: Mapping[str, int] = {
    **dict.fromkeys(("clip", "attributes", *RECIPES), 4000),
    **dict.fromkeys(("vqgan", "diffusion", "blip", "rewriter"), 1000),
    "ddpm": 400,
}
"""How many scenes each model is measured on: many where they are cheap."""
WORDS_ALONE = ("diffusion", "rewriter")
"""The models that are given captions: on other garments they would be given nothing else, so `whole` says nothing of them."""


def measure(bench: Bench, name: str) -> Record:
    """Measure one model."""
    if not any((bench.weights / name / file).is_file() for file in ("config.json", "model_index.json")):
        raise BadData(f"{bench.weights} has no model in a folder {name}; 'python -m counterfoil.lab.train {name}' makes one")
    if name in WORDS_ALONE and bench.split == WHOLE:
        raise BadData(f"lab:{name} is given words and sees no garment, so there is nothing to measure on {WHOLE}")
    bench = replace(bench, hashes={})
    readings = MEASURES[name](bench)
    if bench.split == WHOLE:
        readings = [replace(reading, at_least=None, at_most=None) for reading in readings]
    return Record.of(bench, readings)


def command(name: str, record: Record) -> str:
    """The command that gives these readings."""
    parts = ["python -m counterfoil.lab.measure", name]
    parts += [f"--split {record.split}"] if record.split != REPORT else []
    parts += [f"--count {record.count}"] if record.count != COUNTS[name] else []
    parts += [f"--device {record.device}"] if record.device != "cpu" else []
    return " ".join(parts)


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line, measure, print, and keep what is to be kept."""
    with errors_in_a_line():
        given = _arguments(arguments)
        names = given.names or [name for name in MEASURES if not (given.split == WHOLE and name in WORDS_ALONE)]
        bench = Bench(weights=given.weights, device=usable_device(given.device), split=given.split, data=given.data)
        for name in names:
            record = measure(replace(bench, count=given.count or COUNTS[name]), name)
            for reading in record.readings:
                print(f"{name:20} {_line(reading)}", flush=True)
            if given.keep:
                record.write(given.weights / name / FILES[given.split])


def _line(reading: Reading) -> str:
    held = {True: "held", False: "MISSED", None: ""}[reading.holds]
    interval = f"[{reading.low:.2f}, {reading.high:.2f}]"
    return f"{reading.name:55} {reading.value:7.2f} {interval} {reading.unit} n={reading.n} {held}".rstrip()


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m counterfoil.lab.measure", description="Measure the lab's models.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: all of {', '.join(MEASURES)}")
    parser.add_argument(
        "--split",
        default=REPORT,
        choices=SEEDS,
        help="tune: garments to choose by; report (default): others that ship; fresh: usable ones that do not ship; "
        "whole: all of the test split. The last two need Fashion-MNIST's files",
    )
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="Fashion-MNIST's idx files; default: where Debian puts them")
    parser.add_argument("--weights", type=Path, default=WEIGHTS, metavar="FOLDER", help="the models; default: those that ship")
    parser.add_argument("--device", default="cpu", help="cpu (default) or cuda")
    parser.add_argument("--count", type=int, help="scenes; default: 4,000, or less where a model is slow")
    parser.add_argument("--keep", action="store_true", help=f"write {', '.join(FILES.values())} into the models' folders")
    given = parser.parse_args(arguments)
    given.names = [known(name, MEASURES) for name in given.names]
    if given.count is not None and given.count < 2:
        raise UsageError(f"--count is a number of scenes, at least 2, got {given.count}")
    if given.keep and given.split == TUNE:
        raise UsageError(f"--keep: choices are made by {TUNE}, so its readings are not kept; take --split {REPORT}")
    return given


if __name__ == "__main__":
    main()
