"""Sentences about an FMR run: cautions about its numbers, its records and its controls, and a paragraph for a paper."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any

from counterfoil.core.naming import part_name, short_name
from counterfoil.core.records import Estimate
from counterfoil.metrics.tables import amount, estimate_in, estimate_text, p_is
from counterfoil.protocols.fmr import FmrSpec
from counterfoil.report.gallery import Collected
from counterfoil.report.page import Caution
from counterfoil.report.provenance import about_images
from counterfoil.store import Run

FLOOR = 5.0  # per cent: where accuracy is no higher, models can't be told apart
WIDE = 15.0  # points of an interval
GENERATOR_COST = 10.0  # points lost to the reconstruction alone

KINDS = {
    "autoencoder": "changes that an autoencoder's latent space can express",
    "vqgan": "changes that a codebook of image patches can express",
    "diffusion": "changes that a diffusion model finds natural",
    "adm": "changes that a class-conditional diffusion model finds natural",
    "style": "changes of style",
    "gan": "changes that a GAN's latent space can express",
    "pixels": "adversarial changes of single pixels",
    "transforms": "common corruptions, chosen for the model",
    "reconstruct": "one adversarial step between two reconstructions",
}
"""The robustness that an FMR with a generator of a kind is about."""

CITED = {
    "SA": "SA",
    "PA": "PA",
    "FMR": "FMR",
    "FMR_matched": "FMR with SA over the accepted images",
    "FMR_moved": "FMR without images whose first step was rejected",
    "VR": "validation rate of the reconstruction",
    "VR_first": "of the first step",
    "PA_reconstruction": "accuracy on plain reconstructions",
    "PA_random": "after random steps",
}
"""The numbers of the paragraph for a paper, in its words."""
SPACES = {"before": "before quantisation", "code": "on the quantised code"}
ACCEPTED = {"label": "the oracle names its label", "agreement": "the oracle says of it what it says of the source image"}


def cautions_of(results: Mapping[str, Any], *, classes: int) -> list[Caution]:
    care = [*_about_images(results, classes), *_about_numbers(results)]
    return [*(Caution("care", text) for text in care), *(Caution("note", text) for text in _about_controls(results))]


def about_generators(every: Sequence[Collected]) -> list[Caution]:
    """Say what an FMR is about with each of several generators: numbers compare within one."""
    names = dict.fromkeys(part_name(each.run.spec.get("generator")) for each in every)
    if len(names) < 2:
        return []
    about = [f"{short_name(name)} {KINDS.get(name.partition(':')[0], 'changes of its own')}" for name in names]
    text = f"Each generator measures something else: {'; '.join(about)}. Compare models within one generator."
    return [Caution("care", text)]


def about_records(found: Collected, missing: int) -> Iterator[str]:
    if found.skipped_count:
        yield f"{amount(found.skipped_count, 'image')} could not be used and count nowhere; they are listed below."
    if missing:
        yield f"{amount(missing, 'image')} missing from the run directory or damaged; the gallery says which."
    if found.run.resumed:
        yield "The run was resumed with other versions or hardware than it began with; see How it was made."


def no_result(found: Collected) -> Iterator[str]:
    """Say why a run has no PA and no FMR."""
    readable = found.images - found.skipped_count
    if found.images == 0:
        yield "This run holds no images yet. Start it again with the same command."
    elif found.results is None:
        of = f" of {found.expected:,}" if found.expected else ""
        yield (
            f"This run is not finished: {found.images:,}{of} images are done, and the numbers are computed at the end. "
            "The same command resumes it. The gallery shows what there is."
        )
    elif readable == 0:
        yield f"None of the {amount(found.images, 'image')} could be read, so nothing was tested."
    elif found.validated == 0 and (pending := found.count("pending")):
        yield (
            f"The oracle has accepted no image so far and has not decided on {pending:,}, so there is no PA and no FMR yet. "
            "'counterfoil review' has people judge them, 'counterfoil judge' another oracle."
        )
    elif found.validated == 0 and found.endings.keys() - {"unvalidated", "skipped"}:
        yield "The oracle accepted none of the images that were made, so there is no PA and no FMR."
    elif found.validated == 0:
        yield (
            f"The oracle accepted none of the {amount(readable, 'plain reconstruction')}, so nothing was made and there is "
            "no PA and no FMR. Check the oracle's class names and templates, and whether the generator can reconstruct "
            "such images."
        )


def curve_of(results: Mapping[str, Any], arm: str) -> list[tuple[float, Estimate]]:
    points = [(float(entry["step"]), Estimate.from_dict(entry[arm])) for entry in results.get("curve") or []]
    return [(step, found) for step, found in points if found.value is not None]


def _about_images(results: Mapping[str, Any], classes: int) -> Iterator[str]:
    clean, rate, counts = _value(results, "SA"), _value(results, "VR"), results.get("counts") or {}
    chance = 100 / max(classes, 1)
    if clean is not None and clean < 1.5 * chance:
        yield (
            f"Clean accuracy is {clean:.1f} %, {'hardly' if clean > chance else 'not'} above chance ({chance:.1f} %). The model "
            "may not be made for these classes, its input may be prepared wrongly, or class names are matched wrongly. "
            "'counterfoil doctor' looks for the cause."
        )
    accepted, readable = counts.get("validated", 0), counts.get("readable", 0)
    several = about_images(accepted, f"{accepted:,} of {amount(readable, 'image')} were accepted by the oracle")
    yield from (each.text for each in several)
    if rate is not None and rate < 50:
        yield f"The oracle accepts {rate:.1f} % of the images. The numbers are about these, not about the whole set."
    if pending := counts.get("pending"):
        images = amount(pending, "image")
        yield f"The oracle has not decided on {images} yet. They count in SA alone, and other numbers may change."


def _about_numbers(results: Mapping[str, Any]) -> Iterator[str]:
    fmr, matched, steps = estimate_in(results, "FMR"), _value(results, "FMR_matched"), _value(results, "steps")
    if fmr is not None and fmr.value is not None:
        if fmr.value > 100 and matched is not None:
            yield (
                f"An FMR above 100 ({fmr.value:.1f}) does not mean that the model got better: the oracle accepted images that "
                f"are easier than the whole set. The matched FMR is {matched:.1f}."
            )
        if fmr.width > WIDE:
            seen = "smaller differences between models can't be seen on so few images"
            yield f"The FMR's interval spans {fmr.width:.1f} points; {seen}."
        if fmr.low is None and fmr.note:
            yield f"The FMR of {fmr.value:.1f} has no interval, so it shows nothing yet: {fmr.note}."
    if steps == 0:
        yield "No step was kept, so PA is the accuracy on plain reconstructions and says nothing of a search."
    elif steps is not None and steps < 0.5:
        yield (
            "More than half of the accepted images kept no step: what was scored there is the plain reconstruction. Where the "
            "oracle rejected the first step, shorter ones say more."
        )
    yield from _floor(results)
    before, after = _value(results, "SA_matched"), _value(results, "PA_reconstruction")
    if before is not None and after is not None and before - after > GENERATOR_COST:
        yield (
            f"The plain reconstruction alone takes accuracy from {before:.1f} % to {after:.1f} %: that part of the loss is the "
            "generator's, not the search's."
        )


def _floor(results: Mapping[str, Any]) -> Iterator[str]:
    """Warn where accuracy reaches the floor early, so that models can't be told apart, and name the budget at which they can."""
    curve = {step: found.value or 0.0 for step, found in curve_of(results, "guided")}
    reached = next((step for step, value in curve.items() if value <= FLOOR), None)
    if reached is None or not curve.get(min(curve)) or reached >= max(curve):
        return
    half = min((step for step in curve if step > 0), key=lambda step: abs(curve[step] - curve[min(curve)] / 2))
    yield (
        f"Accuracy is at {curve[reached]:.0f} % from step {reached:.0f} of {max(curve):.0f} on: at this budget models can't be "
        f"told apart. A budget of {half:.0f} ({curve[half]:.0f} % left) separates them best; or take a shorter step."
    )


def _about_controls(results: Mapping[str, Any]) -> Iterator[str]:
    if not results or _value(results, "steps") == 0:
        return
    if _value(results, "PA_random") is None:
        if (results.get("counts") or {}).get("endings", {}).get("random"):
            yield "The oracle accepted none of the random control's images, so what random steps break can't be told."
        else:
            yield "No random control was run, so what random steps break can't be told from what the search found."
    elif text := against_random(results, only_unclear=True):
        yield text


def against_random(results: Mapping[str, Any], *, only_unclear: bool = False) -> str:
    """Guided steps against random ones, image by image; with `only_unclear` nothing where guided steps clearly take more."""
    entry = (results.get("arms") or {}).get("against_random") or {}
    found = estimate_in({"": entry}, "") if entry else None
    if found is None or found.value is None:
        return ""
    images = f"On the {amount(found.n, 'image')} accepted in both arms"
    if found.low is None or found.high is None:
        return f"{images}, guided and random steps cannot be compared: {found.note}." if not only_unclear else ""
    p = entry.get("p")
    points = estimate_text(found, unit=" points") + (f", {p_is(p)}" if isinstance(p, float) else "")
    if found.low > 0:
        return "" if only_unclear else f"{images}, guided steps take {points} more accuracy than the random control."
    if found.high < 0:
        return f"{images}, guided steps take less accuracy than the random control ({points}): the search goes the wrong way."
    alike = f"{images}, guided steps and the random control can't be told apart ({points})"
    return f"{alike}: the search may have found nothing of its own."


def _value(results: Mapping[str, Any], name: str) -> float | None:
    found = estimate_in(results, name)
    return found.value if found is not None else None


def citation(run: Run, results: Mapping[str, Any]) -> str:
    """Describe a run's set-up, what departs from its preset, and its numbers in one paragraph."""
    spec, search = run.spec, run.spec["search"]
    preset, counts = spec.get("preset", "default"), results["counts"]
    departs = ", ".join(departures(spec))
    weights = {role: str(told.get("weights", ""))[:12] for role, told in (run.provenance.get("parts") or {}).items()}
    parts = {
        role: short_name(part_name(spec[role])) + (f" (weights {weights[role]})" if weights.get(role) else "")
        for role in ("model", "generator", "oracle")
    }
    asked = spec["oracle"].get("options", {}).get("templates")
    space = SPACES.get(spec["generator"].get("options", {}).get("space", ""), "")
    how = ", ".join(filter(None, (f"norm {search['norm']}", f"unit {search['unit']}", space)))
    numbers = {name: Estimate.from_dict(results[name]) for name in CITED}
    sentences = [
        f"Foundation-model-oriented robustness (FMR) of {parts['model']}, measured with Counterfoil {version('counterfoil')}, "
        f"preset {preset}{f' but for {departs}' if departs else ''}",
        f"{counts['readable']} images of {len(run.classes)} classes from {part_name(spec['data'])}, "
        f"{run.provenance.get('size')} × {run.provenance.get('size')} pixels, seed {spec['seed']}",
        f"generator {parts['generator']}; oracle {parts['oracle']}{f', asked {asked!r}' if asked else ''}",
        f"at most {search['budget']} steps of {search['step']:g} ({how}); an image counts if {ACCEPTED[search['accept']]}; "
        f"computed in {spec['engine']['precision']}",
        "; ".join(f"{CITED[name]} {estimate_text(it)} (n {it.n})" for name, it in numbers.items() if it.value is not None),
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
