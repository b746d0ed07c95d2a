"""FMR's tables and pages: how much accuracy a model keeps, where it fails, and what the controls and the oracle say of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np

from counterfoil.core.errors import CounterfoilError
from counterfoil.core.records import Estimate
from counterfoil.metrics.estimate import Mean, estimate
from counterfoil.metrics.observations import unit_of
from counterfoil.metrics.tables import Cell, Column, Link, Table, amount, estimate_in, estimate_text, join_names
from counterfoil.protocols.fmr.outcomes import read_outcomes
from counterfoil.protocols.fmr.results import AUDIT_MEANINGS, DISTANCES, MEANINGS, observe, scores
from counterfoil.protocols.fmr.transfer import EVERY, table_of, transfer_of
from counterfoil.protocols.fmr.wording import (
    about_generators,
    about_records,
    against_random,
    cautions_of,
    curve_of,
    no_result,
)
from counterfoil.protocols.pages import ReportPages, estimates, numbers_table
from counterfoil.report.gallery import OUTCOMES, Collected, GalleryEntry, filter_of
from counterfoil.report.page import STRIP, Block, Caution, Downloads, Fold, ImagePairs, Lines, PageSection, Series
from counterfoil.report.provenance import about_parts
from counterfoil.report.site import Site
from counterfoil.store.later import asked_of

MEASURED = 200  # images whose distance from their source is measured
CURVES = 8  # runs drawn in one chart
FIGURE = 3  # source images shown for every model
BY_CLASS = {
    "PA": "accuracy after guided steps",
    "SA": "clean",
    "PA_reconstruction": "reconstruction",
    "VR": "accepted",
    "steps": "steps",
}
AUDIT = {"clean_accuracy": "oracle on sources", "lost": "lost", "FMR_lost": "FMR if lost", "FMR_kept": "FMR if kept"}
LATER = ("SA", "PA", "FMR", "FMR_matched", "VR")
KEY = (
    ("clean images", "SA_matched", ""),
    ("reconstruction", "PA_reconstruction", "the generator"),
    ("random steps", "PA_random", "steps in any direction"),
    ("guided steps", "PA", "the model"),
)  # fmt: skip


def _oracle_of(view: Collected, entry: GalleryEntry) -> str:
    """The oracle's answer about a generated image."""
    verdict = entry.said.oracle.get("made")
    if verdict is None or verdict.keeps_label is None:
        return "no verdict" if verdict is None else "the oracle abstains"
    if verdict.predicted >= 0:
        return f"the oracle sees {view.class_name(verdict.predicted)}"
    return "the oracle accepts it" if verdict.keeps_label else "the oracle rejects it"


def tables(results: Mapping[str, Any]) -> list[Table]:
    """All numbers with what they say, and how far images moved."""
    meanings = dict(MEANINGS)
    if unmoved := (results.get("counts") or {}).get("unmoved"):
        meanings["PA"] += f"; {amount(unmoved, 'of them kept', 'of them kept')} no step"
    moved = [(meaning, _distance_moved(results, arm)) for arm, meaning in DISTANCES.items()]
    far: list[list[Cell]] = [[meaning, found, found.n] for meaning, found in moved if found is not None]
    heads = [Column("", "text"), Column("value (95 % interval)", digits=3), Column("n")]
    return [numbers_table(results, meanings), *([Table(heads, far)] if far else [])]


class FmrPages(ReportPages):
    """A page for each run: accuracy after guided steps and its controls."""

    title = "FMR"
    order = ("keeps the most accuracy ({} by matched FMR)", "the least ({})")
    how = (
        "Each image is first reconstructed by the generator alone. If the oracle still sees the class, the search takes steps "
        "that raise the tested model's loss, and keeps the last image the oracle accepts."
    )

    def headline(self, view: Collected, results: Mapping[str, Any]) -> str:
        """Say what is left of the accuracy on the accepted images."""
        after, before = (estimate_in(results, name) for name in ("PA", "SA_matched"))
        if after is None or after.value is None or before is None or before.value is None:
            return f"{view.label}: no accuracy on images made against it yet"
        made = f"{amount(after.n, 'image')} made against it"
        return f"{view.label} keeps {after.value:.0f} % accuracy on {made}; it has {before.value:.0f} % on their originals."

    def key_numbers(self, results: Mapping[str, Any]) -> Table | None:
        """Accuracy on the same images: as they were, reconstructed, after random and after guided steps."""
        known = [(title, estimate_in(results, name), charged) for title, name, charged in KEY]
        rows: list[list[Cell]] = [[title, found, charged] for title, found, charged in known if found and found.value is not None]
        if not rows:
            return None
        matched, published = (estimate_in(results, name) for name in ("FMR_matched", "FMR"))
        notes = []
        if matched is not None and matched.value is not None and published is not None:
            notes.append(
                f"Matched FMR {estimate_text(matched, unit=' %')}: the share of its accuracy that the model keeps on the "
                f"accepted images. FMR as published: {estimate_text(published, unit=' %')}."
            )
        if unmoved := (results.get("counts") or {}).get("unmoved"):
            left_out = estimate_in(results, "FMR_moved")
            text = f" FMR without those whose first step was rejected: {estimate_text(left_out, unit=' %')}." if left_out else ""
            notes.append(f"{amount(unmoved, 'accepted image')} kept no step: what counts there is the reconstruction.{text}")
        heads = [Column("Accuracy on the accepted images", "text"), Column("per cent", axis=(0, 100))]
        return Table([*heads, Column("loss charged to", "text")], rows, notes=notes)

    def about_unfinished(self, view: Collected) -> list[Caution]:
        """Say why there is no FMR."""
        return [Caution("stop", text) for text in no_result(view)]

    def cautions(self, view: Collected, results: Mapping[str, Any], missing: int) -> list[Caution]:
        """List cautions about the numbers."""
        return [*about_parts(view.run, name=self.site.name), *cautions_of(results, classes=len(view.run.classes))]

    def notes(self, view: Collected, missing: int) -> list[Caution]:
        """Images that are missing, and whether the run was resumed."""
        return [Caution("note", text) for text in about_records(view, missing)]

    def sections(self, view: Collected, results: Mapping[str, Any]) -> Iterator[PageSection]:
        """Show where it fails, how fast, against which controls, and what the oracle may hide."""
        if results.get("per_class"):
            yield PageSection(
                "Where it fails", [*self._lowest(results), *self.where_it_fails(view), self._by_class(view, results)]
            )
        if curve := curve_of(results, "guided"):
            random = curve_of(results, "random")
            series = [Series("guided", curve, "guided"), *([Series("random", random, "random", dashed=True)] if random else [])]
            text = "Share of accepted images that the model still gets right after each step, with 95 % intervals."
            yield PageSection("How fast accuracy falls", [Lines("Accuracy by step", "steps", series, text)])
        ratios = {name: estimate_in(results, name) for name in ("FMR", "FMR_matched", "FMR_moved", "FMR_random")}
        rows: list[list[Cell]] = [
            [name, each, MEANINGS[name]] for name, each in ratios.items() if each and each.value is not None
        ]
        if rows:
            columns = [Column("FMR", "text"), Column("per cent", axis=(0, 100)), Column("", "text", wide=True)]
            yield PageSection("FMR and its control", [Table(columns, rows, notes=[against_random(results)])])
        if distance := [*_medians([view]), *self._distances([view])]:
            yield PageSection("How far images moved", distance)
        if audit := _audit(results):
            yield PageSection("The oracle under audit", audit)
        if later := _later(view, self.site):
            yield PageSection("Other models and oracles on the same images", later)
        if transfer := _transfer([view], self.site):
            yield PageSection("Transfer", transfer)
        if view.images:
            yield PageSection("What became of the images", [_tally(view)])
        yield PageSection("All numbers", tables(results))

    def side_by_side(self, view: Collected) -> Sequence[tuple[Column, Cell]]:
        """The numbers of the published tables, with their controls."""
        names = ("SA", "PA", "FMR", "FMR_matched", "FMR_random", "PA_reconstruction", "PA_random", "VR", "steps")
        numbers = [
            (Column(f"{name}{',' if unit_of(name) else ''}{unit_of(name)}"), estimate_in(view.results, name)) for name in names
        ]
        return [*numbers, (Column("accepted"), f"{view.validated:,} of {view.images:,}")]

    def comparison_sections(self, finished: Sequence[Collected]) -> Iterator[PageSection]:
        """Accuracy by step and class, distances, transfer and the oracle, for all runs."""
        curves = [(view.label, curve_of(view.results or {}, "guided")) for view in finished[:CURVES]]
        if series := [Series(label, points, "") for label, points in curves if points]:
            yield PageSection("How fast accuracy falls", [Lines("Accuracy by step", "steps", series)])
        if figure := self.figure():
            yield PageSection("The same image, each model", figure)
        if rates := _rates(finished):
            yield PageSection("Where they fail", [rates])
        if distance := [*_medians(finished), *self._distances(finished)]:
            yield PageSection("How far images moved", distance)
        if transfer := _transfer(finished, self.site):
            yield PageSection("Transfer", transfer)
        audits: list[list[Cell]] = [
            [view.label, *estimates((view.results or {}).get("audit") or {}, list(AUDIT))] for view in finished
        ]
        if audits:
            columns = [Column("run", "text"), *(Column(f"{title}, %") for title in AUDIT.values())]
            yield PageSection("The oracle under audit", [Table(columns, audits)])

    def figure(self) -> list[Block]:
        """Images made of the same sources against each model, with its prediction and the oracle's; also as one PNG."""
        blocks: list[Block] = []
        rows = []
        for some in self.same_images(FIGURE):
            made = {label: (self.pair(view, each), _oracle_of(view, each)) for label, (view, each) in islice(some.items(), STRIP)}
            source = next(iter(made.values()))[0]
            blocks.append(ImagePairs([replace(pair, note=f"{label}: {seen}") for label, (pair, seen) in made.items()]))
            cells = [(source.before, [f"source: {source.truth}"])]
            cells += [(pair.after, [label, f"predicts {pair.answer}", seen]) for label, (pair, seen) in made.items()]
            rows.append([(image, lines) for image, lines in cells if image is not None])
        if not blocks:
            return []
        text = "Images made of the same source against each model, with its prediction and what the oracle sees."
        file = self.site.images.figure(rows, "images/figure-fmr.png")
        return [text, *blocks, Downloads([(file, "the same as one image, to take along")])]

    def about_all(self, finished: Sequence[Collected]) -> list[Caution]:
        """Several generators measure several things."""
        return about_generators(finished)

    def _lowest(self, results: Mapping[str, Any]) -> list[Block]:
        """The classes of the lowest accuracy, all of them where they tie."""
        values = {name: entry["PA"]["value"] for name, entry in results["per_class"].items() if entry["PA"]["value"] is not None}
        if len(values) < 2:
            return []
        least = min(values.values())
        lowest = join_names([name for name, value in values.items() if value == least])
        return [f"Lowest accuracy after guided steps: {lowest}, {least:.1f} %. Single classes rest on few images."]

    def _by_class(self, view: Collected, results: Mapping[str, Any]) -> Fold:
        """All numbers by class, the lowest accuracy first, with the way to its images."""
        audited = (results.get("audit") or {}).get("per_class") or {}
        values = {name: entry["PA"]["value"] for name, entry in results["per_class"].items()}
        order = sorted(values, key=lambda name: (values[name] is None, values[name] or 0))
        first, *others = (f"{title}, %" if name != "steps" else title for name, title in BY_CLASS.items())
        columns = [
            Column("class", "text"), Column("images"), Column(first, axis=(0, 100)), *map(Column, others),
            Column("oracle on sources, %"),
        ]  # fmt: skip
        rows: list[list[Cell]] = []
        for name in order:
            entry, link = results["per_class"][name], Link(name, show=filter_of([("class", name)], view.number))
            numbers = estimates(entry, list(BY_CLASS))
            rows.append([link, entry["images"], *numbers, estimate_in(audited.get(name), "clean_accuracy")])
        return Fold(f"All {amount(len(rows), 'class', 'classes')}", [Table(columns, rows, filter_rows=True)])

    def _distances(self, every: Sequence[Collected]) -> list[Table]:
        """The distance of generated images from their sources, in grey levels, over a sample of the accepted images."""
        images = self.site.images
        rows: list[list[Cell]] = []
        for view in every:
            values: dict[str, list[float | None]] = {"reconstruction": [], "guided": [], "random": []}
            seen: set[str] = set()
            for trial in (each.trial for each in view.shown if each.trial.image and each.trial.arm in ("guided", "random")):
                if len(seen) >= MEASURED and trial.image_id not in seen:
                    continue
                seen.add(trial.image_id)
                values[trial.arm].append(images.distance(view.run.path, trial.clean, trial.image))
                if trial.arm == "guided":
                    values["reconstruction"].append(images.distance(view.run.path, trial.clean, trial.reconstruction))
            known = [[each for each in some if each is not None] for some in values.values()]
            if any(known):
                rows.append([view.label, *map(_mean, known)])
        columns = [Column("run", "text"), *(Column(name, unit="") for name in ("reconstruction", "guided steps", "random steps"))]
        note = "Root mean square of the difference from the source image, in grey levels of 255, over the images of the gallery."
        return [Table(columns, rows, notes=[note])] if rows else []


def _audit(results: Mapping[str, Any]) -> list[Block]:
    found = results.get("audit")
    numbers = {name: each for name in AUDIT_MEANINGS if (each := estimate_in(found, name)) is not None}
    if all(each.value is None for each in numbers.values()):
        return []
    text = []
    right, lost = numbers["clean_accuracy"], numbers["lost"]
    if right.value is not None:
        text.append(
            f"The oracle sees the right class in {right.value:.1f} % of the source images; where it errs, so does its verdict."
        )
    if lost.value == 0:
        text.append("It rejected no image, so no result is hidden.")
    elif lost.value is not None and numbers["FMR_lost"].value is not None and numbers["FMR_kept"].value is not None:
        low, high = numbers["FMR_lost"].value, numbers["FMR_kept"].value
        text.append(f"It rejected {lost.value:.1f} % of the images: with them FMR would lie between {low:.1f} and {high:.1f}.")
    columns = [Column("number", "text"), Column("per cent", axis=(0, 100)), Column("", "text", wide=True)]
    rows: list[list[Cell]] = [[name, each, AUDIT_MEANINGS[name]] for name, each in numbers.items()]
    return [" ".join(text), Table(columns, rows)]


def _later(view: Collected, site: Site) -> list[Block]:
    """The numbers by other models and oracles; those that answered too little are left out."""
    seed = int(view.run.spec.get("seed", 0))
    cautions: dict[tuple[str, str], str] = {(each.role, each.name): each.caution for each in asked_of(view.run.path)}
    rows: list[list[Cell]] = []
    for role, others in (("model", view.answers.other_models), ("oracle", view.answers.other_oracles)):
        for name in sorted(others):
            try:
                values = scores(read_outcomes(view.run, **{role: name}), seed=seed)
            except CounterfoilError:
                continue
            rows.append([Link(site.name(name), note=cautions.get((role, name), "")), role, *(values[each] for each in LATER)])
    columns = [Column("who", "text"), Column("role", "text"), *(Column(f"{name}, %") for name in LATER)]
    return [Table(columns, rows)] if rows else []


def _transfer(every: Sequence[Collected], site: Site) -> list[Block]:
    if not any(view.answers.other_models for view in every):
        return []
    try:
        matrix = transfer_of([view.run for view in every], names=[view.label for view in every])
    except CounterfoilError:  # models that answered too little; the page says so where it lists them
        return []
    text = "FMR of each model (columns) on images made against each model (rows), in per cent of its own accuracy."
    shown = {name: site.name(name) for view in every for name in (view.model, *sorted(view.answers.other_models))}
    return [text, table_of(matrix, "FMR", names=shown)]


def _distance_moved(results: Mapping[str, Any] | None, arm: str) -> Estimate | None:
    """The median distance of an arm from its start; None where there is none."""
    found = estimate_in(((results or {}).get("arms") or {}).get("distance"), arm)
    return found if found is not None and found.value is not None else None


def _medians(every: Sequence[Collected]) -> list[Table]:
    """The distance of both arms from where they began, by which it can be judged what the control shows."""
    columns = [Column("run", "text"), *(Column(f"{arm} steps, median", digits=3) for arm in DISTANCES), Column("control", "text"),
               Column("the control costs", unit=" points")]  # fmt: skip
    rows: list[list[Cell]] = []
    for view in every:
        cells = [_distance_moved(view.results, arm) for arm in DISTANCES]
        if any(cells):
            cost = observe(view.run).estimate(EVERY["drop_random"])
            rows.append([view.label, *cells, str((view.run.spec.get("search") or {}).get("control", "")), cost])
    note = (
        "Distance of accepted images from their reconstruction in the generator's scale. The control 'distance' ends as far away "
        "as guided steps, along one random line; 'path' takes as many steps of equal length, which partly undo each other. What "
        "the control costs is accuracy on the reconstruction less accuracy on its images."
    )
    return [Table(columns, rows, notes=[note])] if rows else []


def _mean(values: Sequence[float]) -> Estimate:
    columns = {"sum": np.array(values, dtype=np.float64), "all": np.ones(len(values))}
    return estimate(columns, {"": Mean("sum", "all", "no image")})[""]


def _tally(view: Collected) -> Table:
    arms = [arm for arm in ("guided", "random") if arm in view.tally] or ["guided"]
    columns = [Column("outcome", "text"), *(Column(arm) for arm in arms), Column("", "text", wide=True)]
    rows: list[list[Cell]] = [
        [name, *(view.tally.get(arm, {}).get(name, 0) for arm in arms), meaning] for name, meaning in OUTCOMES.items()
    ]
    ended = ", ".join(f"{name} {times:,}" for name, times in sorted(view.endings.items()))
    of = f" of {view.expected:,}" if view.expected and view.expected != view.images else ""
    return Table(columns, rows, notes=[f"{amount(view.images, 'image')} done{of}. Guided searches ended by: {ended}."])


def _rates(finished: Sequence[Collected]) -> Table | None:
    every = [(view.results or {}).get("per_class", {}) for view in finished]
    names = dict.fromkeys(name for each in every for name in each)
    rows: list[list[Cell]] = [[name, *(estimate_in(each.get(name), "PA") for each in every)] for name in names]
    columns = [Column("class", "text"), *(Column(view.label, shade=(0, 100)) for view in finished)]
    title = "Accuracy after guided steps by class, in per cent"
    return Table(columns, rows, title=title, filter_rows=True) if rows else None
