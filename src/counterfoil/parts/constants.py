"""Small tensors that are made once and kept."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import TypeVarTuple

import torch
from torch import Tensor

Given = TypeVarTuple("Given")


def kept(make: Callable[[*Given], Tensor]) -> Callable[[*Given], Tensor]:
    """The same function, which makes a tensor once. The compiler, which looks through a cache, gets it anew."""

    @lru_cache(maxsize=64)
    def once(*given: *Given) -> Tensor:
        with torch.inference_mode(False), torch.no_grad():  # it may later be needed where gradients are taken
            return make(*given)

    @wraps(make)
    def found(*given: *Given) -> Tensor:
        return make(*given) if torch.compiler.is_compiling() else once(*given)

    return found
