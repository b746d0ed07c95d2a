"""LoRA adapters of rewriters: a folder in peft's layout, with a note of the style the model was trained to be asked in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from counterfoil.core.errors import BadPart, BadWeights, one_line
from counterfoil.parts import weights

NOTE = "rewriter.json"
CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"


def attach(model: Any, folder: Path) -> tuple[Any, str | None]:
    """The model with the adapter merged into it, and the style it was trained in if the folder says so."""
    from peft import PeftModel

    for name in (CONFIG, WEIGHTS):
        if not (folder / name).is_file():
            raise BadWeights(f"adapter {folder}: has no {name}; give the folder that 'counterfoil train-rewriter' wrote")
    with weights.loading(folder / WEIGHTS):
        try:
            tuned = PeftModel.from_pretrained(model, str(folder))
        except (RuntimeError, ValueError, KeyError, TypeError) as error:
            raise BadWeights(f"adapter {folder}: does not fit a {type(model).__name__}: {one_line(error)}") from None
        # Merged, it costs nothing at run time and its weights are part of the model's fingerprint.
        return tuned.merge_and_unload(), read_note(folder).get("style")


def read_note(folder: Path) -> dict[str, Any]:
    """What training wrote beside the adapter; empty for adapters from elsewhere."""
    file = folder / NOTE
    if not file.is_file():
        return {}
    try:
        note = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadWeights(f"{file}: cannot be read ({one_line(error)})") from None
    return dict(note) if isinstance(note, dict) else {}


def agreed(asked: str | None, trained: str | None, adapter: str) -> str | None:
    """The style to ask in; an adapter is not asked in another than it was trained in."""
    if asked and trained and asked != trained:
        raise BadPart(f"adapter {adapter}: was trained to be asked in the style {trained!r}, not {asked!r}; leave style out")
    return trained or asked
