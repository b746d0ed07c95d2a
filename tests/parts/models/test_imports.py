"""Listing the parts stays quick: their modules import no heavy library."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import distribution

HEAVY = ("timm", "torchvision", "transformers", "open_clip", "diffusers", "huggingface_hub", "datasets", "onnxruntime")
GROUPS = ("counterfoil.models", "counterfoil.oracles", "counterfoil.datasets")


def test_listing_the_parts_loads_no_heavy_library() -> None:
    entries = [entry for entry in distribution("counterfoil").entry_points if entry.group in GROUPS]
    modules = sorted({entry.module for entry in entries if ".lab" not in entry.module})
    assert len(modules) > 10
    code = f"import sys, {', '.join(modules)}; print([name for name in {HEAVY!r} if name in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
