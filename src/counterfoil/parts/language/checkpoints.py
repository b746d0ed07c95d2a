"""Where an adapter under training is kept: one file that survives a kill, then the finished adapter. Safetensors only.

OUT/checkpoint.safetensors                                          while training: adapter, optimiser, progress
OUT/adapter_model.safetensors, adapter_config.json, rewriter.json   once done, in peft's layout
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from counterfoil.core.errors import BadSpec, BadWeights
from counterfoil.parts import weights
from counterfoil.parts.language import adapters
from counterfoil.store import lock
from counterfoil.store.files import remove, write_whole, writing

CHECKPOINT = "checkpoint.safetensors"
MOMENTS = ("exp_avg", "exp_avg_sq")


@dataclass
class Progress:
    """What a checkpoint knows beside weights."""

    step: int = 0
    losses: list[float] = field(default_factory=list)
    held_out_before: float | None = None


class Folder:
    """The folder that training writes to, held by one process at a time. `begun` is all that decides the result."""

    def __init__(self, path: Path, begun: Mapping[str, Any]) -> None:
        self.path = path
        self._begun = json.loads(json.dumps(begun))
        self._file = path / CHECKPOINT
        self._open = ExitStack()

    def __enter__(self) -> Folder:
        with writing(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        self._open.enter_context(lock.hold(self.path))
        return self

    def __exit__(self, *error: Any) -> None:
        self._open.close()

    def finished(self) -> dict[str, Any] | None:
        """The note of a training with the same settings that has come to its end here."""
        note = adapters.read_note(self.path)
        if not note:
            return None
        self._check_same(note.get("begun"))
        return note

    def resume(self, named: Mapping[str, Tensor], optimiser: torch.optim.Optimizer) -> Progress:
        """Put the checkpoint, if there is one, into weights and optimiser, and say how far it was."""
        if not self._file.is_file():
            return Progress()
        with weights.loading(self._file), safe_open(str(self._file), framework="pt") as stored:
            note = json.loads((stored.metadata() or {}).get("note", "{}"))
            self._check_same(note.get("begun"))
            progress = Progress(**note["progress"])
            if {name.partition(".")[2] for name in stored.keys()} != set(named):  # noqa: SIM118
                raise BadWeights(f"{self._file}: holds another adapter's weights; delete it or choose another --out")
            for name, weight in named.items():
                with torch.no_grad():
                    weight.copy_(stored.get_tensor(f"weight.{name}"))
                moments = {moment: stored.get_tensor(f"{moment}.{name}").to(weight.device) for moment in MOMENTS}
                optimiser.state[weight] = {"step": torch.tensor(float(progress.step)), **moments}  # type: ignore[index]
        return progress

    def save(self, named: Mapping[str, Tensor], optimiser: torch.optim.Optimizer, progress: Progress) -> None:
        """Write the checkpoint: the whole of it, or the one before stays."""
        tensors: dict[str, Tensor] = {}
        for name, weight in named.items():
            tensors[f"weight.{name}"] = weight.detach().cpu().contiguous()
            for moment in MOMENTS:
                tensors[f"{moment}.{name}"] = optimiser.state[weight][moment].cpu().contiguous()  # type: ignore[index]
        note = json.dumps({"begun": self._begun, "progress": asdict(progress)})
        with writing(self._file):
            write_whole(self._file, save(tensors, metadata={"note": note}))

    def finish(self, model: Any, progress: Progress, *, style: str, held_out_after: float | None) -> None:
        """Write the adapter, then the note that says it is whole, and let the checkpoint go."""
        import peft

        with writing(self.path):
            model.save_pretrained(str(self.path), safe_serialization=True)
            remove(self.path / "README.md")  # peft's form, left empty
            note = {
                "style": style,
                "begun": self._begun,
                "steps": progress.step,
                "losses": progress.losses,
                "held_out_before": progress.held_out_before,
                "held_out_after": held_out_after,
                "library": f"peft {peft.__version__}",
            }
            write_whole(self.path / adapters.NOTE, (json.dumps(note, indent=1) + "\n").encode())
        remove(self._file)

    def _check_same(self, other: Any) -> None:
        if other == self._begun:
            return
        differs = [key for key in self._begun if not isinstance(other, dict) or other.get(key) != self._begun[key]]
        raise BadSpec(
            f"{self.path}: holds an adapter with another {' and '.join(differs)}; give the same settings to go on with it, "
            "or choose another --out"
        )
