"""The results of an ImageNet-D run as plain text, in the words that command line and report share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from counterfoil.metrics.p_values import p_text

Entry = Mapping[str, Any]

TEST = "p: bootstrap of whole prompts, that the drop is zero; of several models corrected for their number (Holm)"
"""Under every table of drops."""


def table_text(results: Entry) -> str:
    """The tables, one under the other; every one that shows a surrogate has the statement of selection bias under it."""
    blocks = [funnel(results), models(results), leave_one_out(results), by_number(results), kinds(results)]
    blocks += [failures(results), orders(results)]
    return "\n\n".join("\n".join(lines) for lines in map(list, blocks) if lines)


def value_text(found: Entry | None, *, sign: bool = False) -> str:
    """A value with its interval, or a dash."""
    if not found or found.get("value") is None:
        return "–"
    form = "+.1f" if sign else ".1f"
    interval = "no interval" if found["low"] is None else f"{found['low']:{form}} to {found['high']:{form}}"
    return f"{found['value']:{form}} ({interval})".replace("-", "−")


def chance(found: Entry) -> str:
    """A p-value, corrected for the others of its table where that was done; nothing where nothing was tested."""
    p = found.get("p_adjusted", found["p"])
    return "" if p is None else p_text(p)


def funnel(results: Entry) -> Iterator[str]:
    """What became of the pictures, in one line or two."""
    counts = results["counts"]
    skipped = f", {counts['skipped']} cannot be used" if counts["skipped"] else ""
    seen = f"the oracle sees the object in {counts['object_seen']}"
    seen += f" and leaves {counts['object_open']} open" if counts["object_open"] else ""
    yield f"{counts['images']} pictures{skipped}; {seen if results['oracle']['name'] != 'none' else 'no oracle was asked'}"
    if counts["turned_away"]:
        away = ", ".join(f"{name} {times}" for name, times in counts["turned_away"].items())
        yield f"kept {counts['kept']}; turned away: {away}"
    if counts["people_accept"] or counts["people_reject"]:
        said = f"{counts['people_accept']} accepted, {counts['people_reject']} rejected, {counts['people_pending']} pending"
        yield f"people: {said}; the set has {counts['validated']}"


def models(results: Entry) -> Iterator[str]:
    """Accuracy of every model before and after mining."""
    mined = "leave_one_out" in results
    rows = [("model", "role", *(("painted", "mined", "drop", "p") if mined else ("accuracy",)), "top-5")]
    for name, entry in in_order(results["models"]):
        numbers = [value_text(entry["mined"])]
        if mined:
            p = chance(entry)
            numbers = [value_text(entry["painted"]), value_text(entry["mined"]), value_text(entry["drop"], sign=True), p]
        role = {"unseen": "took no part" if mined else "tested", "surrogate": "surrogate *", "chat": "two choices"}[entry["role"]]
        rows.append((name, role, *numbers, value_text(entry["top5"])))
    if mined and "drop" in results:
        pool = [value_text(results[key], sign=key == "drop") for key in ("accuracy_painted", "accuracy", "drop")]
        rows.append(("mean", "took no part", *pool, "" if results["drop_p"] is None else p_text(results["drop_p"]), ""))
    yield "Accuracy in per cent (95 % interval)"
    yield from aligned(rows)
    if mined:
        yield TEST
    if any(entry["role"] == "surrogate" for entry in results["models"].values()):
        yield f"* {results['selection_bias']}"


def leave_one_out(results: Entry) -> Iterator[str]:
    """Every surrogate on the set that the others would have chosen."""
    rows = results.get("leave_one_out") or []
    if not rows:
        return
    yield "Leave one surrogate out: its accuracy on what the others alone would have kept"
    table = [("surrogate left out *", "kept", "painted", "mined without it", "drop", "p", "models that took no part")]
    for row in rows:
        numbers = (value_text(row["painted"]), value_text(row["mined"]), value_text(row["drop"], sign=True))
        table.append(
            (
                row["surrogate"],
                str(row["kept"]),
                *numbers,
                chance(row),
                value_text(row.get("unseen")),
            )
        )
    yield from aligned(table)
    yield TEST
    yield f"* {results['selection_bias']}"


def by_number(results: Entry) -> Iterator[str]:
    """How hard the set gets with every surrogate more."""
    points = results.get("by_number") or []
    if not points:
        return
    yield "Mean accuracy of the models that took no part, by the number of surrogates"
    table = [("surrogates", "accuracy", "lowest and highest choice", "kept on average")]
    for point in points:
        known = "accuracy" in point
        spread = f"{point['lowest']:.1f} to {point['highest']:.1f} of {point['sets']}" if known else ""
        table.append((str(point["surrogates"]), f"{point['accuracy']:.1f}" if known else "–", spread, f"{point['kept']:.0f}"))
    yield from aligned(table)


def kinds(results: Entry) -> Iterator[str]:
    """Accuracy by kind of nuisance."""
    names = list(dict.fromkeys(kind for entry in results["models"].values() for kind in entry["by_nuisance"]))
    if not names:
        return
    where = "painted" if "leave_one_out" in results else "mined"
    yield f"Accuracy by kind of nuisance, {'on all painted pictures' if where == 'painted' else 'on the set'}"
    table = [("model", *names)]
    for name, entry in in_order(results["models"]):
        if where == "painted" and entry["role"] == "chat":  # not asked about all of them
            continue
        table.append((name, *(value_text(entry["by_nuisance"].get(kind, {}).get(where)) for kind in names)))
    yield from aligned(table)


def failures(results: Entry) -> Iterator[str]:
    """What mistakes follow."""
    sorted_ones = {name: entry["failure_modes"] for name, entry in in_order(results["models"]) if "failure_modes" in entry}
    if not sorted_ones:
        return
    first = next(iter(sorted_ones.values()))["painted"]
    names = [*(kind for kind in first if kind not in ("mistakes", "pictures", "driven", "other")), "other"]
    yield "Mistakes on painted pictures, sorted by what they follow (share of mistakes in per cent)"
    table = [("model", "mistakes", *(name if name == "other" else f"{name}-driven" for name in names), "strongest pulls")]
    for model, entry in sorted_ones.items():
        modes = entry["painted"]
        cells = [f"{modes[kind]['times']} ({modes[kind]['share']['value'] or 0:.0f})" for kind in names]
        pulls = ", ".join(f"{pull['nuisance']} → {pull['answer']}" for pull in entry["pulls"][:3])
        table.append((model, f"{modes['mistakes']} of {modes['pictures']}", *cells, pulls))
    yield from aligned(table)


def orders(results: Entry) -> Iterator[str]:
    """How far the order of the choices decides."""
    found = results.get("order_bias") or {}
    if not found:
        return
    yield "Two-choice questions: accuracy by the place of the truth"
    table = [("model", "truth first", "truth second", "difference", "p", "same answer both ways", "not read")]
    for name, entry in found.items():
        numbers = (value_text(entry["truth_first"]), value_text(entry["truth_second"]), value_text(entry["bias"], sign=True))
        p = "" if entry["p"] is None else p_text(entry["p"])
        table.append((name, *numbers, p, value_text(entry["consistent"]), f"{entry['unread']} of {entry['asked']}"))
    yield from aligned(table)


def in_order(models: Entry) -> list[tuple[str, Any]]:
    """Models by the part they took: those under test first, surrogates last."""
    return sorted(models.items(), key=lambda pair: (("unseen", "chat", "surrogate").index(pair[1]["role"]), pair[0]))


def aligned(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Rows as lines with their columns lined up, two spaces in."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield ("  " + "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True) if width)).rstrip()
