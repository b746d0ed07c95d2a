"""How large a run's parts are, and whether its pictures have files of their own: by how many images it is about."""

from __future__ import annotations

from typing import TypedDict

PACKED_FROM = 10_000
"""Images from which on pictures go into packs: a few files for each would be more than people look through, or disks like."""

_PARTS = 2_000  # a run has about so many at most, so that opening it stays quick
_LARGEST = 4_096


class Layout(TypedDict):
    """Options of `store.write`."""

    part_images: int
    packed: bool


def layout(images: int, *, at_least: int) -> Layout:
    """The layout of a run over so many images, with parts of at least the size that was asked for."""
    return {"part_images": max(at_least, min(images // _PARTS, _LARGEST)), "packed": images >= PACKED_FROM}
