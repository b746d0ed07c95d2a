"""The Python entry point: everything `counterfoil run` does, with names or with objects."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from torch import nn

from counterfoil import protocols
from counterfoil.core.errors import BadPart
from counterfoil.core.progress import watching
from counterfoil.core.spec import default_folder
from counterfoil.parts import contracts
from counterfoil.parts.contracts import Dataset, provenance_of
from counterfoil.parts.datasets.arrays import from_arrays
from counterfoil.parts.models.modules import ModuleModel
from counterfoil.parts.weights import fingerprint, modules_of
from counterfoil.protocols.base import Execution
from counterfoil.protocols.reading import Run
from counterfoil.protocols.workspace import Given

PARTS = ("model", "generator", "oracle", "captioner", "rewriter", "editor", "encoder", "painter")
"""The keys of a specification that may be given as objects, in addition to the data."""


def evaluate(
    model: Any,
    data: Any,
    *,
    generator: Any = None,
    oracle: Any = None,
    classes: Sequence[str] | None = None,
    out: str | Path | None = None,
    **settings: Any,
) -> Run:
    """Stress-test `model` on `data` and return the run.

    Every part is a name (`"timm:resnet50"`), a mapping with a name and options, or an object that meets its contract in
    `counterfoil.parts.contracts`. A plain torch module may stand for the model: it gets images in [0, 1] with a side of
    `size`, and its outputs are taken to be `classes`, or the data's classes; so may a pair (module, classes). Data may be a
    folder, or a pair of arrays (images, labels).
    `settings` are the keys of a specification: `limit=200, size=224, search={"budget": 20}`; `execution={"executor": "ray"}`
    hands the work to workers. Progress is shown on a terminal and in a notebook; images that had to be left out and
    cautions (`run.cautions`) go to standard error.

    The protocol is `fmr`, which needs a generator and an oracle. `protocol="lance"` needs a captioner, an editor, an encoder
    and an oracle; `protocol="imagenet-d"` tests the model on an exported set.
    """
    objects: dict[str, Any] = {}
    if isinstance(data, tuple):
        data = from_arrays(*data, classes=classes or (model[1] if isinstance(model, tuple) else None))
    model = as_model(model, classes or getattr(data, "classes", None))
    given = {**settings, "model": model, "data": data, "generator": generator, "oracle": oracle}
    values: dict[str, Any] = {}
    for key, value in given.items():
        if value is None:
            continue
        if key not in (*PARTS, "data") or isinstance(value, str | Mapping):
            values[key] = dict(value) if isinstance(value, Mapping) else value
        elif isinstance(value, Path):
            values[key] = str(value)
        else:
            role = "dataset" if key == "data" else key
            contracts.check(value, role, f"{key} is")
            values[key] = object_name(value)
            objects[role] = value
            if key == "model":  # where a run has several models, by name
                objects[values[key]] = value
    execution = Execution.of(values.pop("execution", None))
    spec = protocols.parse_here(values)
    folder = Path(out) if out else default_folder(spec)
    with watching(spec.subject) as (watch, tell):
        run = protocols.run(spec, folder, given=Given(objects), execution=execution, watch=watch, tell=tell)
        for caution in run.cautions:
            tell(f"take care: {caution}")
        return run


def as_model(model: Any, classes: Sequence[str] | None) -> Any:
    """Turn a plain torch module, or a pair of one with its classes, into a model; leave everything else as it is."""
    if isinstance(model, tuple) and len(model) == 2 and isinstance(model[0], nn.Module):
        return ModuleModel(*model)
    if not isinstance(model, nn.Module) or hasattr(model, "logits"):
        return model
    if classes is None:
        raise BadPart("a plain torch module does not say what its outputs mean; give classes=[...] in their order")
    return ModuleModel(model, classes)


def object_name(part: Any) -> str:
    """A name for an object: its class, and a mark of its weights and settings, so that two that differ never share a run."""
    account = {name: str(value) for name, value in provenance_of(part).items() if name != "library"}
    marks = [f"{name}={value}" for name, value in account.items()]
    if not isinstance(part, Dataset) and not any(re.fullmatch("[0-9a-f]{64}", value) for value in account.values()):
        marks += [fingerprint(module) for module in modules_of(part)]  # it gives no hash of its own
    settings = getattr(type(part), "__dataclass_params__", None)
    if settings is not None and settings.frozen:  # other fields may count what the part does
        marks += [f"{each.name}={_setting_text(getattr(part, each.name))}" for each in fields(part)]
    if isinstance(part, ModuleModel):
        marks += part.classes
    code = hashlib.sha256("\n".join(marks).encode()).hexdigest()[:12]
    return f"object:{type(part).__name__}" + (f"-{code}" if marks else "")


def _setting_text(value: Any) -> str:
    """A setting in words; without the addresses of what has no words for itself, which differ from process to process."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))
