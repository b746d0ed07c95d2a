from __future__ import annotations

import subprocess
import sys

HEAVY = ("timm", "torchvision", "transformers", "open_clip", "diffusers", "huggingface_hub", "datasets", "onnxruntime")
PARTS = {
    "models": "timm_models torchvision_models python_factory hf_models openclip_models onnx_models exported http_model grouped",
    "oracles": "clip openclip classifier ensemble vlm human",
    "datasets": "folder tensors manifest webdataset hf_sets torchvision_sets selection",
}
MODULES = ", ".join(f"counterfoil.{role}.{name}" for role, names in PARTS.items() for name in names.split())
MODULES += ", counterfoil.parts.python_parts"


def test_listing_the_parts_loads_no_heavy_library() -> None:
    code = f"import sys, {MODULES}; print([name for name in {HEAVY!r} if name in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
