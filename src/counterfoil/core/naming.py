"""Default run directories, and short names of parts."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

from counterfoil.core.nested import dotted
from counterfoil.core.spec.base import FREE, RunSpec

_FILES = frozenset({".py", ".onnx", ".pt", ".pt2", ".pth", ".safetensors"})


def default_folder(spec: RunSpec) -> Path:
    """A run directory named by everything that may not differ when the run is resumed, so that the same command finds it."""
    deciding = {key: value for key, value in dotted(spec.model_dump(mode="json")) if key not in FREE}
    code = hashlib.sha256(json.dumps(deciding, sort_keys=True).encode()).hexdigest()[:8]
    name = re.sub(r"[^A-Za-z0-9.]+", "-", spec.subject).strip("-")[-40:]
    return Path("runs") / f"{spec.protocol}-{name}-{code}"


def part_name(part: Any) -> str:
    """A part's name in a specification: `timm:resnet50`, or under `name` beside its options."""
    return str(part.get("name", "")) if isinstance(part, Mapping) else str(part or "")


def short_name(name: str) -> str:
    """Name a part without the folders of a file in its name: python:lite.py:lite0 for python:/some/where/lite.py:lite0.

    A kind that stands alone, as in `ensemble:`, goes without its colon.
    """
    if "://" in name:
        return name
    name = name.removesuffix(":")
    return ":".join(PurePath(part).name if _is_path(part) else part for part in name.split(":"))


def _is_path(part: str) -> bool:
    """Tell a local file or folder from a repository such as google/vit-base-patch16-224."""
    return "/" in part.rstrip("/") and (part.startswith(("/", "~", ".")) or PurePath(part).suffix in _FILES)
