"""ImageNet-D's tables and page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from counterfoil.core.naming import part_name, short_name
from counterfoil.core.records import Estimate
from counterfoil.metrics.comparison import Ranking
from counterfoil.metrics.tables import Cell, Column, Link, Mark, Table, amount, estimate_in, minus, p_is
from counterfoil.protocols.imagenet_d.results import FIXED_MODELS, in_order, tested_models
from counterfoil.protocols.pages import ReportPages, estimates
from counterfoil.report.gallery import Collected, GalleryEntry
from counterfoil.report.page import KEY_NUMBERS, Block, Fold, ImagePair, Lines, PageSection, Series
from counterfoil.store import Run

ON_SETS = (("painted, %", "accuracy_painted"), ("mined, %", "accuracy"), ("drop, points", "drop"))
PULLS = 10  # listed per model
TEST = "p: bootstrap of whole prompts, that the drop is zero; of several models corrected for their number (Holm)"
"""Under every table of drops."""

ROLES = {"unseen": "took no part", "surrogate": "surrogate *", "chat": "two choices"}


def tables(results: Mapping[str, Any]) -> list[Table]:
    """The funnel, models before and after mining, surrogates, kinds of nuisance, failure modes, order of choices."""
    every = (funnel, models, leave_one_out, by_number, kinds, failures, orders)
    return [table for each in every if (table := each(results)).rows or table.notes]


def funnel(results: Mapping[str, Any]) -> Table:
    """Say what became of the images, in one to three sentences."""
    counts = results["counts"]
    skipped = f", {counts['skipped']:,} cannot be used" if counts["skipped"] else ""
    seen = f"the oracle sees the object in {counts['object_seen']:,}"
    seen += f" and leaves {counts['object_open']:,} open" if counts["object_open"] else ""
    who = seen if results["oracle"]["name"] != "none" else "no oracle was asked"
    notes = [f"{amount(counts['images'], 'image')}{skipped}; {who}"]
    if counts["turned_away"]:
        away = ", ".join(f"{name} {times:,}" for name, times in counts["turned_away"].items())
        notes.append(f"kept {counts['kept']:,}; rejected: {away}")
    if counts["people_accept"] or counts["people_reject"]:
        answers = f"{counts['people_accept']} accepted, {counts['people_reject']} rejected, {counts['people_pending']} pending"
        notes.append(f"people: {answers}; the set has {counts['validated']:,}")
    return Table([], [], notes=notes)


def models(results: Mapping[str, Any]) -> Table:
    """Accuracy of every model before and after mining; of a set that was made before, on it."""
    mined = "leave_one_out" in results
    accuracies = [Column("painted", axis=(0, 100)), Column("mined", axis=(0, 100)), Column("drop", sign=True), Column("p", "p")]
    columns = [Column("model", "text"), Column("role", "text"), *(accuracies if mined else [Column("accuracy", axis=(0, 100))])]
    rows: list[list[Cell]] = []
    for name, entry in in_order(results["models"]):
        role = ROLES[entry["role"]] if mined or entry["role"] == "chat" else "tested"
        numbers: list[Cell] = [_estimate_cell(entry, "mined")]
        if mined:
            numbers = [_estimate_cell(entry, "painted"), *numbers, _estimate_cell(entry, "drop"), _p(entry)]
        rows.append([name, role, *numbers, _estimate_cell(entry, "top5")])
    notes = [TEST] if mined else []
    if mined and "drop" in results:
        pool = [Estimate.from_dict(results[key]) for key in ("accuracy_painted", "accuracy", "drop")]
        rows.append(["mean", "took no part", *pool, results["drop_p"], ""])
        notes.append(FIXED_MODELS)
    if any(entry["role"] == "surrogate" for entry in results["models"].values()):
        notes.append(f"* {results['selection_bias']}")
    return Table([*columns, Column("top-5")], rows, title="Accuracy in per cent (95 % interval)", notes=notes)


def leave_one_out(results: Mapping[str, Any]) -> Table:
    """Every surrogate on the set that the others would have chosen."""
    found = results.get("leave_one_out") or []
    columns = [
        Column("surrogate left out *", "text"), Column("kept"), Column("painted"), Column("mined without it"),
        Column("drop", sign=True), Column("p", "p"), Column("models that took no part"),
    ]  # fmt: skip
    rows: list[list[Cell]] = [
        [
            row["surrogate"],
            row["kept"],
            *(_estimate_cell(row, key) for key in ("painted", "mined", "drop")),
            _p(row),
            _estimate_cell(row, "unseen"),
        ]
        for row in found
    ]
    title = "Leave one surrogate out: its accuracy on what the others alone would have kept"
    return Table(columns, rows, title=title, notes=[TEST, f"* {results['selection_bias']}"] if rows else [])


def by_number(results: Mapping[str, Any]) -> Table:
    """Accuracy on the set by the number of surrogates."""
    columns = [Column("surrogates"), Column("accuracy"), Column("lowest and highest choice", "text"), Column("kept on average")]
    rows: list[list[Cell]] = []
    for point in results.get("by_number") or []:
        known = "accuracy" in point
        spread = f"{point['lowest']:.1f} to {point['highest']:.1f} of {point['sets']}" if known else ""
        rows.append([point["surrogates"], _estimate_cell(point, "accuracy"), spread, f"{point['kept']:.0f}"])
    title = "Mean accuracy of the models that took no part, by the number of surrogates"
    return Table(columns, rows, title=title, notes=[FIXED_MODELS] if rows else [])


def kinds(results: Mapping[str, Any]) -> Table:
    """Accuracy by kind of nuisance."""
    names = kind_names(results)
    where = "painted" if "leave_one_out" in results else "mined"
    rows: list[list[Cell]] = []
    for name, entry in in_order(results["models"]) if names else ():
        if where == "mined" or entry["role"] != "chat":  # which is not asked about all of them
            rows.append([name, *(_estimate_cell(entry["by_nuisance"].get(kind) or {}, where) for kind in names)])
    on = "on all painted images" if where == "painted" else "on the set"
    columns = [Column("model", "text"), *(Column(name, shade=(0, 100)) for name in names)]
    return Table(columns, rows, title=f"Accuracy by kind of nuisance, {on}")


def failures(results: Mapping[str, Any]) -> Table:
    """Mistakes by what they follow, as shares of them, with the strongest pulls."""
    found = {name: entry["failure_modes"] for name, entry in in_order(results["models"]) if "failure_modes" in entry}
    first = next(iter(found.values()))["painted"] if found else {}
    names = [*(kind for kind in first if kind not in ("mistakes", "pictures", "driven", "other")), "other"]
    heads = [name if name == "other" else f"{name}-driven" for name in names]
    columns = [Column("model", "text"), Column("mistakes", "text"), *(Column(head, shade=(0, 100)) for head in heads)]
    rows: list[list[Cell]] = []
    for model, entry in found.items():
        modes = entry["painted"]
        pulls = ", ".join(f"{pull['nuisance']} → {pull['answer']}" for pull in entry["pulls"][:3])
        shares = (Estimate.from_dict(modes[kind]["share"]) for kind in names)
        rows.append([model, f"{modes['mistakes']:,} of {modes['pictures']:,}", *shares, pulls])
    title = "Mistakes on painted images by what they follow (share of mistakes in per cent, 95 % interval)"
    return Table([*columns, Column("strongest pulls", "text", wide=True)], rows, title=title)


def orders(results: Mapping[str, Any]) -> Table:
    """Accuracy of two-choice answers by the order of the choices."""
    columns = [
        Column("model", "text"), Column("truth first"), Column("truth second"), Column("difference", sign=True), Column("p", "p"),
        Column("same answer both ways"), Column("not read", "text"),
    ]  # fmt: skip
    rows: list[list[Cell]] = []
    for name, entry in (results.get("order_bias") or {}).items():
        numbers = [_estimate_cell(entry, key) for key in ("truth_first", "truth_second", "bias")]
        unread = f"{entry['unread']:,} of {entry['asked']:,}"
        rows.append([name, *numbers, "" if entry["p"] is None else entry["p"], _estimate_cell(entry, "consistent"), unread])
    return Table(columns, rows, title="Two-choice questions: accuracy by the place of the truth")


def kind_names(results: Mapping[str, Any]) -> list[str]:
    """The kinds of nuisance that the numbers tell apart."""
    return list(dict.fromkeys(kind for entry in results["models"].values() for kind in entry["by_nuisance"]))


def _estimate_cell(entry: Mapping[str, Any], key: str) -> Cell:
    """An estimate; a dash where there is none, with the reason below it on a page."""
    found = entry.get(key)
    if not found:
        return "–"
    return Estimate.from_dict(found) if found["value"] is not None else Link("–", note=found.get("note", ""))


def _p(entry: Mapping[str, Any]) -> Cell:
    """A p-value, corrected for the others of its table where that was done; nothing where nothing was tested."""
    p: float | None = entry.get("p_adjusted", entry["p"])
    return "" if p is None else p


class ImagenetDPages(ReportPages):
    """A page for each set, with all models that were tested on it."""

    title = "ImageNet-D"
    stages = (("prompts", "prompts, one per line"), ("paintings", "what was painted"), ("mined", "what was kept, and why not"))

    def views_of(self, run: Run, label: str) -> Iterator[Collected]:
        """The set, with the mistakes of the first model under test."""
        yield self.site.collect(run, label=label, model=next(iter(tested_models(run)), ""))

    def about(self, view: Collected) -> str:
        """Name what made the images, and whose mistakes are shown."""
        maker = short_name(part_name(view.run.spec.get("painter") or view.run.spec.get("data")))
        return f"{maker} · mistakes of {short_name(view.model) or 'no model'}"

    def headline(self, view: Collected, results: Mapping[str, Any]) -> str:
        """Say what the models that took no part lose, or are right on."""
        kept = amount(int(results["counts"]["validated"]), "image")
        drop, accuracy = estimates(results, ("drop", "accuracy"))
        if drop is not None and drop.value is not None:
            points = minus(f"{drop.value + 0.0:.0f}")
            text = f"Models that took no part lose {points} points on the {kept} that all surrogates miss"
            return f"{text} ({p_is(results['drop_p'])})."
        if accuracy is not None and accuracy.value is not None:
            return f"The models are right on {accuracy.value:.0f} % of the {kept} of the set, in the mean."
        return f"{kept} in the set; no model that took no part was tested on them."

    def key_numbers(self, results: Mapping[str, Any]) -> Table | None:
        """Accuracy of the models under test, before and after mining."""
        mined = "leave_one_out" in results
        rows: list[list[Cell]] = []
        for name, entry in in_order(results["models"]):
            painted, kept = estimates(entry, ("painted", "mined"))
            marks = [Mark("painted", painted, "random", hollow=True)] if mined and painted and painted.value is not None else []
            marks += [Mark("mined" if mined else "set", kept)] if kept and kept.value is not None else []
            if marks and entry["role"] != "surrogate":
                rows.append([name, tuple(marks)])
        columns = [Column("model", "text"), Column("accuracy, %", axis=(0, 100))]
        notes = [FIXED_MODELS] if mined and "drop" in results else []
        return Table(columns, rows[:KEY_NUMBERS], notes=notes) if rows else None

    def extent(self, results: Mapping[str, Any]) -> tuple[int, str]:
        """The number of images in the set."""
        count = int(results["counts"]["validated"])
        return count, f"{amount(count, 'image is', 'images are')} in the set"

    def sections(self, view: Collected, results: Mapping[str, Any]) -> Iterator[PageSection]:
        """Nuisances, slices and pulls; models; surrogates; what mistakes follow; two-choice questions."""
        where: list[Block] = [kinds(results)] if kind_names(results) else []
        where += self.where_it_fails(view)
        if (pulls := _pulls(results)).rows:
            where += ["A nuisance pulls a model if its images are taken for one answer, whatever the object.", pulls]
        if where:
            yield PageSection("Where it fails", where)
        yield PageSection("Models", [models(results)])
        if (chosen := leave_one_out(results)).rows:
            yield PageSection("Leave one surrogate out", [chosen])
        points = [
            (float(each["surrogates"]), found)
            for each in results.get("by_number") or []
            if (found := estimate_in(each, "accuracy")) is not None
        ]
        if len(points) > 1:
            text = "Mean accuracy of the models that took no part, on what so many surrogates all miss."
            chart = Lines("Accuracy by the number of surrogates", "surrogates", [Series("took no part", points)], text)
            yield PageSection("How many surrogates", [chart, by_number(results)])
        if (modes := failures(results)).rows:
            yield PageSection("What mistakes follow", [modes, *_confusions(results)])
        if (order := orders(results)).rows:
            yield PageSection("Two-choice questions", [_unread(view.run), order])
        yield PageSection("What became of the images", [funnel(results)])

    def pair(self, view: Collected, entry: GalleryEntry) -> ImagePair:
        """A painted image with its nuisance."""
        about = " ".join(filter(None, (entry.trial.factor, entry.trial.value)))
        return replace(super().pair(view, entry), note=about)

    # Several runs are several sets, each with models of its own: no order of runs, and one table of all models

    def ranking(self, finished: Sequence[Collected]) -> tuple[Ranking | None, str]:
        """Sets have no order by paired tests."""
        return None, ""

    def verdict(self, finished: Sequence[Collected], ranking: Ranking | None, why: str) -> str:
        """The set on which models that took no part are right least often."""
        known = _accuracies(finished)
        if not known:
            return "No run is finished yet"
        (hardest, found), *_ = known
        sets = amount(len(self.views), "set")
        return f"{hardest} is the hardest of {sets}: models that took no part have {found.value:.0f} % right."

    def first_numbers(self, finished: Sequence[Collected], ranking: Ranking | None, address: Mapping[str, str]) -> Table | None:
        """The mean accuracy on each set, the hardest first."""
        rows: list[list[Cell]] = [[Link(label, to=address[label]), found] for label, found in _accuracies(finished)]
        columns = [Column("mean accuracy on the set", "text"), Column("per cent", axis=(0, 100))]
        return Table(columns, rows[:KEY_NUMBERS]) if rows else None

    def side_by_side(self, view: Collected) -> Sequence[tuple[Column, Cell]]:
        """The size of a set, and the numbers of the models that took no part."""
        results = view.results or {}
        numbers = [(Column(name), estimate_in(results, key)) for name, key in ON_SETS]
        return [(Column("images"), int(results["counts"]["validated"])), *numbers]

    def comparison_sections(self, finished: Sequence[Collected]) -> Iterator[PageSection]:
        """Every model on every set."""
        rows: list[list[Cell]] = []
        for view in finished:
            for name, entry in in_order((view.results or {}).get("models") or {}):
                rows.append(
                    [
                        view.label,
                        name,
                        ROLES[entry["role"]],
                        *(_estimate_cell(entry, key) for key in ("painted", "mined", "drop", "top5")),
                    ]
                )
        heads = [Column("set", "text"), Column("model", "text"), Column("role", "text")]
        columns = [*heads, Column("painted, %"), Column("mined, %"), Column("drop, points", sign=True), Column("top-5, %")]
        yield PageSection("Models on each set", [Table(columns, rows)])


def _accuracies(finished: Sequence[Collected]) -> list[tuple[str, Estimate]]:
    """The mean accuracy on each set by its label, the lowest first."""
    found = [
        (view.label, each) for view in finished if (each := estimate_in(view.results, "accuracy")) and each.value is not None
    ]
    return sorted(found, key=lambda item: item[1].value or 0)


def _pulls(results: Mapping[str, Any]) -> Table:
    rows: list[list[Cell]] = []
    for name, entry in in_order(results["models"]):
        for pull in (entry.get("failure_modes") or {}).get("pulls", [])[:PULLS]:
            share = f"{pull['times']:,} of {pull['among']:,}"
            rows.append([name, pull["kind"], pull["nuisance"], pull["answer"], share, f"{pull['elsewhere']:.1f} %", pull["p"]])
    heads = ("model", "kind", "nuisance", "taken for", "images", "elsewhere")
    return Table([*(Column(head, "text") for head in heads), Column("p", "p")], rows)


def _confusions(results: Mapping[str, Any]) -> list[Block]:
    rows: list[list[Cell]] = [
        [name, pair["truth"], pair["answer"], pair["times"]]
        for name, entry in in_order(results["models"])
        for pair in entry.get("confusions") or []
    ]
    columns = [Column("model", "text"), Column("object", "text"), Column("taken for", "text"), Column("images")]
    return [Fold("Confusions on the set", [Table(columns, rows, filter_rows=True)])] if rows else []


def _unread(run: Run) -> str:
    wrong = (run.spec.get("questions") or {}).get("unread", "wrong") == "wrong"
    return f"An answer that means neither choice {'counts as wrong' if wrong else 'is left out'}."
