"""ImageNet-D's tables and page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from counterfoil.core.records import Estimate
from counterfoil.metrics.imagenet_d import FIXED_MODELS, in_order
from counterfoil.metrics.tables import Cell, Column, Link, Table, counted

TEST = "p: bootstrap of whole prompts, that the drop is zero; of several models corrected for their number (Holm)"
"""Under every table of drops."""

ROLES = {"unseen": "took no part", "surrogate": "surrogate *", "chat": "two choices"}


def tables(results: Mapping[str, Any]) -> list[Table]:
    """The funnel, models before and after mining, surrogates, kinds of nuisance, failure modes, order of choices."""
    every = (funnel, models, leave_one_out, by_number, kinds, failures, orders)
    return [table for each in every if (table := each(results)).rows or table.notes]


def funnel(results: Mapping[str, Any]) -> Table:
    """What became of the images, in one to three sentences."""
    counts = results["counts"]
    skipped = f", {counts['skipped']:,} cannot be used" if counts["skipped"] else ""
    seen = f"the oracle sees the object in {counts['object_seen']:,}"
    seen += f" and leaves {counts['object_open']:,} open" if counts["object_open"] else ""
    who = seen if results["oracle"]["name"] != "none" else "no oracle was asked"
    notes = [f"{counted(counts['images'], 'image')}{skipped}; {who}"]
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
        numbers: list[Cell] = [_found(entry, "mined")]
        if mined:
            numbers = [_found(entry, "painted"), *numbers, _found(entry, "drop"), _p(entry)]
        rows.append([name, role, *numbers, _found(entry, "top5")])
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
            *(_found(row, key) for key in ("painted", "mined", "drop")),
            _p(row),
            _found(row, "unseen"),
        ]
        for row in found
    ]  # fmt: skip
    title = "Leave one surrogate out: its accuracy on what the others alone would have kept"
    return Table(columns, rows, title=title, notes=[TEST, f"* {results['selection_bias']}"] if rows else [])


def by_number(results: Mapping[str, Any]) -> Table:
    """How hard the set gets with every surrogate more."""
    columns = [Column("surrogates"), Column("accuracy"), Column("lowest and highest choice", "text"), Column("kept on average")]
    rows: list[list[Cell]] = []
    for point in results.get("by_number") or []:
        known = "accuracy" in point
        spread = f"{point['lowest']:.1f} to {point['highest']:.1f} of {point['sets']}" if known else ""
        rows.append([point["surrogates"], _found(point, "accuracy"), spread, f"{point['kept']:.0f}"])
    title = "Mean accuracy of the models that took no part, by the number of surrogates"
    return Table(columns, rows, title=title, notes=[FIXED_MODELS] if rows else [])


def kinds(results: Mapping[str, Any]) -> Table:
    """Accuracy by kind of nuisance."""
    names = kind_names(results)
    where = "painted" if "leave_one_out" in results else "mined"
    rows: list[list[Cell]] = []
    for name, entry in in_order(results["models"]) if names else ():
        if where == "mined" or entry["role"] != "chat":  # which is not asked about all of them
            rows.append([name, *(_found(entry["by_nuisance"].get(kind) or {}, where) for kind in names)])
    on = "on all painted images" if where == "painted" else "on the set"
    columns = [Column("model", "text"), *(Column(name, shade=(0, 100)) for name in names)]
    return Table(columns, rows, title=f"Accuracy by kind of nuisance, {on}")


def failures(results: Mapping[str, Any]) -> Table:
    """What mistakes follow, as shares of them, with the strongest pulls."""
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
    """How far the order of two choices decides."""
    columns = [
        Column("model", "text"), Column("truth first"), Column("truth second"), Column("difference", sign=True), Column("p", "p"),
        Column("same answer both ways"), Column("not read", "text"),
    ]  # fmt: skip
    rows: list[list[Cell]] = []
    for name, entry in (results.get("order_bias") or {}).items():
        numbers = [_found(entry, key) for key in ("truth_first", "truth_second", "bias")]
        unread = f"{entry['unread']:,} of {entry['asked']:,}"
        rows.append([name, *numbers, "" if entry["p"] is None else entry["p"], _found(entry, "consistent"), unread])
    return Table(columns, rows, title="Two-choice questions: accuracy by the place of the truth")


def kind_names(results: Mapping[str, Any]) -> list[str]:
    """The kinds of nuisance that the numbers tell apart."""
    return list(dict.fromkeys(kind for entry in results["models"].values() for kind in entry["by_nuisance"]))


def _found(entry: Mapping[str, Any], key: str) -> Cell:
    """An estimate; a dash where there is none, with the reason below it on a page."""
    found = entry.get(key)
    if not found:
        return "–"
    return Estimate.from_dict(found) if found["value"] is not None else Link("–", note=found.get("note", ""))


def _p(entry: Mapping[str, Any]) -> Cell:
    """A p-value, corrected for the others of its table where that was done; nothing where nothing was tested."""
    p: float | None = entry.get("p_adjusted", entry["p"])
    return "" if p is None else p
