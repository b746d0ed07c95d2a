from __future__ import annotations

import subprocess
import sys

HEAVY = ("timm", "torchvision", "transformers", "open_clip", "diffusers", "huggingface_hub")
MODULES = (
    "counterfoil.models.timm_models, counterfoil.models.torchvision_models, counterfoil.models.python_factory, "
    "counterfoil.oracles.clip, counterfoil.oracles.openclip, counterfoil.oracles.classifier, counterfoil.oracles.ensemble, "
    "counterfoil.datasets.folder, counterfoil.datasets.tensors"
)


def test_listing_the_parts_loads_no_heavy_library() -> None:
    code = f"import sys, {MODULES}; print([name for name in {HEAVY!r} if name in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
