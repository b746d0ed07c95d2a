"""The sparse submodel (§3.2.1, App. I): which part of the latent matters, and a search held to it that decodes only that.

The mask is fitted on other images than the ones it is tested on, and saved for `counterfoil run --mask`. `question` says what it
is fitted to: `class`, which cells tell the classes apart, or `perturbed`, the paper's, which dimensions tell generated latents
from source ones. For that `compared: published` takes the encoder's outputs against quantised codes, as the paper says; then a
regression may well tell a rounded number from one that is not. `compared: codes` quantises both, so that only what the climb
changed can tell them apart.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from counterfoil.core.errors import BadData, UsageError
from counterfoil.core.records import Estimate
from counterfoil.core.spec import PartSpec, default_folder
from counterfoil.engine.device import synchronize
from counterfoil.engine.scheduler import Engine, Job, SearchResult
from counterfoil.parts.generators.latent import LatentGenerator, QuantisedAutoencoder
from counterfoil.parts.generators.masked import MaskedGenerator, save_mask
from counterfoil.studies.base import Findings, Study, gap, show, table, world
from counterfoil.studies.runs import USUAL, Runs
from counterfoil.studies.sparse_fit import Fitted, fit, fit_cells

CHOICES = {"question": ("class", "perturbed"), "compared": ("published", "codes")}
TIMED, TIMED_ON_A_GPU = 8, 256  # images; on a GPU as many as are in progress
ROUNDS = 3
BATCH = 32


def sparse(runs: Runs) -> Findings:
    """Fit a mask for every model, and run it with and without."""
    fitted_rows, rows, claims, notes = [], [], [], []
    distance, options = float(runs.options["distance"]), runs.options
    for key, choices in CHOICES.items():
        if options[key] not in choices:
            raise UsageError(f"sparse: {key}={options[key]!r}: one of {', '.join(choices)}")
    for model in runs.models:
        fitted, file = _fit(runs, model)
        window, costs = _costs(runs, model, file)
        dense, kept = runs.search(model), runs.search(model, search={"mask": str(file)})
        mask, lost = fitted.mask, runs.difference(kept, dense)
        sparsity, dimensions = mask.sparsity, mask.kept.numel()
        counted = Estimate(sparsity, sparsity, sparsity, dimensions, "counted, so the interval has no width")
        fitted_rows.append(((model.name,), {"sparsity": counted, "test score": fitted.score, **costs}))
        for which, seen in (("all", dense), ("kept", kept)):
            rows.append(((model.name, which), runs.values(seen, (*USUAL, "PA_reconstruction"))))
        rows.append(((model.name, "kept less all"), {"FMR": lost}))
        # Scattered dimensions, the answer to the paper's question, are reported only.
        required = options["question"] == "class"
        saved = gap(Estimate(100, 100, 100, 0), costs["time of a climb"])
        claims += [
            show(
                f"{model.name}: the kept dimensions answer for new latents, where chance is {fitted.chance:.1f} %",
                fitted.score, above=fitted.chance, required=required, unit=" %", signed=False,
            ),
            show(f"{model.name}: the mask saves time; published are 12.7 % and 22.2 %", saved, required=required, unit=" %"),
            show(
                f"{model.name}: FMR under the mask is within {distance:g} points of FMR without",
                lost, within=distance, required=required,
            ),
        ]  # fmt: skip
        notes.append(f"{file}: {int(mask.kept.sum())} of {mask.kept.numel()} dimensions, for --mask; window: {window}")
    tables = (
        table("The mask", ("model",), fitted_rows),
        table("The search over all dimensions and over the kept ones", ("model", "dimensions"), rows),
    )
    return Findings(tables, tuple(claims), tuple(notes))


def _fit(runs: Runs, model: PartSpec) -> tuple[Fitted, Path]:
    """A mask, and where it lies."""
    options, count = runs.options, int(runs.options["fitting_images"])
    spec = runs.spec(model, data=_fitting_data(runs, count), images=count)
    work = runs.workspace(spec)
    with runs.counting(f"latents of {model.name}", count) as watch:
        if options["question"] == "class":
            latents, labels = _labelled_latents(work, watch)
            fitted = fit_cells(latents, labels, window=float(options["window"]), halo=int(options["halo"]), seed=runs.seed)
        else:
            chosen = {key: options[key] for key in ("regularisation", "meaning", "sparsity", "matched")}
            fitted = fit(*_latent_pairs(work, options["compared"], watch), **chosen, seed=runs.seed)
    # Named by what it keeps: runs are found again by their specification, and that names the mask by its file.
    return fitted, save_mask(fitted.mask, runs.folder / "masks" / f"{default_folder(spec).name}-{fitted.mask.sha256[:8]}")


def _fitting_data(runs: Runs, count: int) -> PartSpec:
    """Return other images of a known world, or what was given, or as published the tested images themselves."""
    given, settings, known = str(runs.options["fitting_data"]), runs.settings, world()
    if not given and (known is None or not known.has(settings.data)):
        return settings.data
    return settings.other_images(count, given=given, use="fitting_data")


@torch.no_grad()
def _start(work: Any, jobs: Sequence[Job]) -> Tensor:
    """The moving tensor of images as a climb starts from it.  # (n, …)"""
    images = torch.stack([job.image for job in jobs]).to(work.spec.device)
    labels, seeds = (torch.tensor([getattr(job, name) for job in jobs], device=images.device) for name in ("label", "seed"))
    started: Tensor = work.generator.start(images, labels, seeds)[work.generator.moving]
    return started.cpu()


def _labelled_latents(work: Any, watch: Callable[[int], None]) -> tuple[Tensor, Tensor]:
    """The moving tensor of every image, and the classes.  # (n, …), (n,)"""
    found, labels = [], []
    jobs = work.jobs(iter(work.dataset), lambda sample, problem: None)
    while some := list(islice(jobs, BATCH)):
        found.append(_start(work, some))
        labels += [job.label for job in some]
        watch(len(some))
    if not found:
        raise BadData("sparse: none of the images to fit on could be read")
    return torch.cat(found), torch.tensor(labels)


def _latent_pairs(work: Any, compared: str, watch: Callable[[int], None]) -> tuple[Tensor, Tensor]:
    """The latents of the images whose climb took a step: original, and where the guided climb ended.  # (n, …) twice"""
    before, after = [], []
    engine = work.new_engine(work.spec.search.model_copy(update={"control": "none"}), keep_places=True)
    for done in engine.run(work.jobs(iter(work.dataset), lambda sample, problem: None)):
        watch(1)
        if done.climbs[0].steps:
            before.append(_start(work, [done.job]))
            after.append(done.places[0])
    if not before:
        raise BadData("sparse: no image took a step that the oracle accepted; use smaller steps")
    original, perturbed, generator = torch.cat(before), torch.stack(after), work.generator
    autoencoder = generator.autoencoder if isinstance(generator, LatentGenerator) and generator.space == "before" else None
    if isinstance(autoencoder, QuantisedAutoencoder):
        perturbed = _quantise(autoencoder, perturbed, work.spec.device)
        original = _quantise(autoencoder, original, work.spec.device) if compared == "codes" else original
    return original, perturbed


@torch.no_grad()
def _quantise(autoencoder: QuantisedAutoencoder, latents: Tensor, device: str) -> Tensor:
    return torch.cat([autoencoder.quantise(part.to(device)).cpu() for part in latents.split(8)])


def _costs(runs: Runs, model: PartSpec, file: Path) -> tuple[str, dict[str, Estimate]]:
    """The window in words, and what a climb costs with the mask in per cent of what it costs without."""
    count = TIMED_ON_A_GPU if runs.settings.device.startswith("cuda") else TIMED
    whole = runs.workspace(runs.spec(model, images=count))
    masked = runs.workspace(runs.spec(model, images=count, search={"mask": str(file)}))
    generator = masked.generator
    assert isinstance(generator, MaskedGenerator)
    jobs = list(whole.jobs(iter(whole.dataset), lambda sample, problem: None))
    seconds, results = _time((whole.new_engine(), masked.new_engine(keep_places=True)), jobs)
    likeness = np.array([_psnr(generator, result, runs.settings.device) for result in results])
    costs = {
        "time of a climb": _quartiles(100 * seconds[:, 1] / seconds[:, 0], count, "per cent of the whole decoder's"),
        "PSNR to the whole decoder": _quartiles(likeness, len(likeness), "decibels"),
    }
    return generator.provenance().get("window", "the generator has no decoder to run a part of"), costs


def _time(engines: Sequence[Engine], jobs: Sequence[Job]) -> tuple[NDArray[np.float64], list[SearchResult]]:
    """Seconds in which each engine climbs for all jobs, one engine after the other, and the last one's results.

    CPU time on a CPU, as other programs do not lengthen it. The first round warms up and is left out.  # (rounds, engines)
    """
    seconds, results = [], list[SearchResult]()
    for _ in range(ROUNDS + 1):
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
def _psnr(generator: MaskedGenerator, result: SearchResult, device: str) -> float:
    """Likeness of the masked search's image and the whole decoder's image of the same place, in decibels."""
    job = result.job
    label, seed = torch.tensor([[job.label], [job.seed]], device=device)
    state = {**generator.start(job.image[None].to(device), label, seed), generator.moving: result.places[0][None].to(device)}
    whole = generator.inner.render({**state, generator.inner.moving: generator.fill(state)}).cpu()
    return float(-10 * (whole - result.images[0][None]).square().mean().clamp_min(1e-12).log10())


def _quartiles(values: NDArray[np.float64], count: int, unit: str) -> Estimate:
    low, middle, high = np.quantile(values, (0.25, 0.5, 0.75)).tolist()
    return Estimate(middle, low, high, count, f"{unit}: median and quartiles")


STUDIES = (
    Study(
        "sparse",
        "Tables 11 and 12",
        sparse,
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
            "matched": True,
            "compared": "published",
        },
    ),
)
