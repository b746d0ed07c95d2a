"""LANCE's tables and pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from counterfoil.core.naming import part_name
from counterfoil.core.records import Estimate
from counterfoil.metrics.observations import models_of
from counterfoil.metrics.tables import Cell, Column, Link, Mark, Table, amount, estimate_in, estimate_text, minus, p_is
from counterfoil.parts.language.caption_checks import REASONS
from counterfoil.protocols.lance import CHECKS, FACTORS
from counterfoil.protocols.lance.bias import split_captions
from counterfoil.protocols.lance.results import MEANINGS, lance_results
from counterfoil.protocols.pages import ReportPages, estimates, numbers_table
from counterfoil.report.gallery import Collected, GalleryEntry
from counterfoil.report.page import Block, Caution, Fold, ImagePair, ImagePairs, PageSection
from counterfoil.report.provenance import about_images, about_parts
from counterfoil.store import Run

BIASES = 10  # groups shown; results.json has all
EXAMPLES = 4  # pairs of a group
MODELS = 20  # pages of models that were asked about a run's edits
LEVEL = 0.01
GENERATOR_COST = 10.0  # points lost to redrawing alone


def tables(results: Mapping[str, Any]) -> list[Table]:
    """Overall numbers, factors, the most sensitive groups of edits, what was rejected, and how natural the set is."""
    numbers = numbers_table(results, MEANINGS)
    found = [numbers, factors(results), biases(results, most=BIASES), funnel(results), naturalness(results)]
    return [each for each in found if each.rows or each.notes]


def factors(results: Mapping[str, Any]) -> Table:
    """Drop and sensitivity by factor, the largest drop first."""
    columns = [
        Column("factor", "text"), Column("drop, points (95 % interval)"), Column("p", "p"),
        Column("sensitivity, points (95 % interval)"), Column("edits"), Column("sources"),
    ]  # fmt: skip
    rows: list[list[Cell]] = []
    for factor, entry in _by_drop(results):
        drop, moved = estimates(entry, ("drop", "sensitivity"))
        rows.append([factor, drop, entry["p_adjusted"], moved, entry["edits"], entry["sources"]])
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
    if (lead := estimate_in(largest, "lead")) is None:
        return f"largest drop: {largest['factor']}, the only factor"
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
    rows: list[list[Cell]] = []
    for entry in found[:most]:
        numbers = estimates(entry, ("sensitivity", "others", "drop"))
        rows.append([entry["class"], entry["name"], entry["factor"], *numbers, entry["edits"], entry["p_adjusted"]])
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
        told = "; ".join(filter(None, ("no interval: what few images do to it is a bias upwards", found.get("frechet_note"))))
        images = " and ".join(f"{number:,}" for number in found["frechet_pictures"])
        what = f"Fréchet distance of edited to source images: {found['frechet']:.4g}"
        notes.append(f"{what}, n {images}, features of {found['frechet_features']} ({told})")
    captions, edits = estimates(found, ("perplexity_captions", "perplexity_edits"))
    if captions and edits:
        both = f"captions {estimate_text(captions)}, edits {estimate_text(edits)}"
        notes.append(f"perplexity under {found['perplexity_model']}: {both}")
    return Table([], [], notes=notes)


class LancePages(ReportPages):
    """A page for each model that was asked about the edits of a run."""

    title = "LANCE"
    each_is = "model"
    how = (
        "Each image is captioned, one factor of the caption is rewritten, and the image is inverted and redrawn to the new "
        "words. Of a sweep of edits one that passes quality control is kept; the oracle says whether it still shows the class."
    )
    stages = (("captions", "captions, one per line"), ("edits", "edits of captions"), ("quality", "what passed quality control"))
    order = ("loses least to the edits ({})", "most ({})")

    def views_of(self, run: Run, label: str) -> Iterator[Collected]:
        """The answers of each model; the run's own has the label."""
        own = part_name(run.spec.get("model"))
        for model in models_of(run)[:MODELS] if run.results is not None else [own]:
            other = self.site.name(model)
            name = label if model == own else other if self.runs == 1 else f"{other} on the edits of {label}"
            found = self.site.collect(run, label=name, model=model)
            others = None if model == own else lance_results(run, seed=int(run.spec.get("seed", 0)), model=model)
            yield replace(found, results=others) if others else found

    def shown_in_gallery(self, view: Collected) -> Collected:
        """The run with the answers of its own model; the gallery offers the others."""
        return self.site.collect(view.run, label=view.label, model=part_name(view.run.spec.get("model")))

    def headline(self, view: Collected, results: Mapping[str, Any]) -> str:
        """The drop, and the factor that costs most."""
        drop = estimate_in(results, "drop")
        if drop is None or drop.value is None:
            return f"{view.label}: no edit that counts yet"
        lost = f"{view.label} loses {minus(f'{drop.value + 0.0:.0f}')} points of accuracy to edits of one factor"
        largest = results.get("largest")
        if not largest:
            return f"{lost}; no factor costs it accuracy."
        if "lead" not in largest or not largest["lead"]["value"]:
            return f"{lost}; {largest['factor']} costs most."
        most = "costs most" if largest["p"] <= LEVEL else "may cost most"
        return f"{lost}; {largest['factor']} {most}, {largest['lead']['value']:.0f} points more than {largest['next']}."

    def key_numbers(self, results: Mapping[str, Any]) -> Table | None:
        """Accuracy on accepted edits and on their sources."""
        named = {"sources": estimate_in(results, "accuracy_source"), "edits": estimate_in(results, "accuracy_edited")}
        rows: list[list[Cell]] = [[title, found] for title, found in named.items() if found and found.value is not None]
        three = (Estimate.from_dict(results[name]) for name in ("drop", "drop_reconstruction", "sensitivity"))
        drop, redrawn, moved = (estimate_text(each, unit=" points") for each in three)
        note = f"Drop {drop}; inverting and redrawing alone {redrawn}; sensitivity {moved}."
        columns = [Column("Accuracy on accepted edits and their sources", "text"), Column("per cent", axis=(0, 100))]
        return Table(columns, rows, notes=[note]) if rows else None

    def about_unfinished(self, view: Collected) -> list[Caution]:
        """Say how far the run is."""
        if view.results is not None:
            none = "No edit was accepted, so there is nothing to measure. The funnel below says where they were lost."
            return [] if view.results["factors"] else [Caution("stop", none)]
        begun = sorted(path.stem for path in (view.run.path / "stages").glob("*.jsonl"))
        so_far = f"; so far it has {', '.join(begun)}" if begun else ""
        return [Caution("stop", f"This run is not finished{so_far}. The same command resumes it.")]

    def cautions(self, view: Collected, results: Mapping[str, Any], missing: int) -> list[Caution]:
        """Few images, judges that are not independent, and what the editor alone costs."""
        accepted, readable = (int(results["counts"][name]) for name in ("validated", "readable"))
        text = f"{accepted:,} of {amount(readable, 'source image')} have an accepted edit"
        found = [*about_parts(view.run, name=self.site.name, models=[view.model]), *about_images(accepted, text, missing=missing)]
        redrawn = estimate_in(results, "drop_reconstruction")
        if redrawn is not None and redrawn.value is not None and redrawn.value > GENERATOR_COST:
            cost = estimate_text(redrawn, unit=" points")
            found.append(Caution("care", f"Inverting and redrawing alone cost {cost}: that part of every drop is the editor's."))
        return found

    def sections(self, view: Collected, results: Mapping[str, Any]) -> Iterator[PageSection]:
        """Factors, slices and groups of edits; classes; what was rejected."""
        yield PageSection("Where it fails", [_factors_drawn(results), *self.where_it_fails(view), *self._groups(view, results)])
        if classes := _classes(results):
            yield PageSection("By class", [classes])
        why: list[list[Cell]] = [
            [entry["stage"], check, times, REASONS.get(check) or CHECKS.get(check, "")]
            for entry in results["funnel"]
            for check, times in entry["turned_away"].items()
        ]
        columns = [Column("stage", "text"), Column("check", "text"), Column("rejected"), Column("", "text", wide=True)]
        yield PageSection("What was rejected, and why", [funnel(results), Table(columns, why), naturalness(results)])
        yield PageSection("All numbers", [numbers_table(results, MEANINGS), factors(results)])

    def side_by_side(self, view: Collected) -> Sequence[tuple[Column, Cell]]:
        """Accuracy on the sources, and the drop, also by factor."""
        results = view.results or {}
        numbers = [
            (Column("sources, %"), estimate_in(results, "accuracy_source")),
            (Column("drop, points"), estimate_in(results, "drop")),
        ]
        by_factor = [
            (Column(f"{factor}, points", shade=(0, 60)), estimate_in(results["factors"].get(factor), "drop"))
            for factor in FACTORS
            if any(factor in (each.results or {}).get("factors", ()) for each in self.views)
        ]
        return [*numbers, *by_factor, (Column("edits"), results["drop"]["n"])]

    def pair(self, view: Collected, entry: GalleryEntry) -> ImagePair:
        """An edit with its factor, and its caption before and after."""
        words = split_captions(entry.trial.caption, entry.trial.prompt)
        return replace(super().pair(view, entry), words=words, note=entry.trial.factor)

    def _groups(self, view: Collected, results: Mapping[str, Any]) -> Iterator[Block]:
        """Groups of edits that change a class's captions alike, with examples."""
        if not results.get("bias"):
            return
        entries = {each.trial.trial_id: each for each in view.shown}
        yield (
            "Edits of a class that change its captions alike, the most sensitive first. The test asks whether a group moves the "
            "model more than other edits of the same source images."
        )
        for entry in results["bias"][:BIASES]:
            pairs = [self.pair(view, entries[name]) for name in entry["examples"] if name in entries][:EXAMPLES]
            moved, drop = (estimate_text(Estimate.from_dict(entry[name]), unit=" points") for name in ("sensitivity", "drop"))
            size = f"{amount(entry['edits'], 'edit')} of {amount(entry['sources'], 'source')}"
            text = f"{entry['factor']}: sensitivity {moved}, drop {drop}, {size}, {p_is(entry['p_adjusted'])}"
            yield ImagePairs(pairs, title=f"{entry['class']}: {entry['name']}", text=text)
        yield Fold("All groups as a table", [biases(results)])


def _by_drop(results: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return sorted((results.get("factors") or {}).items(), key=lambda item: -(item[1]["drop"]["value"] or 0))


def _factors_drawn(results: Mapping[str, Any]) -> Table:
    columns = [
        Column("factor", "text"), Column("accuracy, %", axis=(0, 100)), Column("drop, points", sign=True), Column("p", "p"),
        Column("sensitivity, points"), Column("edits"),
    ]  # fmt: skip
    rows: list[list[Cell]] = []
    for factor, entry in _by_drop(results):
        source, edited, drop, moved = estimates(entry, ("accuracy_source", "accuracy_edited", "drop", "sensitivity"))
        drawn = (("sources", source, "random", True), ("edits", edited, "guided", False))
        marks = tuple(Mark(name, found, colour, hollow) for name, found, colour, hollow in drawn if found)  # type: ignore[arg-type]
        rows.append([Link(factor, show=f"factor={factor}"), marks, drop, entry["p_adjusted"], moved, entry["edits"]])
    return Table(columns, rows, notes=[largest_drop(results)] if rows else [])


def _classes(results: Mapping[str, Any]) -> Table | None:
    names = [factor for factor in FACTORS if factor in results["factors"]]
    rows: list[list[Cell]] = []
    for name, entry in (results.get("per_class") or {}).items():
        drops = [estimate_in(entry["factors"].get(factor), "drop") for factor in names]
        rows.append([name, estimate_in(entry, "drop"), *drops])
    columns = [Column("class", "text"), Column("all edits"), *(Column(name, shade=(0, 100)) for name in names)]
    return Table(columns, rows, title="Accuracy drop by class and factor, in points", filter_rows=True) if rows else None
