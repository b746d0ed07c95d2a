"""`python -m lab.training.measure NAME …`: measure the lab's models on garments that no recipe has seen.

Every number comes with its n and a 95 % interval. With `--keep` they are written next to the weights, from where
`lab.training.cards` makes the model cards. The splits, all of Fashion-MNIST's test split, each with scenes of its own:

- `tune`: garments that ship, to choose by; never kept.
- `report`: garments that ship and that no choice should be made by.
- `fresh`: usable garments that do not ship.
- `whole`: every garment of the eight classes, those that are left out elsewhere included; no target is set on it.
"""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import torch
from lab.training.classifiers import RECIPES
from lab.training.measurements import (
    FRESH,
    REPORT,
    SEEDS,
    TUNE,
    WHOLE,
    Bench,
    attributes,
    blip,
    classifier,
    clip,
    ddpm,
    diffusion,
    rewriter,
    vqgan,
)

from counterfoil.core.errors import BadData, UsageError
from counterfoil.protocols.workspace import versions
from counterfoil_lab.checker import Reading
from counterfoil_lab.parts import WEIGHTS, check_name

FILES = {REPORT: "measured.json", FRESH: "measured_fresh.json", WHOLE: "measured_whole.json"}
"""Files of the readings of each split; those of `tune`, which choices are made by, never are."""


@dataclass(frozen=True)
class Record:
    """One model's readings on one split."""

    split: str
    seed: int
    count: int
    device: str
    machine: str
    versions: dict[str, str] = field(default_factory=dict)
    weights: dict[str, str] = field(default_factory=dict)
    """SHA-256 of the model's weight files and of those of every judge, by their path below the folder of the lab's models."""
    readings: list[Reading] = field(default_factory=list)

    @classmethod
    def of(cls, bench: Bench, readings: Sequence[Reading]) -> Self:
        """The record of what was just measured."""
        return cls(
            split=bench.split,
            seed=bench.seed,
            count=bench.count,
            device=bench.device,
            machine=machine(bench.device),
            versions=versions(),
            weights=dict(sorted(bench.hashes.items())),
            readings=list(readings),
        )

    @classmethod
    def read(cls, path: Path) -> Self:
        """The record in a file."""
        return cls.parse(json.loads(path.read_text(encoding="utf-8")))

    @classmethod
    def parse(cls, content: dict[str, Any]) -> Self:
        """The record of plain data; of older ones, which held less, what is missing is empty or 0."""
        readings = [Reading(**reading) for reading in content["readings"]]
        return cls(
            split=content.get("split") or content["garments"],
            seed=content["seed"] if "seed" in content else content["scenes_seed"],
            count=content.get("count", 0),
            device=content.get("device", ""),
            machine=content.get("machine", ""),
            versions=content.get("versions", {}),
            weights=content.get("weights", {}),
            readings=readings,
        )

    def write(self, path: Path) -> None:
        """Put the record into a file."""
        content = {**vars(self), "readings": [reading.record() for reading in self.readings]}
        path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def machine(device: str) -> str:
    """Return what computes: the GPU's name, or the processor's."""
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name(device)
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())


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
"""Scenes that each model is measured on: many where they are cheap."""
WORDS_ALONE = ("diffusion", "rewriter")
"""The models that are given captions: on other garments they would be given nothing else, so `whole` says nothing of them."""


def measure(bench: Bench, name: str) -> Record:
    """Measure one model."""
    if not any((bench.weights / name / file).is_file() for file in ("config.json", "model_index.json")):
        raise BadData(f"{bench.weights} has no model in a folder {name}; 'python -m lab.training.train {name}' makes one")
    if name in WORDS_ALONE and bench.split == WHOLE:
        raise BadData(f"lab:{name} is given words and sees no garment, so there is nothing to measure on {WHOLE}")
    bench = replace(bench, hashes={})
    readings = MEASURES[name](bench)
    if bench.split == WHOLE:
        readings = [replace(reading, at_least=None, at_most=None) for reading in readings]
    return Record.of(bench, readings)


def command(name: str, record: Record) -> str:
    """The command that gives these readings."""
    parts = ["python -m lab.training.measure", name]
    parts += [f"--split {record.split}"] if record.split != REPORT else []
    parts += [f"--count {record.count}"] if record.count != COUNTS[name] else []
    parts += [f"--device {record.device}"] if record.device != "cpu" else []
    return " ".join(parts)


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line, measure, print, and keep what is to be kept."""
    given = _arguments(arguments)
    names = given.names or [name for name in MEASURES if not (given.split == WHOLE and name in WORDS_ALONE)]
    bench = Bench(weights=given.weights, device=given.device, split=given.split, data=given.data)
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
    parser = argparse.ArgumentParser(prog="python -m lab.training.measure", description="Measure the lab's models.")
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
    given.names = [check_name(name, MEASURES) for name in given.names]
    if given.count is not None and given.count < 2:
        raise UsageError(f"--count is a number of scenes, at least 2, got {given.count}")
    if given.keep and given.split == TUNE:
        raise UsageError(f"--keep: choices are made by {TUNE}, so its readings are not kept; take --split {REPORT}")
    return given


if __name__ == "__main__":
    main()
