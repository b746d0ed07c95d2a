"""JSON written in one way only, so that equal content is equal bytes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

DECIMALS = 6


def canonical(value: Any) -> bytes:
    """Sorted keys, floats to six decimals, a newline at the end. NaN is refused: say null and why in a note."""
    text = json.dumps(_plain(value, "", DECIMALS), sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False)
    return (text + "\n").encode()


def plain(value: Any) -> Any:
    """The value as JSON would give it back: tuples become lists, paths text; floats keep all their digits."""
    return _plain(value, "", None)


def _plain(value: Any, where: str, decimals: int | None) -> Any:
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{where or 'value'}: {value} has no place in JSON; give null and a note")
        return value if decimals is None else round(value, decimals) + 0.0  # + 0.0 turns -0.0 into 0.0
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item, f"{where}.{key}".lstrip("."), decimals) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, f"{where}[{index}]", decimals) for index, item in enumerate(value)]
    raise ValueError(f"{where or 'value'}: {type(value).__name__} has no place in JSON")
