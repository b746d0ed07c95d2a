"""One architecture, several trainings: whether FMR tells them apart, and in the order that training implies.

On the lab all three are the same network: `narrow` has seen one studio, `augmented` the same studio distorted, `diverse`
the whole world. What differs in FMR is what they were shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations

from counterfoil.metrics.outcomes import Outcomes, read_outcomes
from counterfoil.spec import PartSpec
from counterfoil.studies.bench import Bench
from counterfoil.studies.contract import Study
from counterfoil.studies.findings import Check, Findings, Row, Table, apart
from counterfoil.studies.measured import difference, row

_BEST, _MIDDLE, _WORST = "lab:diverse", "lab:augmented", "lab:narrow"
_DECISIVE = "lab:kl"  # tells them apart with these few images; lab:vqgan needs some 400 (docs/instrument.md)


def run(bench: Bench) -> Findings:
    """Every model's FMR under each generator, and the differences between them."""
    own, seed = bench.settings.generator, bench.settings.seed
    rows: list[Row] = []
    pairs: list[Row] = []
    checks: list[Check] = []
    for name in dict.fromkeys([own.name, *bench.options["generators"]]):
        generator = own if name == own.name else PartSpec(name=name)
        found = {model.name: read_outcomes(bench.run(model, generator=generator)) for model in bench.models}
        mine = [row((name, model), each, seed=seed) for model, each in found.items()]
        rows += mine
        pairs += _differences(name, found, seed=seed)
        checks += _checks(name, {each.about[1]: each for each in mine})
    tables = [Table("Each model on pictures made against it", ("generator", "model"), tuple(rows))]
    if pairs:
        tables.append(Table("Differences in points, paired by source image", ("generator", "difference"), tuple(pairs)))
    notes = () if pairs else ("One model has nothing to be compared with; repeat --model.",)
    return Findings(tuple(tables), tuple(checks), notes)


def _differences(generator: str, found: Mapping[str, Outcomes], *, seed: int) -> Iterator[Row]:
    for one, two in combinations(found, 2):
        values = {name: difference(found[one], found[two], name, seed=seed) for name in ("FMR", "FMR_matched")}
        yield Row((generator, f"{one} − {two}"), values)


def _checks(generator: str, rows: Mapping[str, Row]) -> Iterator[Check]:
    if {_BEST, _WORST} <= set(rows):
        for measure, called in (("FMR", "published"), ("FMR_matched", "matched")):
            claim = f"{generator}: diverse above narrow in FMR, {called}, with intervals apart"
            yield apart(claim, rows[_BEST].values[measure], rows[_WORST].values[measure], required=generator == _DECISIVE)
    if {_BEST, _MIDDLE, _WORST} <= set(rows):
        yield _between(generator, *(rows[name].values["FMR"].value for name in (_WORST, _MIDDLE, _BEST)))


def _between(generator: str, low: float | None, value: float | None, high: float | None) -> Check:
    claim = f"{generator}: augmented lies between narrow and diverse in FMR (reported, not required)"
    if value is None or low is None or high is None:
        return Check(claim, None, "undefined", required=False)
    place = "between" if low <= value <= high else "below both" if value < min(low, high) else "above both"
    return Check(
        claim, place == "between", f"{place}: narrow {low:.1f}, augmented {value:.1f}, diverse {high:.1f}", required=False
    )


STUDY = Study(
    name="variants",
    published="Tables 4 and 5 (one Swin, several numbers of heads); here one network, several trainings",
    run=run,
    models=(_WORST, _MIDDLE, _BEST),
    options={"generators": (_DECISIVE,)},
)
