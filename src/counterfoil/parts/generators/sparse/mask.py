"""Which coordinates of what a generator moves are kept: on disk, FILE.safetensors with FILE.json beside it for people."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from counterfoil.core.errors import BadWeights, one_line

_NAME = "kept"
_HALO = "halo"


@dataclass(frozen=True)
class Mask:
    """The kept coordinates, in the shape of one row of what moves."""

    kept: Tensor  # (…) bool
    about: Mapping[str, Any] = field(default_factory=dict)  # how it was fitted
    halo: int = 0  # cells around the kept ones that are decoded with them, where only a window is decoded

    @property
    def sparsity(self) -> float:
        """The per cent of coordinates that stay where they are."""
        return 100 * (1 - float(self.kept.float().mean()))

    @property
    def indices(self) -> Tensor:
        """The kept coordinates of a flattened row.  # (k,) int64"""
        return self.kept.flatten().nonzero()[:, 0]

    @property
    def sha256(self) -> str:
        """A hash of which coordinates are kept, and of the halo where there is one."""
        shape = "×".join(map(str, self.kept.shape)) + (f"+{self.halo}" if self.halo else "")
        return hashlib.sha256(shape.encode() + self.kept.to(torch.uint8).numpy().tobytes()).hexdigest()


def save(mask: Mask, file: Path) -> Path:
    """Write the mask and what is known of it."""
    from safetensors.torch import save_file

    file = file if file.suffix == ".safetensors" else file.with_name(f"{file.name}.safetensors")
    file.parent.mkdir(parents=True, exist_ok=True)
    save_file({_NAME: mask.kept.to(torch.uint8).contiguous(), _HALO: torch.tensor([mask.halo])}, file)
    counted = {"shape": list(mask.kept.shape), "kept": int(mask.kept.sum()), "sparsity": mask.sparsity, "halo": mask.halo}
    about = {**counted, **mask.about}
    file.with_suffix(".json").write_text(json.dumps(about, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return file


def load(file: str | Path) -> Mask:
    """The mask in a file; refused if it keeps nothing or is something else."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    path = Path(file).expanduser()
    if not path.is_file():
        raise BadWeights(f"mask {path}: no such file; 'counterfoil study sparse' writes one")
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise BadWeights(f"mask {path}: not a safetensors file ({one_line(error)})") from None
    kept = tensors.get(_NAME)
    if kept is None:
        raise BadWeights(f"mask {path}: holds {', '.join(sorted(tensors)) or 'nothing'}, not a tensor named {_NAME!r}")
    if kept.numel() == 0 or not bool(kept.bool().any()):
        raise BadWeights(f"mask {path}: keeps no coordinate, so nothing could move; fit it with a weaker regularisation")
    beside = path.with_suffix(".json")
    try:
        about = json.loads(beside.read_text(encoding="utf-8")) if beside.is_file() else {}
    except ValueError:
        raise BadWeights(f"{beside}: not JSON; remove it, or fit the mask again") from None
    return Mask(kept.bool(), about, int(tensors[_HALO].max()) if _HALO in tensors else 0)
