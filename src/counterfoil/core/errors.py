"""Every error Counterfoil raises on purpose, as one tree.

    CounterfoilError
    ├── UsageError            the request is wrong: exit code 2
    │   ├── UnknownName       no part of that name
    │   ├── BadSpec           a run specification that cannot be read
    │   ├── BadPart           a part that breaks its contract, or fails to load
    │   ├── BadData           a data set that cannot be used
    │   ├── BadWeights        weights that are missing, unsafe or not the ones asked for
    │   ├── LabelMismatch     class names that do not fit together
    │   └── BadRun            a run directory that cannot be read or written
    ├── BadImage              one image that cannot be used; a run counts and skips it
    └── RunFailed             the run itself failed: exit code 1

A message is one line that says what is wrong, what was given and what to do.
"""

from __future__ import annotations

import difflib
import importlib
import re
from collections.abc import Iterable
from types import ModuleType

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
"""The extra of the package that brings a library, by the name it is imported by."""

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class CounterfoilError(Exception):
    """Base of the tree; catching it catches everything Counterfoil raises on purpose."""

    exit_code = 1


class UsageError(CounterfoilError):
    """The request is wrong; nothing was run."""

    exit_code = 2


class UnknownName(UsageError):
    """No part is registered under that name."""


class BadSpec(UsageError):
    """A run specification has an unknown key or an impossible value."""


class BadPart(UsageError):
    """A part breaks its contract or cannot be loaded."""


class BadData(UsageError):
    """A data set has no images, one class, or labels that make no sense."""


class BadWeights(UsageError):
    """A weight file is missing, is a pickle, or has another hash than expected."""


class LabelMismatch(UsageError):
    """Class names of data, model and oracle do not fit together."""


class BadRun(UsageError):
    """A run directory is not one, is in use, or cannot be written."""


class BadImage(CounterfoilError):
    """One image cannot be used; runs name it, count it and continue."""


class RunFailed(CounterfoilError):
    """The run stopped half-way for a reason that is not the user's input."""


def printable(text: str) -> str:
    """Text for a terminal: control characters, marks that reverse text, and half surrogate pairs are escaped."""
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], text)


def one_line(error: object, longest: int = 200) -> str:
    """The message of a foreign error, short and without line breaks; its type where the message is empty."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A sentence that suggests the nearest known name, with a blank before it; empty if none is near."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


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
