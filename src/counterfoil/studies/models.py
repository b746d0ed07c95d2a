"""Studies that compare models: trainings, generators, transfer, hardened and colour-blind models, surrogates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

from counterfoil.core.records import Estimate
from counterfoil.core.spec import PartSpec
from counterfoil.metrics.comparison import agreement_across
from counterfoil.metrics.tables import estimate_text
from counterfoil.protocols.fmr.results import MEASURES, Outcomes, observations_of, read_outcomes
from counterfoil.protocols.fmr.transfer import transfer
from counterfoil.studies.base import Claim, Findings, Study, StudyRow, StudyTable, apart, difference, positive, row, world
from counterfoil.studies.pooling import mine, pool
from counterfoil.studies.runs import Runs

Scored = Mapping[str, Mapping[str, Outcomes]]
"""By the model that images were made against, then by the model that predicted on them."""

SHOWN = ("SA", "PA_reconstruction", "PA", "FMR", "FMR_matched", "harm", "spared")


def cross(runs: Runs, models: tuple[PartSpec, ...]) -> Scored:
    """Make images against each model and score every model on all of them."""
    made = {model.name: runs.make(model) for model in models}
    return {name: {model.name: runs.score(run, model) for model in models} for name, run in made.items()}


def matrix(scored: Scored, title: str, *, seed: int = 0) -> StudyTable:
    """Return the transfer matrix with a row per cell, as the paper prints it."""
    rows = [
        StudyRow((against, model), {name: values[name] for name in SHOWN if name in values})
        for against, row in transfer(scored, seed=seed).items()
        for model, values in row.items()
    ]
    return StudyTable(title, ("made against", "model"), tuple(rows))


def run_variants(runs: Runs) -> Findings:
    """Estimate each training's FMR under each generator, and the differences between them.

    Not every generator needs as many images to tell models apart: `further_images` is the most that the further ones get.
    """
    own, seed = runs.settings.generator, runs.settings.seed
    further = int(runs.options["further_images"])
    fewer = min(runs.settings.images or further, further)
    known = world()
    expected = known.ordered if known else ()
    rows: list[StudyRow] = []
    pairs: list[StudyRow] = []
    claims: list[Claim] = []
    notes: list[str] = []
    for name in dict.fromkeys([own.name, *runs.options["generators"]]):
        changes: dict[str, Any] = {} if name == own.name else {"generator": PartSpec(name=name), "images": fewer}
        found = {model.name: read_outcomes(runs.make(model, **changes)) for model in runs.models}
        mine = {model: row((name, model), each, seed=seed) for model, each in found.items()}
        rows += mine.values()
        for one, two in combinations(found, 2):
            values = {measure: difference(found[one], found[two], measure, seed=seed) for measure in ("FMR", "FMR_matched")}
            pairs.append(StudyRow((name, f"{one} − {two}"), values))
        ordered = [mine[model] for model in expected if model in mine]
        if len(ordered) > 1:
            claims += _ends_apart(name, ordered)
            notes += _between(name, ordered)
    tables = [StudyTable("Each model on images made against it", ("generator", "model"), tuple(rows))]
    if pairs:
        tables.append(StudyTable("Differences in points, paired by source image", ("generator", "difference"), tuple(pairs)))
    else:
        notes.append("One model has nothing to be compared with; repeat --model.")
    return Findings(tuple(tables), tuple(claims), tuple(notes))


def _ends_apart(generator: str, ordered: list[StudyRow]) -> Iterator[Claim]:
    worst, best = ordered[0], ordered[-1]
    for measure, kind in (("FMR", "published"), ("FMR_matched", "matched")):
        claim = f"{generator}: {best.about[1]} above {worst.about[1]} in FMR, {kind}, with intervals apart"
        yield apart(claim, best.values[measure], worst.values[measure])


def _between(generator: str, ordered: list[StudyRow]) -> Iterator[str]:
    """Report where models between the ends fall."""
    low, high = ordered[0].values["FMR"], ordered[-1].values["FMR"]
    for each in ordered[1:-1]:
        middle = each.values["FMR"]
        if low.value is None or middle.value is None or high.value is None:
            continue
        inside = min(low.value, high.value) <= middle.value <= max(low.value, high.value)
        place = "between the two" if inside else "below both" if middle.value < low.value else "above both"
        ends = f"{ordered[0].about[1]} {low.value:.1f} and {ordered[-1].about[1]} {high.value:.1f}"
        yield f"{generator}: {each.about[1]} falls {place} in FMR: {estimate_text(middle)}; {ends}"


def run_transfer(runs: Runs) -> Findings:
    """Score every model on images made against every other, and pool the harm over all cells."""
    seed = runs.settings.seed
    scored = cross(runs, runs.models)
    harm = pool(scored, seed=seed)
    rows = (
        StudyRow(("the model they were made against",), {"harm": harm["own"]}),
        StudyRow(("other models",), {"harm": harm["others"]}),
        StudyRow(("difference",), {"harm": harm["spared"]}),
    )
    return Findings(
        (
            matrix(scored, "Images made against one model, scored on another", seed=seed),
            StudyTable("Accuracy the search took beyond the plain reconstruction, in points, over all cells", ("harm to",), rows),
        ),
        (
            positive("generated images transfer: they hurt models they were not made against", harm["others"]),
            positive("they hurt their own target more than the others", harm["spared"]),
        ),
    )


def run_generators(runs: Runs) -> Findings:
    """Estimate every model's FMR under every generator, and Kendall's tau between the orders."""
    own, seed = runs.settings.generator, runs.settings.seed
    found: dict[str, dict[str, Outcomes]] = {}
    for name in dict.fromkeys([own.name, *runs.options["generators"]]):
        generator = own if name == own.name else PartSpec(name=name)
        found[name] = {model.name: read_outcomes(runs.make(model, generator=generator)) for model in runs.models}
    rows = [row((name, model), each, seed=seed) for name, group in found.items() for model, each in group.items()]
    observed = {name: {model: observations_of(each) for model, each in group.items()} for name, group in found.items()}
    taus = agreement_across(observed, MEASURES["FMR"], seed=seed)
    agreement = StudyTable(
        "Kendall's tau between the orders of models by FMR",
        ("generator", "and"),
        tuple(StudyRow(pair, {"tau": each}) for pair, each in taus.items()),
    )
    against = [" and ".join(pair) for pair, each in taus.items() if each.high is not None and each.high < 0]
    evidence = f"shown to be opposite: {'; '.join(against)}" if against else "none is"
    claim = Claim("no two generators put the models in opposite orders", not against, evidence, required=False)
    return Findings((StudyTable("Each model under each generator", ("generator", "model"), tuple(rows)), agreement), (claim,))


def run_adversarial_training(runs: Runs) -> Findings:
    """Compare a plain model with one trained on adversarial images, the last given, on images made against either."""
    plain, hardened, scored, table = _both_ways(runs)
    baseline, seed = scored[plain][plain], runs.settings.seed
    on_old = difference(scored[plain][hardened], baseline, seed=seed)
    on_own = difference(scored[hardened][hardened], baseline, seed=seed)
    claims = (
        positive("the hardened model keeps more on the plain model's images than that model does", on_old, required=False),
        positive("it keeps more on images made against itself than the plain model on its own", on_own, required=False),
    )
    return Findings((table,), claims)


def run_greyscale(runs: Runs) -> Findings:
    """Compare a model with one that sees no colour, the last given: does the search win by shifting colours?"""
    plain, grey, scored, table = _both_ways(runs)
    harm = {each.about: each.values for each in table.rows}[grey, grey]["harm"]
    spared = difference(scored[plain][grey], scored[grey][grey], seed=runs.settings.seed)
    claims = (
        positive("a model without colour can be hurt too: colour is not all that the search uses", harm, required=False),
        positive("it keeps more on images made against the coloured model than on its own", spared, required=False),
    )
    return Findings((table,), claims)


def _both_ways(runs: Runs) -> tuple[str, str, Scored, StudyTable]:
    """The first and the last model by name, and both on images made against either."""
    pair = (runs.models[0], runs.models[-1])
    scored = cross(runs, pair)
    table = matrix(scored, "Images made against one, scored on both", seed=runs.settings.seed)
    return pair[0].name, pair[1].name, scored, table


def run_surrogates(runs: Runs) -> Findings:
    """Estimate the accuracy of other models on images that k surrogates misread, and the gain of each further one.

    Images are made against the first models, as many as `made_against`; all models predict on all of them.
    """
    against = runs.models[: int(runs.options["made_against"])]
    scored = {one.name: {model.name: runs.score(runs.make(one), model) for model in runs.models} for one in against}
    found = mine(scored, most=int(runs.options["most"]), seed=runs.settings.seed)
    rows: list[StudyRow] = []
    for each in found:
        values: dict[str, Estimate] = {"accuracy %": each.accuracy, "images kept %": each.kept}
        rows.append(
            StudyRow((str(each.surrogates),), values if each.gain is None else {**values, "harder by, points": each.gain})
        )
    gains = [each.gain for each in found if each.gain is not None]
    claims = [positive("a first surrogate makes the set harder for models that took no part", each) for each in gains[:1]]
    if len(gains) > 1:
        claims.append(positive(f"surrogate {len(gains)} still does (reported, not required)", gains[-1], required=False))
    table = StudyTable("Models that took no part, on images that all surrogates misread", ("surrogates",), tuple(rows))
    return Findings((table,), tuple(claims))


_ALL = (
    Study(
        "variants",
        "Tables 4 and 5 (one Swin, several numbers of heads); here one network, several trainings",
        run_variants,
        options={"generators": (), "further_images": 96},
    ),
    Study("transfer", "Table 6 (and the first columns of Tables 8, 9 and 10)", run_transfer, least_models=2),
    Study(
        "generators",
        "Table 3 (VQGAN, ADM, Improved DDPM, Efficient-VDVAE, StyleGAN-XL)",
        run_generators,
        least_models=2,
        options={"generators": ("transforms:",)},
    ),
    Study("adversarial-training", "Table 8", run_adversarial_training, least_models=2),
    Study("greyscale", "Table 10", run_greyscale, least_models=2),
    Study(
        "surrogates",
        "none; ImageNet-D's authors report that gains slow after four surrogates",
        run_surrogates,
        least_models=3,
        options={"made_against": 3, "most": 4},
    ),
)
STUDIES = {study.name: study for study in _ALL}
