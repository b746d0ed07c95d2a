"""The sparse submodel (§3.2.1, App. I): which part of the latent matters, and a search held to it that decodes only that.

The mask is fitted on other images than the ones it is tested on, and saved for `counterfoil run --mask`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from counterfoil import protocols
from counterfoil.core.errors import UsageError
from counterfoil.core.records import Estimate
from counterfoil.core.spec import PartSpec, default_folder
from counterfoil.engine.device import synchronize
from counterfoil.engine.scheduler import Engine, Job, SearchResult
from counterfoil.parts.generators.masked import Mask, MaskedGenerator, save_mask
from counterfoil.protocols.fmr.results import Outcomes, read_outcomes, scores
from counterfoil.protocols.workspace import Workspace
from counterfoil.studies.base import Claim, Findings, Study, StudyRow, StudyTable, difference, within, world
from counterfoil.studies.runs import Runs
from counterfoil.studies.sparse_fit import CellSettings, Fitted, Settings, fit, fit_cells
from counterfoil.studies.sparse_latents import labelled_latents, pairs

Question = Literal["class", "perturbed"]
"""`class`: which cells tell the classes apart. `perturbed`, the paper's: which dimensions tell made latents from source ones."""
_SHOWN = ("SA", "VR", "PA_reconstruction", "PA", "FMR", "FMR_matched", "steps")
_TIMED, _TIMED_ON_A_GPU = 8, 256  # images; on a GPU as many as are in progress
_ROUNDS, _ROUNDS_ON_A_GPU = 2, 5


def run(runs: Runs) -> Findings:
    """Fit a mask for every model, and run it with and without."""
    fitted_rows, rows, claims, notes = [], [], [], []
    seed, distance = runs.settings.seed, float(runs.options["distance"])
    for model in runs.models:
        fitted, file = _fit(runs, model)
        window, costs = _costs(runs, model, file)
        dense = read_outcomes(runs.make(model))
        sparse = read_outcomes(runs.make(model, search={"mask": str(file)}))
        fitted_rows.append(StudyRow((model.name,), {"sparsity": _exact(fitted.mask), "test score": fitted.score, **costs}))
        rows += [_row(model.name, "all", dense, seed=seed), _row(model.name, "kept", sparse, seed=seed)]
        lost = difference(sparse, dense, seed=seed)
        rows.append(StudyRow((model.name, "kept less all"), {"FMR": lost}))
        found = (
            _tells(model.name, fitted),
            _saves(model.name, costs["time of a climb"]),
            within(f"{model.name}: FMR under the mask is within {distance:g} points of FMR without", lost, distance),
        )
        # Scattered dimensions, the answer to the paper's question, are reported only.
        claims += [replace(each, required=runs.options["question"] == "class") for each in found]
        notes.append(
            f"{file}: {int(fitted.mask.kept.sum())} of {fitted.mask.kept.numel()} dimensions, for --mask; window: {window}"
        )
    tables = (
        StudyTable("The mask", ("model",), tuple(fitted_rows)),
        StudyTable("The search over all dimensions and over the kept ones", ("model", "dimensions"), tuple(rows)),
    )
    return Findings(tables, tuple(claims), tuple(notes))


def _fit(runs: Runs, model: PartSpec) -> tuple[Fitted, Path]:
    """A mask, and where it lies."""
    options, question = runs.options, str(runs.options["question"])
    if question not in get_args(Question):
        raise UsageError(f"sparse: question={question!r}: one of {', '.join(get_args(Question))}")
    count = int(options["fitting_images"])
    spec = runs.spec(model, data=_fitting_data(runs, count), images=count)
    with runs.counting(f"latents of {model.name}", count) as watch:
        assembly = _space(spec)
        fitted = _by_class(runs, assembly, watch) if question == "class" else _by_change(runs, assembly, watch)
    # Named by what it keeps: runs are found again by their specification, and that names the mask by its file.
    return fitted, save_mask(fitted.mask, runs.folder / "masks" / f"{default_folder(spec).name}-{fitted.mask.sha256[:8]}")


def _space(spec: Any) -> Workspace[Any]:
    return protocols.get(spec.protocol).workspace(spec)


def _by_class(runs: Runs, assembly: Workspace[Any], watch: Callable[[int], None]) -> Fitted:
    latents, labels = labelled_latents(assembly, watch=watch)
    window, halo = float(runs.options["window"]), int(runs.options["halo"])
    return fit_cells(latents, labels, CellSettings(window=window, halo=halo, seed=runs.settings.seed))


def _by_change(runs: Runs, assembly: Workspace[Any], watch: Callable[[int], None]) -> Fitted:
    options = runs.options
    original, perturbed = pairs(assembly, compared=options["compared"], watch=watch)
    settings = Settings(
        regularisation=None if options["regularisation"] is None else float(options["regularisation"]),
        meaning=options["meaning"],
        sparsity=float(options["sparsity"]),
        standardise=bool(options["standardise"]),
        matched=bool(options["matched"]),
        seed=runs.settings.seed,
    )
    fitted = fit(original, perturbed, settings)
    if not bool(fitted.mask.kept.any()):
        raise UsageError(
            f"sparse: a regularisation of {settings.regularisation} as {settings.meaning} keeps no dimension of {len(original)} "
            "pairs; give more images or a weaker one, or leave it out to have one looked for"
        )
    return fitted


def _costs(runs: Runs, model: PartSpec, file: Path) -> tuple[str, dict[str, Estimate]]:
    """The window in words, and what a climb costs with the mask in per cent of what it costs without."""
    on_gpu = runs.settings.device.startswith("cuda")
    count = _TIMED_ON_A_GPU if on_gpu else _TIMED
    whole = _space(runs.spec(model, images=count))
    masked = _space(runs.spec(model, images=count, search={"mask": str(file)}))
    generator = masked.generator
    assert isinstance(generator, MaskedGenerator)
    jobs = list(whole.jobs(iter(whole.dataset), lambda sample, problem: None))
    engines = (whole.new_engine(), masked.new_engine(keep_places=True))
    seconds, results = time_in_turn(engines, jobs, rounds=_ROUNDS_ON_A_GPU if on_gpu else _ROUNDS)
    found = np.concatenate([_psnr(generator, result, runs.settings.device) for result in results])
    low, middle, high = np.quantile(found, (0.25, 0.5, 0.75)).tolist()
    costs = {
        "time of a climb": _per_cent(np.quantile(seconds[:, 1] / seconds[:, 0], (0.25, 0.5, 0.75)), count),
        "PSNR to the whole decoder": Estimate(middle, low, high, len(found), "decibels: median and quartiles"),
    }
    return generator.provenance().get("window", "the generator has no decoder to run a part of"), costs


def time_in_turn(
    engines: Sequence[Engine], jobs: Sequence[Job], *, rounds: int
) -> tuple[NDArray[np.float64], list[SearchResult]]:
    """Seconds in which each engine climbs for all jobs, one engine after the other, and the last one's results.

    CPU time on a CPU, as other programs do not lengthen it. The first round warms up and is left out.  # (rounds, engines)
    """
    seconds, results = [], list[SearchResult]()
    for _ in range(rounds + 1):
        taken = []
        for engine in engines:
            now = time.perf_counter if engine.device.type == "cuda" else time.process_time
            synchronize(engine.device)
            begun = now()
            results = list(engine.run(jobs))
            synchronize(engine.device)
            taken.append(now() - begun)
        seconds.append(taken)
    return np.array(seconds[1:]), results


@torch.no_grad()
def _psnr(generator: MaskedGenerator, result: SearchResult, device: str) -> NDArray[np.float64]:
    """Likeness of the masked search's image and the whole decoder's image of the same place, in decibels.  # (1,)"""
    job = result.job
    label, seed = torch.tensor([[job.label], [job.seed]], device=device)
    state = {**generator.start(job.image[None].to(device), label, seed), generator.moving: result.places[0][None].to(device)}
    whole = generator.inner.render({**state, generator.inner.moving: generator.fill(state)}).cpu()
    error = (whole - result.images[0][None]).square().flatten(1).mean(1).clamp_min(1e-12)
    return np.asarray(-10 * error.log10().double().numpy())


def _per_cent(shares: Iterable[float], count: int) -> Estimate:
    low, middle, high = (100 * float(each) for each in shares)
    return Estimate(middle, low, high, count, "per cent of the whole decoder's: median and quartiles")


def _fitting_data(runs: Runs, count: int) -> PartSpec:
    """Return other images of a known world, or what was given, or as published the tested images themselves."""
    given, settings = str(runs.options["fitting_data"]), runs.settings
    known = world()
    if not given and (known is None or not known.has(settings.data)):
        return settings.data
    return settings.other_images(count, given=given, use="fitting_data")


def _row(model: str, which: str, outcomes: Outcomes, *, seed: int) -> StudyRow:
    found = scores(outcomes, seed=seed)
    return StudyRow((model, which), {name: found[name] for name in _SHOWN if name in found})


def _exact(mask: Mask) -> Estimate:
    return Estimate(mask.sparsity, mask.sparsity, mask.sparsity, mask.kept.numel(), "counted, so the interval has no width")


def _tells(model: str, fitted: Fitted) -> Claim:
    score, chance = fitted.score, fitted.chance
    assert score.value is not None and score.low is not None and score.high is not None
    holds = True if score.low > chance else False if score.high < chance else None
    evidence = f"{score.value:.1f} % ({score.low:.1f} to {score.high:.1f}), chance is {chance:.1f} %"
    return Claim(f"{model}: the kept dimensions answer the question for latents not seen", holds, evidence)


def _saves(model: str, time: Estimate) -> Claim:
    assert time.value is not None and time.low is not None and time.high is not None
    holds = True if time.high < 100 else False if time.low > 100 else None
    evidence = f"{time.value:.1f} % of the time (quartiles {time.low:.1f} to {time.high:.1f}); published are 87.3 % and 77.8 %"
    return Claim(f"{model}: the mask saves time", holds, evidence)


_STUDY = Study(
    name="sparse",
    published="Tables 11 and 12",
    run=run,
    options={
        "distance": 15.0,
        "question": "class",
        "window": 65.0,
        "halo": 0,
        "fitting_data": "",
        "fitting_images": 1000,
        "regularisation": None,
        "meaning": "lambda",
        "sparsity": 99.0,
        "standardise": False,
        "matched": True,
        "compared": "published",
    },
)
STUDIES = {"sparse": _STUDY}
