"""Editors and painters: Stable Diffusion pipelines small enough to run in a blink, and the lab's."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

SHORT: dict[str, Any] = {"inversion": "edit-friendly", "steps": 2, "self_replace": 0.5}


def save_pipeline(folder: Path, kind: str = "StableDiffusionPipeline", *, channels: int = 4) -> Path:
    """A pipeline of diffusers with random weights."""
    import diffusers

    from tests.parts.editors.conftest import NONE, networks, scheduler

    getattr(diffusers, kind)(**networks(channels=channels), scheduler=scheduler(), **NONE).save_pretrained(folder)
    return folder


def _p2p(folder: Path, stack: ExitStack) -> Any:
    return f"p2p:{save_pipeline(folder)}", SHORT


def _instruct(folder: Path, stack: ExitStack) -> Any:
    kind = "StableDiffusionInstructPix2PixPipeline"
    return f"instruct:{save_pipeline(folder, kind, channels=8)}", {"steps": 2, "sweep": [1.2, 3.0]}


def _flowedit(folder: Path, stack: ExitStack) -> Any:
    from tests.parts.editors.today import flux_1

    flux_1().save_pretrained(folder)
    return f"flowedit:{folder}", {"steps": 2, "strength": 1.0, "size": 32}


def _diffusers(folder: Path, stack: ExitStack) -> Any:
    return f"diffusers:{save_pipeline(folder)}", {"steps": 2, "size": 16}


RECIPES: dict[tuple[str, str], Any] = {
    ("editor", "p2p"): _p2p,
    ("editor", "instruct"): _instruct,
    ("editor", "flowedit"): _flowedit,
    ("editor", "lab"): lambda folder, stack: ("lab:diffusion", SHORT),
    ("painter", "diffusers"): _diffusers,
    ("painter", "lab"): lambda folder, stack: ("lab:diffusion", {"steps": 2}),
}
