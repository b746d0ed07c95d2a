"""Provenance of numbers: versions, code, hardware and data of a run; whether its oracle is independent of its models.

An oracle that is the model, or is built on the same weights, fails where the model fails: every image that fools the one
fools the other, and the test measures nothing. Hashes find the same weights in the same layout. Tensors are compared one by
one as well, so that a common trunk under two heads, or one network saved by two libraries, is found too.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, entry_points, packages_distributions, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from counterfoil.core.errors import BadPart
from counterfoil.core.spec import RunSpec
from counterfoil.parts import registry
from counterfoil.parts.contracts import Dataset, provenance_of
from counterfoil.parts.weights import modules_of

LIBRARIES = ("counterfoil", "torch", "torchvision", "timm", "transformers", "diffusers", "open_clip_torch", "numpy", "pillow")
MAKERS = ("generator", "editor", "painter")
"""The roles whose parts make images, and so decide their size; some are led by a network that also judges."""
SHARE = 0.05  # of the smaller one's weights; below it are fixed filters and tables that many networks have alike
SMALLEST = 256  # values; smaller tensors may be equal by chance of their making
_LOOKED_AT = 64  # values of a tensor that are compared first


def with_data(account: Mapping[str, Any], dataset: Dataset) -> dict[str, Any]:
    """An account of a run's parts, and of its data set as one of them."""
    own = {"dataset": provenance_of(dataset)} if hasattr(dataset, "provenance") else {}
    return {**account, **of_data(dataset), "parts": {**account["parts"], **own}}


def of_data(dataset: Dataset) -> dict[str, Any]:
    """Number of a run's images, and one hash over their ids and labels; every trial keeps the hash of its own pixels."""
    digest = hashlib.sha256()
    for sample in dataset:
        digest.update(f"{sample.image_id}\0{sample.label}\n".encode())
    return {"data": digest.hexdigest(), "images": len(dataset)}


def versions(libraries: Sequence[str] = LIBRARIES) -> dict[str, str]:
    """Python's version and those of the libraries that are installed; by default of those that decide a number."""
    found = {"python": platform.python_version()}
    for name in libraries:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def hardware(device: str) -> dict[str, Any]:
    machine = {"machine": platform.machine(), "system": platform.system(), "cores": os.cpu_count()}
    gpu = {"gpu": torch.cuda.get_device_name(device)} if torch.device(device).type == "cuda" else {}
    return {**machine, "threads": torch.get_num_threads(), "device": device, **gpu}


def packages_of(spec: RunSpec) -> set[str]:
    """Name the packages whose entry points a specification names, for parts and data and for the parts inside those."""
    named = set(re.findall(r"([\w-]+):", json.dumps(spec.model_dump(mode="json"))))
    entries = (entry for role in registry.ROLES for entry in entry_points(group=f"counterfoil.{role}s"))
    protocol = entry_points(group="counterfoil.protocols", name=spec.protocol)
    return {entry.module.partition(".")[0] for entry in (*protocol, *(each for each in entries if each.name in named))}


def code_hash(packages: Collection[str] = ()) -> str:
    """Hash the Python files of this package and of every other one that a part comes from.

    Libraries whose versions are recorded are left out.
    """
    recorded = {top for top, names in packages_distributions().items() if {name.lower() for name in names} & {*LIBRARIES}}
    digest = hashlib.sha256()
    for top in sorted({"counterfoil", *packages} - (recorded - {"counterfoil"}) - {"builtins", "__main__"}):
        found = find_spec(top)
        for folder in sorted(found.submodule_search_locations or ()) if found else ():
            for path in sorted(Path(folder).rglob("*.py")):
                digest.update(f"{top}/{path.relative_to(folder).as_posix()}".encode())
                digest.update(path.read_bytes())
        if found and not found.submodule_search_locations and str(found.origin).endswith(".py"):
            digest.update(top.encode() + Path(str(found.origin)).read_bytes())
    return digest.hexdigest()


def check_independent(model: Any, oracle: Any, *, force: bool = False) -> str | None:
    """Raise BadPart if the oracle is, or shares weights with, the model under test; None if it does not.

    With `force`, the line that would have been the error is given back instead, for the run's records.
    """
    found = same_source(model, oracle)
    if found is None and (share := shared_weights(model, oracle)) >= SHARE:
        found = f"it shares {min(share, 1):.0%} of its weights with the model under test"
    if found is None:
        return None
    if not force:
        raise BadPart(
            f"the oracle is not independent: {found}, so it fails where the model fails; choose another, or set force=true"
        )
    return f"the oracle is not independent: {found}; the run was forced"


def same_source(model: Any, oracle: Any) -> str | None:
    """The sign that both have the very same weights or come from one endpoint, or None."""
    found = _in_common(provenance_of(model), provenance_of(oracle))
    return f"{found} is that of the model under test" if found else None


def caution_later(part: Any, recorded: Mapping[str, str], *, role: str) -> str | None:
    """The caution about a part that is asked later, if its weights or endpoint are those `recorded` of the run's `role`."""
    found = _in_common(recorded, provenance_of(part))
    if found is None:
        return None
    follows = "it judges what it helped to make" if role in MAKERS else "the one fails where the other fails"
    return f"not independent: {found} is that of the run's {role}, so {follows}"


def _in_common(first: Mapping[str, str], second: Mapping[str, str]) -> str | None:
    """The weights or endpoint that both have, in words; ensembles number theirs."""
    marks = []
    for told in (first, second):
        kinds = [(key, key.rpartition(".")[2], value) for key, value in told.items()]
        weights = {value: f"the hash of its weights ({key})" for key, name, value in kinds if name == "weights" and value}
        links = [value for _, name, value in kinds if name == "source" and value.startswith(("http://", "https://"))]
        marks.append({**weights, **{link: f"its endpoint {link}" for link in links}})
    return next((marks[1][mark] for mark in marks[0] if mark in marks[1]), None)


def shared_weights(first: Any, second: Any) -> float:
    """The share of weights that two parts have in common, of the one with fewer; 0 where either has none to be seen."""
    mine, theirs = _tensors(first), _tensors(second)
    if not mine or not theirs:
        return 0.0
    likely: dict[tuple[Any, ...], list[Tensor]] = {}
    for tensor in theirs:
        likely.setdefault(_mark(tensor), []).append(tensor)

    def is_common(tensor: Tensor) -> bool:
        return any(torch.equal(tensor.float().cpu(), other.float().cpu()) for other in likely.get(_mark(tensor), ()))

    common = sum(tensor.numel() for tensor in mine if is_common(tensor))
    return common / min(sum(each.numel() for each in mine), sum(each.numel() for each in theirs))


def _tensors(part: Any) -> list[Tensor]:
    """The weights worth comparing: floating point, not tiny, not constant; each storage once."""
    found: dict[int, Tensor] = {}
    for module in modules_of(part):
        for tensor in [*module.parameters(), *module.buffers()]:
            if tensor.is_floating_point() and tensor.numel() >= SMALLEST and tensor.data_ptr() not in found:
                flat = tensor.detach().reshape(-1)
                if not bool((flat == flat[0]).all()):
                    found[tensor.data_ptr()] = flat
    return list(found.values())


def _mark(flat: Tensor) -> tuple[Any, ...]:
    """A tensor's size and some of its values, so that only likely pairs are compared in full."""
    steps = torch.arange(_LOOKED_AT, device=flat.device) * (flat.numel() - 1) // (_LOOKED_AT - 1)
    return (flat.numel(), *flat[steps].float().cpu().tolist())
