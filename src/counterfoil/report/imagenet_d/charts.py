"""The charts of an ImageNet-D page: accuracy before and after mining, by the number of surrogates, and what mistakes follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from counterfoil.report.charts.marks import mark, whisker
from counterfoil.report.charts.svg import Box, Figure, Scale, drawing, figure, label, line, shortened, tag
from counterfoil.report.numbers import decimal, number

ROLES = {"unseen": "took no part", "surrogate": "surrogate", "chat": "two choices"}


def before_and_after(models: Sequence[tuple[str, Any]], *, name: str) -> Figure | None:
    """Each model's accuracy on what was painted and on what was kept; of a set that was only tested on, on the set."""
    rows = [(model, entry["role"], number(entry, "painted"), number(entry, "mined")) for model, entry in models]
    rows = [row for row in rows if row[3].value is not None]
    if not rows:
        return None
    mining = any(painted.value is not None for _, _, painted, _ in rows)

    def draw(width: int) -> Markup:
        wide = width > 500
        row = 34 if wide else 50
        box = Box(width, 26 + row * len(rows) + 34, left=210 if wide else 8, right=16, top=26)
        scale = Scale(0, 100, box.left, box.plot_right)
        parts = []
        if mining:
            parts += [mark("ring", box.left + 6, 12, "random"), label("painted", box.left + 16, 16, kind="faint")]
            parts += [mark("disc", box.left + 86, 12, "guided"), label("mined", box.left + 96, 16, kind="faint")]
        for value in range(0, 101, 20):
            parts.append(line(scale(value), box.top, scale(value), box.plot_bottom, "grid"))
            parts.append(label(str(value), scale(value), box.height - 14, anchor="middle", kind="faint"))
        for index, (model, role, painted, mined) in enumerate(rows):
            y = box.top + row * (index + 0.5) + (0 if wide else 12)
            title = f"{model}{' *' if role == 'surrogate' else ''}"
            place = (box.left - 12, y + 4, "end") if wide else (box.left, y - 18, "start")
            parts.append(label(shortened(title, (box.left - 20) if wide else width - 20), place[0], place[1], anchor=place[2]))
            if painted.value is not None:
                parts.append(whisker(painted, scale, y - 5, "random"))
                parts.append(mark("ring", scale(painted.value), y - 5, "random"))
            if mined.value is not None:
                parts.append(whisker(mined, scale, y + 5, "guided"))
                parts.append(mark("disc", scale(mined.value), y + 5, "guided"))
        return drawing(box, *parts)

    if not mining:
        return figure(
            name,
            "Accuracy on the set",
            description=f"Per cent right. {'; '.join(f'{model} {found.words}' for model, _, _, found in rows)}.",
            draw=draw,
            head=("model", "accuracy", "95 % interval"),
            rows=[(model, found.text, found.interval) for model, _, _, found in rows],
        )
    spoken = "; ".join(
        f"{model} ({ROLES[role]}) {f'{painted.text} to ' if painted.value is not None else ''}{mined.text}"
        for model, role, painted, mined in rows
    )
    return figure(
        name,
        "Accuracy before and after mining",
        description=f"Per cent right on all painted pictures that show their object, and on the set. {spoken}.",
        draw=draw,
        head=("model", "role", "painted", "95 % interval", "mined", "95 % interval"),
        rows=[(model, ROLES[role], one.text, one.interval, two.text, two.interval) for model, role, one, two in rows],
    )


def by_number(points: Sequence[Mapping[str, Any]], *, name: str) -> Figure | None:
    """Accuracy of models that took no part, against the number of surrogates."""
    known = [point for point in points if "accuracy" in point]
    if len(known) < 2:
        return None

    def draw(width: int) -> Markup:
        box = Box(width, 240, left=44, right=20, top=12, bottom=44)
        across = Scale(0, known[-1]["surrogates"], box.left + 10, box.plot_right - 10)
        up = Scale(0, 100, box.plot_bottom, box.top)
        parts = []
        for value in range(0, 101, 25):
            parts.append(line(box.left, up(value), box.plot_right, up(value), "grid"))
            parts.append(label(str(value), box.left - 8, up(value) + 4, anchor="end", kind="faint"))
        places = [(across(point["surrogates"]), up(point["accuracy"]["value"])) for point in known]
        parts.append(tag("polyline", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in places), class_="curve guided", fill="none"))
        for point, (x, y) in zip(known, places, strict=True):
            parts.append(line(x, up(point["lowest"]), x, up(point["highest"]), "whisker guided"))
            parts.append(mark("disc", x, y, "guided"))
            parts.append(label(str(point["surrogates"]), x, box.plot_bottom + 18, anchor="middle", kind="faint"))
        parts.append(label("surrogates", (box.left + box.plot_right) / 2, box.height - 8, anchor="middle", kind="faint"))
        return drawing(box, *parts)

    spoken = "; ".join(f"{point['surrogates']}: {decimal(point['accuracy']['value'])}" for point in known)
    return figure(
        name,
        "Accuracy by the number of surrogates",
        description="Mean accuracy in per cent of the models that took no part, on what so many surrogates all miss. The line "
        f"through each point reaches from the easiest to the hardest choice of so many. {spoken}.",
        draw=draw,
        head=("surrogates", "accuracy", "lowest", "highest", "kept on average"),
        rows=[
            (
                str(p["surrogates"]),
                decimal(p["accuracy"]["value"]),
                decimal(p["lowest"]),
                decimal(p["highest"]),
                f"{p['kept']:.0f}",
            )
            for p in known
        ],
    )


def _spread(point: Mapping[str, Any]) -> tuple[float, float, float]:
    return point["accuracy"]["value"], point["lowest"], point["highest"]


def failures(models: Sequence[tuple[str, Any]], kinds: Sequence[str], *, name: str) -> Figure | None:
    """What share of each model's mistakes follows which nuisance."""
    found = [(model, entry["failure_modes"]["painted"]) for model, entry in models if entry.get("failure_modes")]
    found = [(model, modes) for model, modes in found if modes["mistakes"]]
    if not found or not kinds:
        return None
    series = {kind: ("guided", "random", "clean", "plain")[at % 4] for at, kind in enumerate(kinds)}

    def draw(width: int) -> Markup:
        wide = width > 500
        row = 34 if wide else 52
        legend = 30 if wide else 10 + 20 * len(kinds)  # side by side, or one under the other
        box = Box(width, legend + row * len(found) + 8, left=210 if wide else 8, right=110 if wide else 8, top=legend, bottom=8)
        full = box.plot_right - box.left
        parts, x, y = [], box.left, 6.0
        for kind in kinds:
            parts.append(tag("rect", x=x, y=y, width=12, height=12, class_=f"bar {series[kind]}"))
            parts.append(label(f"{kind}-driven", x + 18, y + 10, kind="faint"))
            x, y = (x + 32 + 8 * (len(kind) + 7), y) if wide else (x, y + 20)
        for index, (model, modes) in enumerate(found):
            y = box.top + row * index
            top = y + (6 if wide else 24)
            parts.append(tag("rect", x=box.left, y=top, width=full, height=18, rx=3, class_="bar-ground"))
            start = box.left
            for kind in kinds:
                width_of = full * modes[kind]["times"] / modes["mistakes"]
                parts.append(tag("rect", x=start, y=top, width=width_of, height=18, class_=f"bar {series[kind]}"))
                start += width_of
            said = f"{modes['driven']['times']} of {modes['mistakes']}"
            if wide:
                parts.append(label(shortened(model, box.left - 20), box.left - 12, y + 20, anchor="end"))
                parts.append(label(said, box.plot_right + 10, y + 20, kind="faint"))
            else:
                parts.append(label(shortened(model, full - 90), box.left, y + 16))
                parts.append(label(said, box.plot_right, y + 16, anchor="end", kind="faint"))
        return drawing(box, *parts)

    spoken = "; ".join(f"{model} {modes['driven']['times']} of {modes['mistakes']}" for model, modes in found)
    return figure(
        name,
        "Mistakes that follow a nuisance",
        description=f"Mistakes on painted pictures whose answer is drawn by the nuisance, whatever the object. {spoken}.",
        draw=draw,
        head=("model", "mistakes", *(f"{kind}-driven" for kind in kinds), "other"),
        rows=[
            (model, str(m["mistakes"]), *(str(m[kind]["times"]) for kind in kinds), str(m["other"]["times"]))
            for model, m in found
        ],
    )
