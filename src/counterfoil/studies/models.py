"""Studies that compare models: trainings, generators, transfer, hardened and colour-blind models, surrogates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import comb

from counterfoil.core.errors import UsageError
from counterfoil.core.records import Estimate
from counterfoil.core.spec import PartSpec
from counterfoil.metrics.comparison import agreement_across
from counterfoil.metrics.estimate import Difference, Share, Statistic, estimate
from counterfoil.metrics.observations import Measure, Observations
from counterfoil.metrics.tables import Table, estimate_text
from counterfoil.studies.base import Claim, Findings, Study, Values, gap, show, table, world
from counterfoil.studies.runs import Runs

Scored = Mapping[str, Mapping[str, Observations]]
"""By the model that images were made against, then by the model that predicted on them."""

SHOWN = ("SA", "PA_reconstruction", "PA", "FMR", "FMR_matched", "harm")


def cross(runs: Runs, models: Sequence[PartSpec]) -> Scored:
    """Make images against each model and score every model on all of them."""
    made = {model.name: runs.make(model) for model in models}
    return {name: {model.name: runs.observe(run, model=model) for model in models} for name, run in made.items()}


def matrix(runs: Runs, scored: Scored, title: str) -> Table:
    """Return the transfer matrix with a row per cell; `spared` is how much less a model is harmed than their target."""
    rows = []
    for against, row in scored.items():
        for model, seen in row.items():
            values = runs.values(seen, SHOWN)
            if model != against:
                values["spared"] = runs.difference(row[against], seen, "harm")
            rows.append(((against, model), values))
    return table(title, ("made against", "model"), rows)


def _under_generators(runs: Runs, further: Mapping[str, Any]) -> dict[str, dict[str, Observations]]:
    """Run every model under the settings' generator, and with `further` changes under the others."""
    own = runs.settings.generator.name
    found = {}
    for name in dict.fromkeys([own, *runs.options["generators"]]):
        changes = {} if name == own else {"generator": PartSpec(name=name), **further}
        found[name] = {model.name: runs.search(model, **changes) for model in runs.models}
    return found


def _each(runs: Runs, found: Scored, title: str) -> Table:
    rows = [((name, model), runs.values(seen)) for name, group in found.items() for model, seen in group.items()]
    return table(title, ("generator", "model"), rows)


def variants(runs: Runs) -> Findings:
    """Estimate each training's FMR under each generator, and the differences between them.

    Not every generator needs as many images to tell models apart: `further_images` is the most that the further ones get.
    """
    further = int(runs.options["further_images"])
    found = _under_generators(runs, {"images": min(runs.settings.images or further, further)})
    known = world()
    pairs: list[tuple[tuple[str, str], Values]] = []
    claims: list[Claim] = []
    notes: list[str] = []
    for name, seen in found.items():
        for one, two in combinations(seen, 2):
            values = {measure: runs.difference(seen[one], seen[two], measure) for measure in ("FMR", "FMR_matched")}
            pairs.append(((name, f"{one} − {two}"), values))
        ordered = {model: runs.values(seen[model]) for model in (known.ordered if known else ()) if model in seen}
        if len(ordered) > 1:
            worst, *_, best = ordered
            for measure in ("FMR", "FMR_matched"):
                claim = f"{name}: {best} above {worst} in {measure}, with intervals apart"
                claims.append(show(claim, gap(ordered[best][measure], ordered[worst][measure])))
            texts = (f"{model} {estimate_text(values['FMR'])}" for model, values in ordered.items())
            notes.append(f"{name}, FMR from the least to the most varied training: {'; '.join(texts)}")
    tables = [_each(runs, found, "Each model on images made against it")]
    if pairs:
        tables.append(table("Differences in points, paired by source image", ("generator", "difference"), pairs))
    else:
        notes.append("One model has nothing to be compared with; repeat --model.")
    return Findings(tuple(tables), tuple(claims), tuple(notes))


def transfer(runs: Runs) -> Findings:
    """Score every model on images made against every other, and pool the harm over all cells."""
    scored = cross(runs, runs.models)
    harm = pool(scored, runs.measures["harm"], seed=runs.seed)
    pooled = "Accuracy the search took beyond the plain reconstruction, in points, over all cells"
    return Findings(
        (
            matrix(runs, scored, "Images made against one model, scored on another"),
            table(pooled, ("harm to",), [((name,), {"harm": each}) for name, each in harm.items()]),
        ),
        (
            show("generated images transfer: they hurt models they were not made against", harm["other models"]),
            show("they hurt their own target more than the others", harm["difference"]),
        ),
    )


def pool(scored: Scored, harm: Measure, *, seed: int = 0) -> dict[str, Estimate]:
    """Estimate harm over all cells of a matrix, to the models that images were made against and to the others.

    A source image stands in many cells, and is drawn with all of them.
    """
    cells = [(against == model, seen) for against, row in scored.items() for model, seen in row.items()]
    parts = {name for term in harm.statistic.terms for name in (term.part, term.whole)}
    columns = {
        f"{side} {name}": np.concatenate([seen.columns[name] * (own == (side == "own")) for own, seen in cells])
        for side in ("own", "other")
        for name in parts
    }
    own, other = harm.statistic.with_prefix("own "), harm.statistic.with_prefix("other ")
    statistics = {"the model they were made against": own, "other models": other, "difference": Difference(own, other)}
    return estimate(columns, statistics, seed=seed, clusters=np.concatenate([seen.keys for _, seen in cells]))


def generators(runs: Runs) -> Findings:
    """Estimate every model's FMR under every generator, and Kendall's tau between the orders."""
    found = _under_generators(runs, {})
    taus = agreement_across(found, runs.measures["FMR"], seed=runs.seed)
    against = [" and ".join(pair) for pair, each in taus.items() if each.high is not None and each.high < 0]
    evidence = f"shown to be opposite: {'; '.join(against)}" if against else "none is"
    claim = Claim("no two generators put the models in opposite orders", not against, evidence, required=False)
    agreement = table(
        "Kendall's tau between the orders of models by FMR",
        ("generator", "and"),
        [(pair, {"tau": each}) for pair, each in taus.items()],
    )
    return Findings((_each(runs, found, "Each model under each generator"), agreement), (claim,))


def adversarial_training(runs: Runs) -> Findings:
    """Compare a plain model with one trained on adversarial images, the last given, on images made against either."""
    ((plain, on_old), (_, on_own)), shows = _both_ways(runs)
    claims = (
        ("the hardened model keeps more on the plain model's images than that model does", on_old),
        ("it keeps more on images made against itself than the plain model on its own", on_own),
    )
    return Findings((shows,), tuple(show(claim, runs.difference(each, plain), required=False) for claim, each in claims))


def greyscale(runs: Runs) -> Findings:
    """Compare a model with one that sees no colour, the last given: does the search win by shifting colours?"""
    ((_, on_coloured), (_, on_own)), shows = _both_ways(runs)
    harm = on_own.estimate(runs.measures["harm"])
    spared = runs.difference(on_coloured, on_own)
    claims = (
        show("a model without colour can be hurt too: colour is not all that the search uses", harm, required=False),
        show("it keeps more on images made against the coloured model than on its own", spared, required=False),
    )
    return Findings((shows,), claims)


def _both_ways(runs: Runs) -> tuple[list[list[Observations]], Table]:
    """The first and the last model, and both on images made against either: a row for each that images were made against."""
    scored = cross(runs, (runs.models[0], runs.models[-1]))
    return [[*row.values()] for row in scored.values()], matrix(runs, scored, "Images made against one, scored on both")


def surrogates(runs: Runs) -> Findings:
    """Estimate the accuracy of other models on images that k surrogates misread, and the gain of each further one.

    Images are made against the first models, as many as `made_against`; all models predict on all of them.
    """
    made = {model.name: runs.make(model) for model in runs.models[: int(runs.options["made_against"])]}
    scored = {name: {model.name: runs.observe(run, model=model) for model in runs.models} for name, run in made.items()}
    found = mine(scored, most=int(runs.options["most"]), seed=runs.seed)
    gains = [each["harder by, points"] for each in found[1:]]
    claims = [show("a first surrogate makes the set harder for models that took no part", each) for each in gains[:1]]
    if len(gains) > 1:
        claims.append(show(f"surrogate {len(gains)} still does (reported, not required)", gains[-1], required=False))
    rows = [((str(count),), each) for count, each in enumerate(found)]
    return Findings(
        (table("Models that took no part, on images that all surrogates misread", ("surrogates",), rows),), tuple(claims)
    )


def mine(scored: Scored, *, most: int, seed: int = 0) -> list[dict[str, Estimate]]:
    """Return the numbers for 0, 1, 2, … surrogates.

    An image is kept when all of k surrogates get it wrong. Accuracy on the kept images is taken for models that took no part:
    not among the surrogates, and not the one the image was made against. All choices of k surrogates count alike. A source image
    is drawn with all its images and all choices; n counts source images.
    """
    models = sorted({model for row in scored.values() for model in row})
    if len(models) < 3:
        raise UsageError(f"surrogates: needs three models, so that one can take no part, got {', '.join(models) or 'none'}")
    counts = range(min(most, len(models) - 2) + 1)
    columns: dict[str, list[NDArray[Any]]] = {}
    keys = []
    for against, row in scored.items():
        known, right = (np.stack([seen.columns[name] > 0 for seen in row.values()]) for name in ("made", "made_right"))
        missed, other = known & ~right, np.array([[name != against] for name in row])
        asked, wrong = known.sum(0), missed.sum(0)  # (images,)
        keys.append(next(iter(row.values())).keys)
        for k in counts:  # summed over all choices of k surrogates and all models that took no part
            on_right = (other & right).sum(0) * comb(wrong, k)
            tally = {
                "all": (other & known).sum(0) * comb(asked - 1, k),
                "kept": on_right + (other & missed).sum(0) * comb(wrong - 1, k),
                "right": on_right,
            }
            for name, column in tally.items():
                columns.setdefault(f"{k} {name}", []).append(column)
    joined, clusters = {name: np.concatenate(each) for name, each in columns.items()}, np.concatenate(keys)
    accuracy = [Share(f"{k} right", f"{k} kept", "no image that all of them miss") for k in counts]
    statistics: dict[str, Statistic] = {f"{k} accuracy %": accuracy[k] for k in counts}
    statistics |= {f"{k} images kept %": Share(f"{k} kept", f"{k} all", "no accepted image") for k in counts}
    statistics |= {
        f"{after} harder by, points": Difference(accuracy[before], accuracy[after]) for before, after in pairwise(counts)
    }
    found = estimate(joined, statistics, seed=seed, clusters=clusters)
    images = [len(np.unique(clusters[joined[f"{k} kept"] > 0])) for k in counts]
    rows: list[dict[str, Estimate]] = [{} for _ in counts]
    for name, each in found.items():
        count, _, title = name.partition(" ")
        rows[int(count)][title] = replace(each, n=images[0] if "kept" in title else images[int(count)])
    return rows


STUDIES = (
    Study(
        "variants",
        "Tables 4 and 5 (one Swin, several numbers of heads); here one network, several trainings",
        variants,
        options={"generators": (), "further_images": 96},
    ),
    Study("transfer", "Table 6 (and the first columns of Tables 8, 9 and 10)", transfer, least_models=2),
    Study(
        "generators",
        "Table 3 (VQGAN, ADM, Improved DDPM, Efficient-VDVAE, StyleGAN-XL)",
        generators,
        least_models=2,
        options={"generators": ("transforms:",)},
    ),
    Study("adversarial-training", "Table 8", adversarial_training, least_models=2),
    Study("greyscale", "Table 10", greyscale, least_models=2),
    Study(
        "surrogates",
        "none; ImageNet-D's authors report that gains slow after four surrogates",
        surrogates,
        least_models=3,
        options={"made_against": 3, "most": 4},
    ),
)
