"""What benchmarks leave behind: one JSON file each under bench/results, with hardware, versions and date beside the rows.

    from bench.results import keep
    keep("engine", [{"way": "engine", "images/s": 12.5}, …], command="python -m bench.engine", about="256 px, 50 iterations")

`python -m bench.page` makes docs/benchmarks.md of all of them.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).with_name("results")
LIBRARIES = ("counterfoil", "torch", "timm", "diffusers", "transformers", "ray", "pyarrow", "numpy")


def keep(name: str, rows: Sequence[Mapping[str, Any]], *, command: str, about: str, folder: Path = FOLDER) -> Path:
    """Write the rows of a benchmark down; `about` says in a sentence what they show."""
    content = {
        "name": name,
        "about": about,
        "command": command,
        "date": datetime.now(UTC).date().isoformat(),
        "hardware": hardware(),
        "versions": versions(),
        "rows": [dict(row) for row in rows],
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    return path


def read(name: str, *, folder: Path = FOLDER) -> dict[str, Any] | None:
    """What a benchmark left behind; None if it has not been run."""
    try:
        content: dict[str, Any] = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return content


def hardware() -> dict[str, Any]:
    """The machine, as far as it matters for a time."""
    found: dict[str, Any] = {"processor": _processor(), "cores": os.cpu_count(), "system": platform.system()}
    try:
        import torch

        found["threads"] = torch.get_num_threads()
        if torch.cuda.is_available():
            found["gpu"] = [torch.cuda.get_device_name(at) for at in range(torch.cuda.device_count())]
    except ModuleNotFoundError:
        pass
    return found


def versions() -> dict[str, str]:
    """The libraries that are installed."""
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
