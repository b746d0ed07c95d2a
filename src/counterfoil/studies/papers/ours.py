"""Runs as rows of the same kind as a published table's, and how their set-up departs from the published one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from counterfoil.core.records import Estimate
from counterfoil.metrics.fmr import scores
from counterfoil.metrics.outcomes import Outcomes, model_names, part_name, read_outcomes
from counterfoil.store import Run
from counterfoil.studies.papers.tables import Published

_SAME_PARTS = {
    "oracle": ("clip-vit-base-patch32", "vit-b-32/openai", "vit-b-32-quickgelu/openai"),
    "generator": ("vqgan_imagenet_f16_16384",),
}
"""What the published parts are called here."""

_WORDING = "an image of {}"


@dataclass(frozen=True)
class Row:
    """One row of a run: what it is about, its values, and what differs from the published set-up."""

    labels: Mapping[str, str]
    values: Mapping[str, Estimate]
    differs: tuple[str, ...]


def rows(run: Run, table: Published) -> Iterator[Row]:
    """The rows that a run has for a table of this kind."""
    own = part_name(run.spec.get("model"))
    common = {"data": part_name(run.spec.get("data")), "generator": part_name(run.spec.get("generator"))}
    differs = tuple(_set_up(run, table))
    for name in model_names(run) if table.kind == "transfer" else [own]:
        outcomes = read_outcomes(run, model=name)
        labels = {**common, "made against": own, "model": name}
        for group, some in _groups(outcomes, table):
            values = scores(some, seed=int(run.spec.get("seed", 0)))
            yield Row({**labels, "class": group}, values, differs)


def same_words(published: str, ours: str) -> bool:
    """Whether a name here contains all the words of a published one, or all of them as one: `CIFAR10` is CIFAR-10."""
    return set(_words(published)) <= set(_words(ours)) or "".join(_words(published)) in _words(ours)


def _groups(outcomes: Outcomes, table: Published) -> Iterator[tuple[str, Outcomes]]:
    if table.kind == "classes":
        for label, name in outcomes.class_names.items():
            yield name, outcomes.take(outcomes.label == label)
    yield "all", outcomes


def _set_up(run: Run, table: Published) -> Iterator[str]:
    """Each departure in a sentence; the data is left to the row, as tables have several."""
    for role in ("oracle", "generator"):
        name = part_name(run.spec.get(role))
        if role == "generator" and table.kind == "generators":
            continue  # a column of the table
        if not any(each in name.lower() for each in _SAME_PARTS[role]):
            yield f"{role} {name} (published: {table.set_up[role]})"
    oracle = run.spec.get("oracle")
    templates = oracle.get("options", {}).get("templates") if isinstance(oracle, Mapping) else None
    if templates and list(templates) != [_WORDING]:
        yield f"oracle asked {', '.join(map(repr, templates))} (published: {_WORDING!r})"
    search = run.spec.get("search", {})
    if "step" in search and (f"{search['step']:g}", search.get("unit")) != (table.set_up["step"].split(",")[0], "absolute"):
        yield f"step {search['step']:g}, unit {search.get('unit', 'scale')} (published: {table.set_up['step']})"
    if "budget" in search and str(search["budget"]) != table.set_up["budget"]:
        yield f"budget of {search['budget']} steps (published: {table.set_up['budget']})"
    if "norm" in search:
        yield f"gradient normalised by {search['norm']} (published: {table.set_up['norm']})"
    size = run.provenance.get("size")
    if size is not None and str(size) != table.set_up["size"]:
        yield f"pictures of {size} px (published: {table.set_up['size']})"


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())
