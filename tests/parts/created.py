"""Parts made by name and options, as a run makes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from counterfoil.parts import registry


def _of(role: str, kind: str) -> Callable[..., Any]:
    def create(name: Any = "", **options: Any) -> Any:
        return registry.create(role, f"{kind}:{name}", options)

    return create


timm_model, torchvision_model, hf_model = _of("model", "timm"), _of("model", "torchvision"), _of("model", "hf")
openclip_model, onnx_model, grouped_model = _of("model", "openclip"), _of("model", "onnx"), _of("model", "grouped")
torchscript_model, pt2_model = _of("model", "torchscript"), _of("model", "pt2")
clip_oracle, openclip_oracle, vlm_oracle = _of("oracle", "clip"), _of("oracle", "openclip"), _of("oracle", "vlm")
ensemble_oracle = _of("oracle", "ensemble")
folder, csv_dataset, tensors = _of("dataset", "folder"), _of("dataset", "csv"), _of("dataset", "tensors")
webdataset, hf_dataset, subset_dataset = _of("dataset", "webdataset"), _of("dataset", "hfdata"), _of("dataset", "subset")
torchvision_dataset = _of("dataset", "torchvision-data")
