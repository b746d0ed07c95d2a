"""A run of FMR in one paragraph for a paper: everything that was used, what departs from the preset, and the numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.metadata import version
from typing import Any

from counterfoil.core.naming import part_name, short_name
from counterfoil.core.records import Estimate
from counterfoil.metrics.tables import estimate_text
from counterfoil.protocols.fmr.spec import FmrSpec
from counterfoil.store import Run

SPACES = {"before": "before quantisation", "code": "on the quantised code"}
ACCEPTED = {"label": "the oracle names its label", "agreement": "the oracle says of it what it says of the source image"}


def citation(run: Run, results: Mapping[str, Any]) -> str:
    """Describe a run's set-up and its numbers in one paragraph."""
    spec, search = run.spec, run.spec["search"]
    preset, counts = spec.get("preset", "default"), results["counts"]
    departs = ", ".join(departures(spec))
    parts = {role: _part(run, role) for role in ("model", "generator", "oracle")}
    asked = spec["oracle"].get("options", {}).get("templates")
    space = SPACES.get(spec["generator"].get("options", {}).get("space", ""), "")
    how = ", ".join(filter(None, (f"norm {search['norm']}", f"unit {search['unit']}", space)))
    sentences = [
        f"Foundation-model-oriented robustness (FMR) of {parts['model']}, measured with Counterfoil {version('counterfoil')}, "
        f"preset {preset}{f' but for {departs}' if departs else ''}",
        f"{counts['readable']} images of {len(run.classes)} classes from {part_name(spec['data'])}, "
        f"{run.provenance.get('size')} × {run.provenance.get('size')} pixels, seed {spec['seed']}",
        f"generator {parts['generator']}; oracle {parts['oracle']}{f', asked {asked!r}' if asked else ''}",
        f"at most {search['budget']} steps of {search['step']:g} ({how}); an image counts if {ACCEPTED[search['accept']]}; "
        f"computed in {spec['engine']['precision']}",
        "; ".join(_numbers(results)),
        f"95 % intervals from {results['interval']['resamples']:,} resamples of source images",
    ]
    return ". ".join(sentences) + "."


def departures(spec: Mapping[str, Any]) -> Iterator[str]:
    """Yield the keys of a specification that are not what its preset says."""
    for key, wanted in FmrSpec.presets()[spec.get("preset", "default")]["values"].items():
        found = spec.get(key)
        if not isinstance(wanted, Mapping):
            if found != wanted:
                yield f"{key} {found}"
        elif "name" in wanted:
            options = {name: value for name, value in wanted.items() if name != "name"}
            if found != {"name": wanted["name"], "options": options}:
                yield f"the {key}"
        else:
            differing = [name for name, value in wanted.items() if (found or {}).get(name) != value]
            yield from (f"{key}.{name} {(found or {}).get(name)}" for name in differing)


def _part(run: Run, role: str) -> str:
    told = (run.provenance.get("parts") or {}).get(role) or {}
    weights = str(told.get("weights", ""))[:12]
    return short_name(part_name(run.spec[role])) + (f" (weights {weights})" if weights else "")


def _numbers(results: Mapping[str, Any]) -> Iterator[str]:
    for text, name in (
        ("SA", "SA"),
        ("PA", "PA"),
        ("FMR", "FMR"),
        ("FMR with SA over the accepted images", "FMR_matched"),
        ("FMR without images whose first step was rejected", "FMR_moved"),
        ("validation rate of the reconstruction", "VR"),
        ("of the first step", "VR_first"),
        ("accuracy on plain reconstructions", "PA_reconstruction"),
        ("after random steps", "PA_random"),
    ):
        found = Estimate.from_dict(results[name])
        if found.value is not None:
            yield f"{text} {estimate_text(found)} (n {found.n})"
