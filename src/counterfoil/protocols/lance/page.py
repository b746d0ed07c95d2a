"""LANCE's tables and page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from counterfoil.core.records import Estimate
from counterfoil.metrics.lance import MEANINGS
from counterfoil.metrics.observations import unit_of
from counterfoil.metrics.tables import Cell, Column, Table, Value, estimate_text, p_is

BIASES = 10  # groups in the terminal; results.json has all


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
