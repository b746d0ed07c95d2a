"""One architecture, several trainings: whether FMR tells them apart, and in the order that training implies.

On the lab all three are the same network: `narrow` has seen one studio, `augmented` the same studio distorted, `diverse`
the whole world. What differs in FMR is what they were shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

from counterfoil.core.spec import PartSpec
from counterfoil.metrics.outcomes import Outcomes, read_outcomes
from counterfoil.metrics.verdicts import interval_text
from counterfoil.studies.bench import Bench
from counterfoil.studies.contract import Study
from counterfoil.studies.findings import Check, Findings, Row, Table, apart
from counterfoil.studies.measured import difference, row

_BEST, _MIDDLE, _WORST = "lab:diverse", "lab:augmented", "lab:narrow"


def run(bench: Bench) -> Findings:
    """Every model's FMR under each generator, and the differences between them.

    Not every generator takes as many images to tell them apart: `further_images` is how many the further ones get at most.
    """
    own, seed = bench.settings.generator, bench.settings.seed
    further = int(bench.options["further_images"])
    fewer = min(bench.settings.images or further, further)
    rows: list[Row] = []
    pairs: list[Row] = []
    checks: list[Check] = []
    notes: list[str] = []
    for name in dict.fromkeys([own.name, *bench.options["generators"]]):
        changes: dict[str, Any] = {} if name == own.name else {"generator": PartSpec(name=name), "images": fewer}
        found = {model.name: read_outcomes(bench.run(model, **changes)) for model in bench.models}
        mine = [row((name, model), each, seed=seed) for model, each in found.items()]
        rows += mine
        pairs += _differences(name, found, seed=seed)
        by_model = {each.about[1]: each for each in mine}
        checks += _checks(name, by_model)
        notes += _place(name, by_model)
    tables = [Table("Each model on pictures made against it", ("generator", "model"), tuple(rows))]
    if pairs:
        tables.append(Table("Differences in points, paired by source image", ("generator", "difference"), tuple(pairs)))
    else:
        notes.append("One model has nothing to be compared with; repeat --model.")
    return Findings(tuple(tables), tuple(checks), tuple(notes))


def _differences(generator: str, found: Mapping[str, Outcomes], *, seed: int) -> Iterator[Row]:
    for one, two in combinations(found, 2):
        values = {name: difference(found[one], found[two], name, seed=seed) for name in ("FMR", "FMR_matched")}
        yield Row((generator, f"{one} − {two}"), values)


def _checks(generator: str, rows: Mapping[str, Row]) -> Iterator[Check]:
    if {_BEST, _WORST} <= set(rows):
        for measure, called in (("FMR", "published"), ("FMR_matched", "matched")):
            claim = f"{generator}: diverse above narrow in FMR, {called}, with intervals apart"
            yield apart(claim, rows[_BEST].values[measure], rows[_WORST].values[measure])


def _place(generator: str, rows: Mapping[str, Row]) -> Iterator[str]:
    """Where the model that was trained on distorted pictures falls; nothing is known of that beforehand."""
    if {_BEST, _MIDDLE, _WORST} <= set(rows):
        low, middle, high = (rows[name].values["FMR"] for name in (_WORST, _MIDDLE, _BEST))
        if low.value is None or middle.value is None or high.value is None:
            return
        between = min(low.value, high.value) <= middle.value <= max(low.value, high.value)
        place = "between narrow and diverse" if between else "below both" if middle.value < low.value else "above both"
        values = f"narrow {low.value:.1f}, augmented {interval_text(middle)}, diverse {high.value:.1f}"
        yield f"{generator}: augmented falls {place} in FMR: {values}"


STUDY = Study(
    name="variants",
    published="Tables 4 and 5 (one Swin, several numbers of heads); here one network, several trainings",
    run=run,
    models=(_WORST, _MIDDLE, _BEST),
    images=288,  # lab:vqgan tells them apart by less than lab:kl does, and needs more (docs/instrument.md)
    options={"generators": ("lab:kl",), "further_images": 96},
)
