"""LANCE's tables and page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from counterfoil.core.naming import part_name, short_name
from counterfoil.core.records import Estimate
from counterfoil.metrics.answers import models_of
from counterfoil.metrics.observations import unit_of
from counterfoil.metrics.tables import Cell, Column, Link, Mark, Table, Value, counted, estimate_text, minus, p_is
from counterfoil.parts.language.caption_checks import REASONS
from counterfoil.protocols.lance.bias import parted
from counterfoil.protocols.lance.quality import CHECKS
from counterfoil.protocols.lance.results import MEANINGS, lance_results
from counterfoil.protocols.lance.spec import FACTORS, LanceSpec
from counterfoil.report.gallery import Collected, Entry, pair_of, strongest
from counterfoil.report.page import STRIP, Block, Caution, Fold, Gallery, ImagePair, ImagePairs, Page, Section
from counterfoil.report.provenance import about_images, about_parts, how_it_was_made, together
from counterfoil.report.site import Site
from counterfoil.store import Run

BIASES = 10  # groups shown; results.json has all
EXAMPLES = 4  # pairs of a group
MODELS = 20  # pages of models that were asked about a run's edits
LEVEL = 0.01
GENERATOR_COST = 10.0  # points lost to redrawing alone
STAGE_FILES = (("captions", "captions, one per line"), ("edits", "edits of captions"), ("quality", "what passed quality control"))


def tables(results: Mapping[str, Any]) -> list[Table]:
    """Overall numbers, factors, the most sensitive groups of edits, what was rejected, and how natural the set is."""
    found = [numbers(results), factors(results), biases(results, most=BIASES), funnel(results), naturalness(results)]
    return [each for each in found if each.rows or each.notes]


def numbers(results: Mapping[str, Any]) -> Table:
    """All numbers with what they say."""
    columns = [Column("", "text"), Column("value (95 % interval)"), Column("n"), Column("", "text", wide=True)]
    rows: list[list[Cell]] = []
    for name, meaning in MEANINGS.items():
        found = Estimate.from_dict(results[name])
        rows.append([name, Value(found, unit_of(name)), found.n, meaning])
    return Table(columns, rows)


def factors(results: Mapping[str, Any]) -> Table:
    """Drop and sensitivity by factor, the largest drop first."""
    entries = sorted((results.get("factors") or {}).items(), key=lambda item: -(item[1]["drop"]["value"] or 0))
    columns = [
        Column("factor", "text"), Column("drop, points (95 % interval)"), Column("p", "p"),
        Column("sensitivity, points (95 % interval)"), Column("edits"), Column("sources"),
    ]  # fmt: skip
    rows: list[list[Cell]] = [
        [
            factor, Estimate.from_dict(entry["drop"]), entry["p_adjusted"], Estimate.from_dict(entry["sensitivity"]),
            entry["edits"], entry["sources"],
        ]
        for factor, entry in entries
    ]  # fmt: skip
    if not rows:
        return Table(columns, [], notes=["no edit that the oracle accepts, so no factor has a drop"])
    corrected = f", corrected for {len(rows)} factors (Holm)" if len(rows) > 1 else ""
    test = f"p: exact sign-flip test that the drop is zero, edits of one source together{corrected}"
    return Table(columns, rows, notes=[test, largest_drop(results)])


def largest_drop(results: Mapping[str, Any]) -> str:
    """The factor that costs most, and whether that can be chance."""
    largest = results.get("largest")
    if not largest:
        return "no factor costs the model accuracy"
    if "lead" not in largest:
        return f"largest drop: {largest['factor']}, the only factor"
    lead = Estimate.from_dict(largest["lead"])
    if not lead.value:
        return f"largest drop: {largest['factor']}, as large as that of {largest['next']}"
    more = estimate_text(lead, unit=" points")
    return f"largest drop: {largest['factor']}, {more} more than {largest['next']}, {p_is(largest['p'])}"


def biases(results: Mapping[str, Any], *, most: int | None = None) -> Table:
    """Groups of edits of a class, the most sensitive first."""
    found = results.get("bias") or []
    columns = [
        Column("class", "text"), Column("edits like", "text"), Column("factor", "text"),
        Column("sensitivity (95 % interval)"), Column("others (95 % interval)"), Column("drop (95 % interval)"),
        Column("edits"), Column("p", "p"),
    ]  # fmt: skip
    rows: list[list[Cell]] = [
        [
            entry["class"], entry["name"], entry["factor"], Estimate.from_dict(entry["sensitivity"]),
            Estimate.from_dict(entry["others"]), Estimate.from_dict(entry["drop"]), entry["edits"], entry["p_adjusted"],
        ]
        for entry in found[:most]
    ]  # fmt: skip
    if not rows:
        return Table(columns, [])
    some = f", {len(rows)} of {len(found)}" if len(rows) < len(found) else ""
    test = "permutation test that a group moves the model no more than others of its sources"
    notes = [f"p: {test}, corrected for {len(found)} (Holm)"]
    return Table(columns, rows, title=f"Groups of edits, the most sensitive first{some}", notes=notes)


def funnel(results: Mapping[str, Any]) -> Table:
    """The number of images or edits that each stage got and kept, and what its checks rejected."""
    columns = [Column("stage", "text"), Column("in"), Column("kept"), Column("rejected", "text", wide=True)]
    rows: list[list[Cell]] = []
    for entry in results.get("funnel") or []:
        away = ", ".join(f"{number:,} {check}" for check, number in entry["turned_away"].items())
        rows.append([entry["stage"], entry["in"], entry["kept"], away])
    return Table(columns, rows)


def naturalness(results: Mapping[str, Any]) -> Table:
    """Fréchet distance of the set and perplexity of its captions, in sentences."""
    found = results.get("set") or {}
    notes = []
    if found.get("frechet") is not None:
        note = f" ({found['frechet_note']})" if found.get("frechet_note") else ""
        features = found["frechet_features"]
        notes.append(f"Fréchet distance of edited to source images: {found['frechet']:.4g}, features of {features}{note}")
    if found.get("perplexity_captions") and found.get("perplexity_edits"):
        words = (estimate_text(Estimate.from_dict(found[f"perplexity_{key}"])) for key in ("captions", "edits"))
        notes.append(f"perplexity under {found['perplexity_model']}: captions {next(words)}, edits {next(words)}")
    return Table([], [], notes=notes)


def pages(runs: Sequence[Run], labels: Sequence[str], site: Site) -> list[Page]:
    """A page for each model that was asked about the edits of a run and, of several, a comparison before them."""
    every: list[tuple[Collected, Mapping[str, Any] | None]] = []
    for number, (run, label) in enumerate(zip(runs, labels, strict=True), start=1):
        own = part_name(run.spec.get("model"))
        for model in models_of(run)[:MODELS] if run.results is not None else [own]:
            name = label if model == own else model if len(runs) == 1 else f"{model} on the edits of {label}"
            found = site.collect(run, number=number, label=name, model=model)
            results = run.results if model == own else lance_results(run, seed=int(run.spec.get("seed", 0)), model=model)
            every.append((found, results))
    galleries = [site.collect(run, number=at, label=label, model=part_name(run.spec.get("model")))
                 for at, (run, label) in enumerate(zip(runs, labels, strict=True), start=1)]  # fmt: skip
    gallery = site.gallery(galleries)
    last = _last(galleries, site)
    names = ["index.html"] if len(every) == 1 else [f"run-{at}.html" for at in range(1, len(every) + 1)]
    singles = [
        _model_page(found, results, site, name, gallery, last) for (found, results), name in zip(every, names, strict=True)
    ]
    return singles if len(singles) == 1 else [_comparison(every, singles, gallery, last, site), *singles]


def _model_page(
    found: Collected, results: Mapping[str, Any] | None, site: Site, name: str, gallery: Gallery | None, last: Sequence[Section]
) -> Page:
    key: list[list[Cell]] = []
    for title, number in (("sources", "accuracy_source"), ("edits", "accuracy_edited")):
        if results and results[number]["value"] is not None:
            key.append([title, Estimate.from_dict(results[number])])
    return Page(
        name=name,
        title=found.label,
        eyebrow=f"LANCE · tested model {short_name(found.model)} · oracle {short_name(part_name(found.run.spec.get('oracle')))}",
        headline=_headline(found.label, results),
        pairs=[_pair(found, each, site) for each in strongest(found.shown, STRIP)],
        key_numbers=Table(
            [Column("Accuracy on accepted edits and their sources", "text"), Column("per cent", axis=(0, 100))],
            key,
            notes=[_drop_text(results)] if results else [],
        ) if key else None,
        cautions=_cautions(found, results, site),
        sections=list(_sections(found, results, site)) if results else [],
        gallery=gallery,
        last=last,
    )  # fmt: skip


def _headline(model: str, results: Mapping[str, Any] | None) -> str:
    largest = (results or {}).get("largest")
    drop = (results or {}).get("drop") or {}
    if drop.get("value") is None:
        return f"{model}: no edit that counts yet"
    points = minus(f"{drop['value'] + 0.0:.0f}")
    lost = f"{model} loses {points} points of accuracy to edits of one factor"
    if not largest:
        return f"{lost}; no factor costs it accuracy."
    if "lead" not in largest or not largest["lead"]["value"]:
        return f"{lost}; {largest['factor']} costs most."
    most = "costs most" if largest["p"] <= LEVEL else "may cost most"
    return f"{lost}; {largest['factor']} {most}, {largest['lead']['value']:.0f} points more than {largest['next']}."


def _drop_text(results: Mapping[str, Any]) -> str:
    drop, redrawn = (Estimate.from_dict(results[name]) for name in ("drop", "drop_reconstruction"))
    moved = Estimate.from_dict(results["sensitivity"])
    return (
        f"Drop {estimate_text(drop, unit=' points')}; inverting and redrawing alone {estimate_text(redrawn, unit=' points')}; "
        f"sensitivity {estimate_text(moved, unit=' points')}."
    )


def _cautions(found: Collected, results: Mapping[str, Any] | None, site: Site) -> list[Caution]:
    if results is None:
        begun = sorted(path.stem for path in (found.run.path / "stages").glob("*.jsonl"))
        so_far = f"; so far it has {', '.join(begun)}" if begun else ""
        return [Caution("stop", f"This run is not finished{so_far}. The same command resumes it.")]
    if not results["factors"]:
        return [
            Caution("stop", "No edit was accepted, so there is nothing to measure. The funnel below says where they were lost.")
        ]
    accepted = int(results["counts"]["validated"])
    readable = int(results["counts"]["readable"])
    text = f"{accepted:,} of {counted(readable, 'source image')} have an accepted edit"
    cautions = [
        *about_parts(found.run, models=[found.model]),
        *about_images(accepted, text, missing=len(site.images.missing.get(found.run.path, ()))),
    ]
    redrawn = Estimate.from_dict(results["drop_reconstruction"])
    if redrawn.value is not None and redrawn.value > GENERATOR_COST:
        cost = estimate_text(redrawn, unit=" points")
        cautions.append(Caution("care", f"Inverting and redrawing alone cost {cost}: that part of every drop is the editor's."))
    return cautions


def _sections(found: Collected, results: Mapping[str, Any], site: Site) -> Iterator[Section]:
    entries = {each.trial.trial_id: each for each in found.shown}
    groups: list[Block] = [
        "Edits of a class that change its captions alike, the most sensitive first. The test asks whether a "
        "group moves the model "
        "more than other edits of the same source images."
    ]
    for entry in (results.get("bias") or [])[:BIASES]:
        pairs = [_pair(found, entries[name], site) for name in entry["examples"] if name in entries][:EXAMPLES]
        moved, drop = Estimate.from_dict(entry["sensitivity"]), Estimate.from_dict(entry["drop"])
        text = f"{entry['factor']}: sensitivity {estimate_text(moved)}, drop {estimate_text(drop, unit=' points')}, "
        text += f"{counted(entry['edits'], 'edit')} of {counted(entry['sources'], 'source')}, {p_is(entry['p_adjusted'])}"
        groups.append(ImagePairs(pairs, title=f"{entry['class']}: {entry['name']}", text=text))
    by_factor: list[Block] = [_factors_drawn(results)]
    if results.get("bias"):
        yield Section("Where it fails", [*by_factor, *groups, Fold("All groups as a table", [biases(results)])])
    else:
        yield Section("Where it fails", by_factor)
    if classes := _classes(results):
        yield Section("By class", [classes])
    why: list[list[Cell]] = [
        [entry["stage"], check, times, REASONS.get(check) or CHECKS.get(check, "")]
        for entry in results["funnel"]
        for check, times in entry["turned_away"].items()
    ]
    columns = [Column("stage", "text"), Column("check", "text"), Column("rejected"), Column("", "text", wide=True)]
    yield Section("What was rejected, and why", [funnel(results), Table(columns, why), naturalness(results)])
    yield Section("All numbers", [numbers(results), factors(results)])


def _factors_drawn(results: Mapping[str, Any]) -> Table:
    columns = [
        Column("factor", "text"), Column("accuracy, %", axis=(0, 100)), Column("drop, points", sign=True), Column("p", "p"),
        Column("sensitivity, points"), Column("edits"),
    ]  # fmt: skip
    rows: list[list[Cell]] = []
    for factor, entry in sorted(results["factors"].items(), key=lambda item: -(item[1]["drop"]["value"] or 0)):
        marks = (
            Mark("sources", Estimate.from_dict(entry["accuracy_source"]), "random", hollow=True),
            Mark("edits", Estimate.from_dict(entry["accuracy_edited"]), "guided"),
        )
        drop, moved = Estimate.from_dict(entry["drop"]), Estimate.from_dict(entry["sensitivity"])
        rows.append([Link(factor, show=f"factor={factor}"), marks, drop, entry["p_adjusted"], moved, entry["edits"]])
    return Table(columns, rows, notes=[largest_drop(results)] if rows else [])


def _classes(results: Mapping[str, Any]) -> Table | None:
    names = [factor for factor in FACTORS if factor in results["factors"]]
    rows: list[list[Cell]] = []
    for name, entry in (results.get("per_class") or {}).items():
        drops = [entry["factors"].get(factor, {}).get("drop") for factor in names]
        rows.append([name, Estimate.from_dict(entry["drop"]), *(Estimate.from_dict(each) if each else None for each in drops)])
    columns = [Column("class", "text"), Column("all edits"), *(Column(name, shade=(0, 100)) for name in names)]
    return Table(columns, rows, title="Accuracy drop by class and factor, in points", filter_rows=True) if rows else None


def _pair(found: Collected, entry: Entry, site: Site) -> ImagePair:
    trial = entry.trial
    pair = pair_of(found, entry, site.images, note=trial.factor)
    return replace(pair, words=parted(trial.caption, trial.prompt))


def _last(every: Sequence[Collected], site: Site) -> list[Section]:
    skipped: list[list[Cell]] = [
        [trial.image_id, trial.reason or "no reason recorded"] for each in every for trial in each.skipped
    ]
    found = []
    if skipped:
        columns = [Column("image", "text"), Column("reason", "text")]
        found.append(Section("Images that could not be used", [Table(columns, skipped, filter_rows=True)]))
    made: list[Block] = [
        "Each image is captioned, one factor of the caption is rewritten, and the image is inverted and "
        "redrawn to the new words. "
        "Of a sweep of edits one that passes quality control is kept; then the oracle says whether the class is still there."
    ]
    for each in every:
        facts = how_it_was_made(each.run, LanceSpec)
        made += facts if len(every) == 1 else [Fold(each.label, facts)]
    files: list[Block] = []
    for each in every:
        files += [*([each.label] if len(every) > 1 else []), site.downloads(each, stages=STAGE_FILES)]
    return [*found, Section("How it was made", made), Section("Downloads", files)]


def _comparison(
    every: Sequence[tuple[Collected, Mapping[str, Any] | None]],
    singles: Sequence[Page],
    gallery: Gallery | None,
    last: Sequence[Section],
    site: Site,
) -> Page:
    finished = [(found, results, page) for (found, results), page in zip(every, singles, strict=True) if results]
    names = [factor for factor in FACTORS if any(factor in results["factors"] for _, results, _ in finished)]
    rows: list[list[Cell]] = []
    for found, results, page in finished:
        drops = [results["factors"].get(factor, {}).get("drop") for factor in names]
        numbers_of = [Estimate.from_dict(results[name]) for name in ("accuracy_source", "drop")]
        cells = [Estimate.from_dict(each) if each else None for each in drops]
        rows.append([Link(found.label, to=page.name), *numbers_of, *cells, results["drop"]["n"]])
    columns = [
        Column("model", "text"), Column("sources, %"), Column("drop, all edits"),
        *(Column(name, shade=(0, 60)) for name in names), Column("edits"),
    ]  # fmt: skip
    ordered = sorted(finished, key=lambda item: item[1]["drop"]["value"] or 0)
    key: list[list[Cell]] = [
        [Link(found.label, to=page.name), Estimate.from_dict(results["accuracy_edited"])] for found, results, page in ordered[:6]
    ]
    least, most = (ordered[0], ordered[-1]) if ordered else (None, None)
    headline = "No run is finished yet"
    if least and most:
        low, high = (minus(f"{(each[1]['drop']['value'] or 0) + 0.0:.0f}") for each in (least, most))
        headline = f"{least[0].label} loses least to the edits ({low} points), {most[0].label} most ({high})."
    pairs = [each for page in singles for each in page.pairs[:1]][:STRIP]
    cautions = [(found.label, found.run, list(page.cautions)) for (found, _), page in zip(every, singles, strict=True)]
    return Page(
        title="Comparison",
        eyebrow=f"LANCE · {counted(len(every), 'model')} compared",
        headline=headline,
        pairs=pairs,
        key_numbers=Table([Column("accuracy on edits", "text"), Column("per cent", axis=(0, 100))], key) if key else None,
        cautions=together(cautions, each_is="model"),
        sections=[Section("Models side by side", [Table(columns, rows, notes=["Sources in per cent, drops in points."])])],
        gallery=gallery,
        last=last,
    )
