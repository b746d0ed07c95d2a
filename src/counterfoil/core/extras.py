"""Libraries that only some parts need: which extra of the package brings each, and one line that installs it."""

from __future__ import annotations

import importlib
from types import ModuleType

from counterfoil.core.errors import BadPart

EXTRAS = {
    "timm": "timm", "torchvision": "timm",
    "transformers": "hf", "huggingface_hub": "hf", "safetensors": "hf", "tokenizers": "hf",
    "open_clip": "openclip",
    "diffusers": "diffusion",
    "peft": "lora", "accelerate": "lora",
    "sklearn": "sparse",
    "httpx2": "http",
    "onnxruntime": "onnx",
    "datasets": "data",
    "fastapi": "web", "uvicorn": "web", "starlette": "web", "sqlalchemy": "web", "itsdangerous": "web",
    "psycopg": "postgres",
    "ray": "ray",
    "mlcroissant": "croissant",
    "tensorboard": "tensorboard", "mlflow": "mlflow", "wandb": "wandb",
}  # fmt: skip
"""The extra that brings a library, by the name it is imported by."""


def require(module: str, *, what: str) -> ModuleType:
    """Import a library, or raise an error with the line that installs it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (line := missing(error)) is None:
            raise
        raise BadPart(f"{what}: {line}") from None


def missing(error: BaseException | None) -> str | None:
    """Return the line that installs the library an error is about, or None if it is about something else.

    Libraries that import others on first use wrap the error in one of their own.
    """
    while error is not None:
        library = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
        if library in EXTRAS:
            return f"needs {library}, which is not installed; run: pip install 'counterfoil[{EXTRAS[library]}]'"
        error = error.__cause__
    return None
