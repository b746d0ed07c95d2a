"""Where a run goes when nobody says so."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

from counterfoil.core.spec import RunSpec


def default_folder(spec: RunSpec) -> Path:
    """A run directory named by what decides the numbers, so that the same command finds it again."""
    deciding = spec.model_dump(mode="json", exclude={"engine", "device", "strict"})
    code = hashlib.sha256(json.dumps(deciding, sort_keys=True).encode()).hexdigest()[:8]
    name = re.sub(r"[^A-Za-z0-9.]+", "-", spec.subject).strip("-")[-40:]
    return Path("runs") / f"{spec.protocol}-{name}-{code}"
