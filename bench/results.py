"""Results of benchmarks: one JSON file each under bench/results, with command, commit, date, machine and versions.

    from bench.results import command, keep
    keep("engine", [{"variant": "engine", "images/s": 12.5}, …], command=command("bench.engine"), about="256 px, 50 iterations",
         covers=["src/counterfoil/engine"])

Rows are flat: one value per column. Anything else, such as a profile, goes into `details`. `covers` names the code whose change
makes the numbers old; its hash is kept, and the documentation marks a result whose code has changed since.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FOLDER = Path(__file__).with_name("results")
PLACES = ("--out", "--scan")  # options that name a folder
LIBRARIES = ("counterfoil", "torch", "timm", "diffusers", "transformers", "ray", "pyarrow", "numpy")


def add_keep(parser: argparse.ArgumentParser) -> None:
    """The option that all benchmarks have."""
    parser.add_argument("--keep", metavar="NAME", help="write the rows to bench/results/NAME.json")


def command(module: str) -> str:
    """This process's command, for others to repeat; folders of this machine say nothing to them."""
    words = sys.argv[1:]
    shown = ["FOLDER" if before in PLACES else word for before, word in zip(["", *words], words, strict=False)]
    return f"python -m {module} {shlex.join(shown)}".strip()


def keep(
    name: str,
    rows: Sequence[Mapping[str, Any]],
    *,
    command: str,
    about: str,
    covers: Sequence[str] = (),
    shown: Sequence[str] = (),
    details: Mapping[str, Any] | None = None,
    folder: Path = FOLDER,
) -> Path:
    """Write the rows of a benchmark down, as often as there are more; `about` says in a sentence what they show.

    The documentation has the columns `shown`, by default all.
    """
    from counterfoil.protocols.workspace import versions

    content = {
        "name": name,
        "about": about,
        "command": command,
        "date": datetime.now(UTC).date().isoformat(),
        "commit": commit(),
        "covers": list(covers),
        "code": code(covers),
        "hardware": hardware(),
        "versions": versions(LIBRARIES),
        **({"shown": list(shown)} if shown else {}),
        "rows": [dict(row) for row in rows],
        **({"details": dict(details)} if details else {}),
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    return path


def commit() -> str:
    """Return the commit that is checked out, with a + if files differ from it; empty outside a repository."""
    found = subprocess.run(["git", "describe", "--always", "--dirty=+", "--exclude=*"], cwd=ROOT, capture_output=True, text=True)
    return found.stdout.strip()


def code(covers: Iterable[str]) -> str:
    """Hash the Python files that a result depends on."""
    digest = hashlib.sha256()
    for name in covers:
        place = ROOT / name
        for path in [place] if place.is_file() else sorted(place.rglob("*.py")):
            digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def print_checked(found: Iterable[tuple[Mapping[str, Any], str]], name: str | None, **about: Any) -> None:
    """Print rows as they come and keep those so far, if under a name; end the process if anything is wrong with one."""
    rows, wrong = [], []
    for row, problem in found:
        print(", ".join(f"{key} {value}" for key, value in row.items()), flush=True)
        rows.append(row)
        wrong += [problem] if problem else []
        if name:
            keep(name, rows, **about)
    if wrong:
        sys.exit("\n".join(wrong))


def read(name: str, *, folder: Path = FOLDER) -> dict[str, Any] | None:
    """Return what a benchmark left behind; None if it has not been run."""
    try:
        content: dict[str, Any] = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return content


def hardware() -> dict[str, Any]:
    """The machine, as far as it matters for a time."""
    import torch  # not before: some benchmarks measure the memory of processes that have no use for it

    found: dict[str, Any] = {"processor": _processor(), "cores": os.cpu_count(), "system": platform.system()}
    found["threads"] = torch.get_num_threads()
    if torch.cuda.is_available():
        found["gpu"] = [torch.cuda.get_device_name(at) for at in range(torch.cuda.device_count())]
    return found


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
