"""Libraries that only some parts need; they come with an extra of the package."""

from __future__ import annotations

import importlib
from types import ModuleType

from counterfoil.core.errors import BadPart


def require(module: str, *, extra: str, what: str) -> ModuleType:
    """The module, or an error with the line that installs it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != module.partition(".")[0]:
            raise
        raise BadPart(f"{what}: needs {module}, which is not installed; run: pip install 'counterfoil[{extra}]'") from None
