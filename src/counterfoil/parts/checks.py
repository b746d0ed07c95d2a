"""Holds a part against the contract of its role by what it has; `counterfoil.testing` says whether that also works."""

from __future__ import annotations

import inspect
from typing import Any

from counterfoil.core.errors import BadPart
from counterfoil.parts.contracts import Captioner, Dataset, Editor, Generator, Model, Oracle, Painter, Rewriter
from counterfoil.parts.encoders.prompts import Embedder
from counterfoil.protocols.imagenet_d.questions import Chat

CONTRACTS: dict[str, type[Any]] = {
    "model": Model,
    "generator": Generator,
    "oracle": Oracle,
    "dataset": Dataset,
    "captioner": Captioner,
    "rewriter": Rewriter,
    "editor": Editor,
    "painter": Painter,
    "encoder": Embedder,
    "chat": Chat,
}
"""By role."""


def check(part: Any, role: str, said: str) -> None:
    """Raise BadPart if a part lacks what its role asks for. `said` begins the message: `data is`."""
    if isinstance(part, type):
        raise BadPart(f"{said} the class {part.__name__} itself; give an object of it, as in {part.__name__}()")
    contract = CONTRACTS[role]
    lacking = [name for name in _asked_for(contract) if not hasattr(part, name)]
    if lacking:
        where = f"{contract.__name__} in {contract.__module__}"
        raise BadPart(f"{said} a {type(part).__name__} without {', '.join(lacking)}; see {where}")


def _asked_for(contract: type[Any]) -> list[str]:
    """What a contract says that a part has: its attributes, properties and methods."""
    said = [name for name, value in vars(contract).items() if inspect.isfunction(value) or isinstance(value, property)]
    methods = [name for name in said if not name.startswith("_") or name in ("__len__", "__iter__")]
    return [*inspect.get_annotations(contract), *methods]
