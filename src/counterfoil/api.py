"""The Python entry point: everything `counterfoil run` does, with names or with objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from counterfoil import spec as specs
from counterfoil.assembly import Given
from counterfoil.datasets.tensors import ArrayDataset
from counterfoil.errors import BadPart
from counterfoil.models.module import ModuleModel
from counterfoil.naming import default_folder
from counterfoil.protocols import fmr
from counterfoil.store import Run
from counterfoil.weights import fingerprint


def evaluate(
    model: Any,
    data: Any,
    *,
    generator: Any,
    oracle: Any,
    classes: Sequence[str] | None = None,
    out: str | Path | None = None,
    **settings: Any,
) -> Run:
    """Stress-test `model` on `data` and return the run.

    Every part is a name (`"timm:resnet50"`), a mapping with a name and options, or an object that meets its contract in
    `counterfoil.parts`. A plain torch module may stand for the model: it gets pictures in [0, 1], and its outputs are taken
    to be `classes`, or the data's classes. Data may be a folder, or a pair of arrays (images, labels). `settings` are the
    keys of a specification: `limit=200, seed=1, search={"budget": 20}`.
    """
    objects: dict[str, Any] = {}
    values: dict[str, Any] = dict(settings)
    if isinstance(data, tuple):
        data = ArrayDataset(*data, classes=classes)
    if isinstance(model, nn.Module) and not hasattr(model, "logits"):
        names = classes or getattr(data, "classes", None)
        if names is None:
            raise BadPart("a plain torch module does not say what its outputs mean; give classes=[...] in their order")
        model = ModuleModel(model, names)
    for key, role, part in (
        ("model", "model", model),
        ("data", "dataset", data),
        ("generator", "generator", generator),
        ("oracle", "oracle", oracle),
    ):
        if isinstance(part, str | Path):
            values[key] = str(part)
        elif isinstance(part, Mapping):
            values[key] = dict(part)
        else:
            objects[role] = part
            values[key] = _name(part)
    spec = specs.parse(values)
    return fmr.run(spec, Path(out) if out else default_folder(spec), given=Given(objects))


def _name(part: Any) -> str:
    """A name for an object: its class, and its weights' fingerprint if it has any, so that two models never share a run."""
    module = part if isinstance(part, nn.Module) else getattr(part, "module", None)
    mark = f"-{fingerprint(module)[:12]}" if isinstance(module, nn.Module) else ""
    return f"object:{type(part).__name__}{mark}"
