"""What a reader should know before believing the numbers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from counterfoil.report.collect import Collected
from counterfoil.report.numbers import Number, count, decimal, number
from counterfoil.store import Run
from counterfoil.store.later import asked_of

FEW_IMAGES = 100
WIDE_INTERVAL = 15.0  # percentage points
LOW_VALIDATION = 50.0
GENERATOR_COST = 10.0  # percentage points lost to the reconstruction alone
NEAR_CHANCE = 1.5  # times chance
HARDLY_MOVED = 0.5  # steps an image; with fewer, more than half of the images did not move


@dataclass(frozen=True)
class Caution:
    """One thing to know. `stop` means that there is no result, `care` that it is easily misread."""

    kind: Literal["stop", "care", "note"]
    text: str


def cautions(collected: Collected, *, missing: int = 0) -> list[Caution]:
    """What is to be said of a run; `missing` is how many of its pictures could not be shown."""
    found = [Caution("stop", text) for text in _no_result(collected)]
    if not found and collected.results is not None:
        found = about_results(collected.results, classes=len(collected.run.classes), validated=collected.validated)
        found = about_parts(collected.run) + found
    return found + [Caution("note", text) for text in _about_records(collected, missing)]


def about_results(results: Mapping[str, Any], *, classes: int, validated: int) -> list[Caution]:
    """What is to be said of the numbers themselves, of a run over so many classes and accepted images."""
    care = (*_about_images(results, classes, validated), *_about_numbers(results))
    return [*(Caution("care", text) for text in care), *(Caution("note", text) for text in _about_controls(results))]


def about_pictures(pictures: int, said: str, *, missing: int) -> list[Caution]:
    """What is to be said of a run's pictures: if so many, of which this is `said`, are few, and what could not be shown."""
    found = [Caution("care", text) for text in _few(pictures, said)]
    if missing:
        found.append(Caution("note", f"{count(missing, 'picture')} could not be shown: missing or damaged."))
    return found


def about_parts(run: Run, *, models: Collection[str] | None = None) -> list[Caution]:
    """Which of a run's judges are not independent: its own oracle, where that was forced, and parts that were asked later.

    Of models that were asked later, those of `models`, or all.
    """
    told = run.provenance.get("caution")
    texts = [f"{told[:1].upper()}{told[1:]}."] if told else []
    for each in asked_of(run.path):
        if each.caution and (each.role == "oracle" or models is None or each.name in models):
            texts.append(f"The {each.role} {each.name}, which was asked later, is {each.caution}.")
    return [Caution("care", text) for text in texts]


def _few(images: int, said: str) -> Iterator[str]:
    if images < FEW_IMAGES:
        yield f"Only {said}. Intervals are wide, and numbers for parts of them say little."


def _no_result(collected: Collected) -> Iterator[str]:
    readable = collected.images - collected.skipped_count
    if collected.images == 0:
        yield "This run holds no images yet. Start it again with the same command."
    elif collected.results is None:
        of = f" of {collected.expected:,}" if collected.expected else ""
        yield (
            f"This run is not finished: {collected.images:,}{of} images are done, and the numbers are worked out at the end. "
            "The same command goes on where it stopped. The gallery shows what there is."
        )
    elif readable == 0:
        yield f"None of the {count(collected.images, 'picture')} could be read, so nothing was tested."
    elif collected.validated == 0 and (pending := collected.count("pending")):
        yield (
            f"The oracle has accepted no picture so far and has not decided on {pending:,}, so there is no PA and no FMR yet. "
            "'counterfoil review' has people judge them, 'counterfoil judge' another oracle."
        )
    elif collected.validated == 0 and collected.endings.keys() - {"unvalidated", "skipped"}:
        yield "The oracle accepted none of the pictures that were made, so there is no PA and no FMR."
    elif collected.validated == 0:
        yield (
            f"The oracle accepted none of the {count(readable, 'plain reconstruction')}, so nothing was made and there is "
            "no PA and no FMR. Check the oracle's class names and templates, and whether the generator can reconstruct "
            "such images."
        )


def _about_images(results: Mapping[str, Any], classes: int, validated: int) -> Iterator[str]:
    clean, rate = number(results, "SA"), number(results, "VR")
    chance = 100 / max(classes, 1)
    if clean.value is not None and clean.value < NEAR_CHANCE * chance:
        yield (
            f"Clean accuracy is {clean.text} %, {'hardly' if clean.value > chance else 'not'} above chance "
            f"({decimal(chance)} %). "
            "The model may not be made for these classes, its input may be prepared wrongly, or class names are matched "
            "wrongly. 'counterfoil doctor' looks for the cause."
        )
    yield from _few(validated, f"{count(validated, 'image was', 'images were')} accepted by the oracle")
    if rate.value is not None and rate.value < LOW_VALIDATION:
        yield f"The oracle accepts only {rate.text} % of the images. The numbers speak of these, not of the whole set."
    if pending := (results.get("counts") or {}).get("pending"):
        yield (
            f"The oracle has not decided on {count(pending, 'picture')} yet. They count in SA alone, and the other numbers may "
            "change."
        )


def _about_numbers(results: Mapping[str, Any]) -> Iterator[str]:
    fmr, matched = number(results, "FMR"), number(results, "FMR_matched")
    clean, plain = number(results, "SA_matched"), number(results, "PA_reconstruction")
    if fmr.value is not None and fmr.value > 100:
        yield (
            f"An FMR above 100 ({fmr.text}) does not mean that the model got better: the oracle accepted images that are "
            f"easier than the whole set. The matched FMR is {matched.text}."
        )
    steps = number(results, "steps").value
    if steps == 0:
        yield "No step was kept, so PA is the accuracy on plain reconstructions and says nothing of a search."
    elif steps is not None and steps < HARDLY_MOVED:
        yield (
            "More than half of the accepted images kept no step: what was scored there is the plain reconstruction. Where the "
            "oracle rejected the first step, shorter ones say more."
        )
    if fmr.width > WIDE_INTERVAL:
        yield (
            f"The FMR's interval spans {decimal(fmr.width)} points; smaller differences between models can't be seen with "
            "so few images."
        )
    if fmr.value is not None and fmr.low is None and fmr.note:
        yield f"The FMR of {fmr.text} stands without an interval, so it shows nothing yet: {fmr.note}."
    if clean.value is not None and plain.value is not None and clean.value - plain.value > GENERATOR_COST:
        yield (
            f"The plain reconstruction alone takes accuracy from {clean.text} % to {plain.text} %: that part of the loss is "
            "the generator's, not the search's."
        )


def _about_controls(results: Mapping[str, Any]) -> Iterator[str]:
    guided, random = number(results, "PA"), number(results, "PA_random")
    arms = results.get("arms") or {}
    if number(results, "steps").value == 0:
        return  # nothing to compare
    if random.value is None and (results.get("counts") or {}).get("endings", {}).get("random"):
        yield "The oracle accepted none of the random control's pictures, so what mere distance breaks can't be told."
    elif random.value is None:
        yield "No random control was run, so what mere distance breaks can't be told from what the search found."
    elif (found := number(arms, "against_random")).value is not None:
        yield from _not_found(found, arms["against_random"].get("p"))
    elif guided.overlaps(random):
        yield (
            "The intervals of guided and random steps overlap. That does not say that they are equal: both were taken on the "
            "same images, and this run was written before the two were compared image by image. Its command writes it again."
        )


def _not_found(found: Number, p: object) -> Iterator[str]:
    """Said of the comparison image by image, whether or not the two intervals overlap."""
    if found.low is None or found.high is None or found.low > 0:
        return
    chance = f"; p = {p:.2g}" if isinstance(p, float) else ""
    images = f"On the {count(found.n or 0, 'image')} accepted in both arms"
    taken = f"{found.text} points of accuracy ({found.interval}{chance})"
    if found.high < 0:
        yield f"{images}, guided steps against random ones of equal length come to {taken}, so the search goes the wrong way."
    else:
        yield f"{images}, guided steps take only {taken} more than random ones: they may have found nothing of their own."


def _about_records(collected: Collected, missing: int) -> Iterator[str]:
    if collected.skipped_count:
        yield f"{count(collected.skipped_count, 'picture')} could not be used and count nowhere; they are listed below."
    if missing:
        yield (
            f"{count(missing, 'picture is', 'pictures are')} missing from the run directory or damaged; the gallery says which."
        )
    if collected.run.resumed:
        yield "The run was resumed with other versions or hardware than it began with; see how the images came about."
