"""How natural the made set is: the Fréchet distance of its pictures, and the perplexity of its captions."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from counterfoil.metrics.frechet import Moments, frechet
from counterfoil.parts import registry
from counterfoil.parts.contracts import to_device
from counterfoil.protocols.lance.bench import Bench
from counterfoil.protocols.lance.edits import checked, image_of
from counterfoil.protocols.lance.quality.measure import Ruler
from counterfoil.protocols.lance.trials import Tables
from counterfoil.protocols.workbench import picture
from counterfoil.store.stages import Item, Made, Stages, Table
from counterfoil.store.stages.table import digest


def describe(bench: Bench, stages: Stages, tables: Tables) -> Table:
    """One row about the whole set; what could not be measured has a note instead of a number."""

    def work(some: Sequence[Item]) -> list[Made]:
        return [Made({**_distance(bench, stages, tables), **_perplexity(bench, tables)}) for _ in some]

    features = bench.spec.realism.features
    settings: dict[str, Any] = bench.settings(bench.spec.encoder, bench.encoder, **bench.spec.realism.model_dump(mode="json"))
    inputs = {"pictures": _digest(tables), "edits": digest(tables.edits.path)}
    with bench.placed(*([bench.encoder] if features is None else [])):
        return stages.map("set", [Item("set", inputs)], work, settings=settings)


def _digest(tables: Tables) -> str:
    """A hash over the accepted pictures."""
    content = hashlib.sha256()
    for source, made in _pairs(tables):
        content.update(f"{source} {made}\n".encode())
    return content.hexdigest()


def _pairs(tables: Tables) -> Iterator[tuple[str, str]]:
    """Source picture and edited picture of every edit that the oracle accepts."""
    for row in tables.quality.kept():
        verdict, source = tables.verdicts.one(row.id), tables.sources.one(image_of(row.id))
        if verdict is not None and verdict.goes_on and source is not None:
            yield source["picture"], row["image"]


def _distance(bench: Bench, stages: Stages, tables: Tables) -> dict[str, Any]:
    """Fréchet distance between the source pictures that have an accepted edit and the accepted edits."""
    named = bench.spec.realism.features
    extract = _features(bench)
    sources, made = Moments(), Moments()
    pairs = list(_pairs(tables))  # names alone
    for moments, names in ((sources, dict.fromkeys(name for name, _ in pairs)), (made, [name for _, name in pairs])):
        left = iter(names)
        while some := list(islice(left, bench.tile)):
            for row in extract([picture(stages, name) for name in some]):
                moments.add(row)
    value, note = frechet(sources, made)
    return {
        "frechet": value,
        "frechet_note": note,
        "frechet_features": named.name if named is not None else f"{bench.spec.encoder.name} (stands in for Inception)",
        "frechet_pictures": [sources.count, made.count],
    }


def _features(bench: Bench) -> Any:
    """A function from a few pictures to their features."""
    named = bench.spec.realism.features
    if named is None:
        ruler = Ruler(bench.encoder, tile=bench.tile, device=bench.device)
        return lambda pictures: ruler.images(pictures).double().numpy()
    encoder = to_device(registry.create("encoder", named.name, named.options), bench.device)

    @torch.no_grad()
    def extract(pictures: Sequence[Tensor]) -> Any:
        return encoder.embed_images(torch.stack(list(pictures)).to(bench.device)).double().cpu().numpy()

    return extract


def _perplexity(bench: Bench, tables: Tables) -> dict[str, Any]:
    """Perplexity of the captions and of the edited captions under a language model."""
    name = bench.spec.realism.language
    if name is None:
        return {"perplexity_note": "no language model given; name one under realism.language"}
    from counterfoil.parts.language.text_models import Perplexity

    model = Perplexity(name).to(bench.device)
    rows = list(checked(tables.edits))
    captions = list(dict.fromkeys(row["caption"] for row in rows))
    found = {"captions": model.of(captions), "edits": model.of([row["edited"] for row in rows])}
    means = {key: _geometric([value for value in values if value > 0 and math.isfinite(value)]) for key, values in found.items()}
    return {"perplexity_captions": means["captions"], "perplexity_edits": means["edits"], "perplexity_model": name}


def _geometric(values: Sequence[float]) -> float | None:
    """The geometric mean: the perplexity of a text as a whole is one too."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None
