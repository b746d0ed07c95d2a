"""Runs of the folder, as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter

from counterfoil.core.errors import BadRun
from counterfoil.metrics.outcomes import part_name
from counterfoil.metrics.table import MEANINGS
from counterfoil.store import Run
from counterfoil.web.catalogue import Catalogue
from counterfoil.web.progress import progress
from counterfoil.web.routes.schemas import ERRORS, Number, ProgressOut, RunOut
from counterfoil.web.server import Here, Owner

router = APIRouter(prefix="/api", tags=["runs"], responses=ERRORS)

SHOWN = 12  # numbers of a run


@router.get("/runs", response_model=list[RunOut])
def list_runs(here: Here, _: Owner) -> list[RunOut]:
    """Every run of the folder, those that cannot be read included."""
    return [describe(here.catalogue, name) for name in here.catalogue.names()]


@router.get("/runs/{name:path}", response_model=RunOut)
def one_run(name: str, here: Here, _: Owner) -> RunOut:
    """One run."""
    here.catalogue.folder(name)
    return describe(here.catalogue, name)


@router.get("/progress/{name:path}", response_model=ProgressOut)
def run_progress(name: str, here: Here, _: Owner) -> ProgressOut:
    """How far a run is; ask again for as long as it is under way."""
    found = progress(here.catalogue.folder(name))
    return ProgressOut(**{field: getattr(found, field) for field in ProgressOut.model_fields})


def describe(catalogue: Catalogue, name: str) -> RunOut:
    """What a list shows of a run; a run that cannot be read says why."""
    try:
        run = Run(catalogue.folder(name))
        found = progress(run.path)
        numbers = estimates(run.results)
    except BadRun as error:
        return RunOut(name=name, problem=catalogue.said(error))
    except Exception as error:  # a file somebody else wrote: whatever is wrong with it, the list goes on
        return RunOut(name=name, problem=f"{name}: damaged ({type(error).__name__}); restore it from where it came from")
    parts = {role: part_name(run.spec.get(role)) for role in ("model", "data", "generator", "painter", "oracle")}
    for role, several in (("model", "models"), ("surrogates", "surrogates")):  # of ImageNet-D
        parts[role] = parts.get(role) or ", ".join(map(part_name, run.spec.get(several) or ()))
    protocol = str(run.spec.get("protocol", "fmr"))
    return RunOut(name=name, protocol=protocol, **parts, state=found.state, images=found.images, numbers=numbers)


def estimates(results: Mapping[str, Any] | None) -> dict[str, Number]:
    """The first estimates of `results.json`, in the order in which people read them."""
    found: dict[str, Number] = {}
    order = list(MEANINGS)
    ordered = sorted((results or {}).items(), key=lambda item: order.index(item[0]) if item[0] in order else len(order))
    for name, entry in ordered:
        if isinstance(entry, Mapping) and "value" in entry and "n" in entry and len(found) < SHOWN:
            found[str(name)] = Number(
                **{key: entry.get(key) for key in ("value", "low", "high", "n")}, note=str(entry.get("note", ""))
            )
    return found
