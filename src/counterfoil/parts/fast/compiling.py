"""torch.compile with a way back: what cannot be compiled runs eagerly, and the log says so once."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch

from counterfoil.core.errors import CounterfoilError, one_line

log = logging.getLogger(__name__)

SAME_EVERYWHERE: dict[str, Any] = {"deterministic": True}  # nothing is chosen by the clock that the last digits depend on


class Compiled:
    """A function that is compiled at its first call, or runs eagerly if that fails."""

    def __init__(self, work: Callable[..., Any], *, name: str) -> None:
        self.work, self.name = work, name
        self.compiled: Callable[..., Any] | None = torch.compile(work, dynamic=False, options=SAME_EVERYWHERE)

    def __call__(self, *given: Any, **named: Any) -> Any:
        if self.compiled is None:
            return self.work(*given, **named)
        try:
            return self.compiled(*given, **named)
        except (CounterfoilError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            answer = self.work(*given, **named)  # what fails without the compiler too is no fault of the compiler
            self.compiled = None
            log.warning("torch.compile failed for %s, running eagerly: %s", self.name, one_line(error))
            return answer
