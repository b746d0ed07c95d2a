"""The sparse submodel (§3.2.1, App. I): which latent dimensions tell perturbed from original, and a search held to those.

The mask is fitted on other images than the ones it is tested on, and saved for `counterfoil run --mask`.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import torch

from counterfoil.assembly import Assembly, assemble
from counterfoil.errors import UsageError
from counterfoil.metrics.estimate import Estimate
from counterfoil.metrics.fmr import scores
from counterfoil.metrics.outcomes import Outcomes, read_outcomes
from counterfoil.naming import default_folder
from counterfoil.sparse import mask as masks
from counterfoil.sparse.fit import Fitted, Settings, fit
from counterfoil.sparse.latents import pairs
from counterfoil.sparse.saving import measure
from counterfoil.spec import PartSpec
from counterfoil.studies.bench import Bench
from counterfoil.studies.contract import Study
from counterfoil.studies.findings import Check, Findings, Row, Table, positive
from counterfoil.studies.measured import difference

_SHOWN = ("SA", "VR", "PA_reconstruction", "PA", "FMR", "FMR_matched", "steps")


def run(bench: Bench) -> Findings:
    """Fit a mask for every model, and run it with and without."""
    fitted_rows, rows, checks, notes = [], [], [], []
    seed = bench.settings.seed
    for model in bench.models:
        fitted, file, time = _fitted(bench, model)
        dense = read_outcomes(bench.run(model))
        sparse = read_outcomes(bench.run(model, search={"mask": str(file)}))
        fitted_rows.append(
            Row((model.name,), {"sparsity": _exact(fitted.mask), "test score": fitted.score, "time of a step": time})
        )
        rows += [_row(model.name, "all", dense, seed=seed), _row(model.name, "kept", sparse, seed=seed)]
        lost = difference(sparse, dense, seed=seed)
        rows.append(Row((model.name, "kept less all"), {"FMR": lost}))
        checks += [_tells(model.name, fitted), positive(f"{model.name}: the mask leaves FMR higher", lost, required=False)]
        notes.append(f"{file}: {int(fitted.mask.kept.sum())} of {fitted.mask.kept.numel()} dimensions, for --mask")
    tables = (
        Table("The mask", ("model",), tuple(fitted_rows)),
        Table("The search over all dimensions and over the kept ones", ("model", "dimensions"), tuple(rows)),
    )
    return Findings(tables, tuple(checks), tuple(notes))


def _fitted(bench: Bench, model: PartSpec) -> tuple[Fitted, Path, Estimate]:
    """A mask, where it lies, and the time of a step under it in per cent of one without."""
    options = bench.options
    spec = bench.spec(model, data=_fitting_data(bench), images=int(options["fitting_images"]))
    with bench.counting(f"latents of {model.name}", int(options["fitting_images"])) as watch:
        assembly = assemble(spec)
        original, perturbed = pairs(assembly, compared=options["compared"], watch=watch)
    settings = Settings(
        regularisation=None if options["regularisation"] is None else float(options["regularisation"]),
        meaning=options["meaning"],
        sparsity=float(options["sparsity"]),
        standardise=bool(options["standardise"]),
        seed=bench.settings.seed,
    )
    fitted = fit(original, perturbed, settings)
    if not bool(fitted.mask.kept.any()):
        raise UsageError(
            f"sparse: a regularisation of {settings.regularisation} as {settings.meaning} keeps no dimension of {len(original)} "
            "pairs; give more images or a weaker one, or leave it out to have one looked for"
        )
    file = masks.save(fitted.mask, bench.folder / "masks" / default_folder(spec).name)
    return fitted, file, _time(assembly, fitted.mask)


def _time(assembly: Assembly, mask: masks.Mask) -> Estimate:
    few = islice(assembly.jobs(iter(assembly.dataset), lambda sample, problem: None), 8)
    images = torch.stack([job.image for job in few]).to(assembly.spec.device)
    low, middle, high = (100 * each for each in measure(assembly.generator, mask, assembly.model, images).ratio)
    return Estimate(middle, low, high, len(images), "per cent of a step over all dimensions: median and quartiles")


def _fitting_data(bench: Bench) -> PartSpec:
    """The lab's tuning garments, or what was given, or as published the tested images themselves."""
    given, tested = str(bench.options["fitting_data"]), bench.settings.data
    if given:
        return PartSpec(name=given if ":" in given else f"folder:{given}")
    if tested.name.startswith("lab:"):
        return PartSpec(name=tested.name, options={**tested.options, "split": "tune"})
    return tested


def _row(model: str, which: str, outcomes: Outcomes, *, seed: int) -> Row:
    found = scores(outcomes, seed=seed)
    return Row((model, which), {name: found[name] for name in _SHOWN if name in found})


def _exact(mask: masks.Mask) -> Estimate:
    return Estimate(mask.sparsity, mask.sparsity, mask.sparsity, mask.kept.numel(), "counted, so the interval has no width")


def _tells(model: str, fitted: Fitted) -> Check:
    score = fitted.score
    claim = f"{model}: the regression tells perturbed latents from original ones it has not seen"
    assert score.value is not None and score.low is not None and score.high is not None
    holds = True if score.low > 50 else False if score.high < 50 else None
    return Check(claim, holds, f"{score.value:.1f} % ({score.low:.1f} to {score.high:.1f}), chance is 50 %", required=False)


STUDY = Study(
    name="sparse",
    published="Tables 11 and 12",
    run=run,
    models=("lab:narrow",),
    options={
        "regularisation": None,
        "meaning": "lambda",
        "sparsity": 99.0,
        "standardise": False,
        "compared": "published",
        "fitting_data": "",
        "fitting_images": 240,
    },
)
