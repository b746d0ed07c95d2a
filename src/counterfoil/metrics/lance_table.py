"""The numbers of a LANCE run as plain text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from counterfoil.core.records import Estimate
from counterfoil.metrics.lance import MEANINGS
from counterfoil.metrics.p_values import p_is, p_text

BIASES = 10  # shown; results.json has all
_POINTS = ("drop", "drop_reconstruction", "sensitivity")


def text(results: Mapping[str, Any]) -> str:
    """Overall numbers, a table of factors, the strongest class-level biases, and what was turned away."""
    blocks = [_overall(results), _factors(results), _biases(results), _funnel(results), _set(results)]
    return "\n\n".join("\n".join(block) for block in blocks if block)


def _overall(results: Mapping[str, Any]) -> list[str]:
    rows = [("", "value", "95 % interval", "n", "")]
    for name, meaning in MEANINGS.items():
        found = Estimate.from_dict(results[name])
        said = found.note if found.value is None else f"{meaning} ({found.note})" if found.note else meaning
        rows.append((name, _value(found, name), _interval(found), str(found.n), said))
    return _aligned(rows, left=(0, 4))


def _factors(results: Mapping[str, Any]) -> list[str]:
    rows = [("factor", "drop", "95 % interval", "p", "sensitivity", "95 % interval", "edits", "sources")]
    for factor, entry in sorted(results["factors"].items(), key=lambda item: -(item[1]["drop"]["value"] or 0)):
        drop, moved = Estimate.from_dict(entry["drop"]), Estimate.from_dict(entry["sensitivity"])
        lost = (_value(drop, "drop"), _interval(drop), p_text(entry["p_adjusted"]))
        rows.append((factor, *lost, _value(moved, "drop"), _interval(moved), str(entry["edits"]), str(entry["sources"])))
    lines = _aligned(rows, left=(0,)) if len(rows) > 1 else ["no edit that the oracle accepts, so no factor has a drop"]
    if len(rows) > 1:
        number = f", corrected for {len(rows) - 1} factors (Holm)" if len(rows) > 2 else ""
        lines.append(f"p: exact sign-flip test that the drop is zero, edits of one source together{number}")
    largest = results.get("largest")
    if largest and "lead" in largest:
        lead = Estimate.from_dict(largest["lead"])
        more = f"{_value(lead, 'drop')} points ({_interval(lead)}) more than {largest['next']}, {p_is(largest['p'])}"
        alike = f"as large as that of {largest['next']}"
        lines.append(f"largest drop: {largest['factor']}, {more if lead.value else alike}")
    return lines


def _biases(results: Mapping[str, Any]) -> list[str]:
    found = results.get("bias") or []
    rows = [("class", "edits like", "factor", "sensitivity", "others", "drop", "edits", "p")]
    for entry in found[:BIASES]:
        others = "–" if entry["others"] is None else f"{entry['others']:.1f}"
        numbers = (
            f"{entry['sensitivity']:.1f}",
            others,
            f"{entry['drop']:.1f}",
            str(entry["edits"]),
            p_text(entry["p_adjusted"]),
        )
        rows.append((entry["class"], entry["name"], entry["factor"], *numbers))
    if len(rows) == 1:
        return []
    return [
        f"Groups of edits, the most sensitive first{f', {BIASES} of {len(found)}' if len(found) > BIASES else ''}",
        *_aligned(rows, left=(0, 1, 2)),
        f"p: permutation test that a group moves the model no more than others of its sources, corrected for {len(found)} (Holm)",
    ]


def _funnel(results: Mapping[str, Any]) -> list[str]:
    rows = [("stage", "in", "kept", "turned away")]
    for entry in results.get("funnel") or []:
        away = ", ".join(f"{count} {check}" for check, count in entry["turned_away"].items())
        rows.append((entry["stage"], str(entry["in"]), str(entry["kept"]), away))
    return _aligned(rows, left=(0, 3))


def _set(results: Mapping[str, Any]) -> list[str]:
    found = results.get("set") or {}
    lines = []
    if found.get("frechet") is not None:
        note = f" ({found['frechet_note']})" if found.get("frechet_note") else ""
        lines.append(
            f"Fréchet distance of edited to source pictures: {found['frechet']:.4g}, "
            f"features of {found['frechet_features']}{note}"
        )
    if found.get("perplexity_captions") and found.get("perplexity_edits"):
        lines.append(
            f"perplexity under {found['perplexity_model']}: captions {found['perplexity_captions']:.1f}, "
            f"edits {found['perplexity_edits']:.1f}"
        )
    return lines


def _value(found: Estimate, name: str) -> str:
    if found.value is None:
        return "–"
    return f"{found.value:.1f}".replace("-", "−") + ("" if name in _POINTS else " %")


def _interval(found: Estimate) -> str:
    return "–" if found.low is None or found.high is None else f"{found.low:.1f} to {found.high:.1f}".replace("-", "−")


def _aligned(rows: Sequence[Sequence[str]], *, left: Sequence[int]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            f"{cell:<{width}}" if at in left else f"{cell:>{width}}"
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
