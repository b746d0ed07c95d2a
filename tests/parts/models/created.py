"""Models made by name and options, as a run makes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from counterfoil.parts import registry


def _of(kind: str) -> Callable[..., Any]:
    def create(name: Any = "", **options: Any) -> Any:
        return registry.create("model", f"{kind}:{name}", options)

    return create


hf_model, openclip_model, onnx_model = _of("hf"), _of("openclip"), _of("onnx")
torchscript_model, pt2_model, grouped_model = _of("torchscript"), _of("pt2"), _of("grouped")
