"""Which module writes the page of a protocol; the others have the page of `report.page`."""

from __future__ import annotations

WRITERS = {"lance": "counterfoil.report.lance", "imagenet-d": "counterfoil.report.imagenet_d"}
"""Modules with `write(runs, out, *, pictures) -> Path`."""
