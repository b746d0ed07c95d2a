"""What a measurement leaves behind: the readings, and everything that someone who wants them again has to know."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import torch

from counterfoil.lab.measures.bench import FRESH, REPORT, WHOLE, Bench
from counterfoil.lab.readings import Reading
from counterfoil.protocols.provenance import versions

FILES = {REPORT: "measured.json", FRESH: "measured_fresh.json", WHOLE: "measured_whole.json"}
"""Where the readings of a split are kept; those of `tune`, which choices are made by, never are."""


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
        """The record of plain data; of older ones, which said less, what is missing is empty or 0."""
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
    """What computes: the GPU's name, or the processor's."""
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name(device)
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())
