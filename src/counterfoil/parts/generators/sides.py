"""Picture sides that an autoencoder can take: multiples of its factor."""

from __future__ import annotations

from counterfoil.core.errors import BadSpec


def check_side(side: int, *, factor: int) -> int:
    """The side, if the autoencoder can take it."""
    if side < factor or side % factor:
        raise BadSpec(f"size={side}: {must_divide(factor, side)}")
    return side


def must_divide(factor: int, side: int) -> str:
    """What to say of a side that does not divide."""
    below = side // factor * factor
    near = f"{below} or {below + factor}" if below > 0 else f"{factor}"
    return f"this autoencoder needs sides that are multiples of {factor}; use {near}"
