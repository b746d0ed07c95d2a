"""Default run directories."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

from counterfoil.core.nested import dotted
from counterfoil.core.spec.base import FREE, RunSpec


def default_folder(spec: RunSpec) -> Path:
    """A run directory named by everything that may not differ when the run is resumed, so that the same command finds it."""
    deciding = {key: value for key, value in dotted(spec.model_dump(mode="json")) if key not in FREE}
    code = hashlib.sha256(json.dumps(deciding, sort_keys=True).encode()).hexdigest()[:8]
    name = re.sub(r"[^A-Za-z0-9.]+", "-", spec.subject).strip("-")[-40:]
    return Path("runs") / f"{spec.protocol}-{name}-{code}"
