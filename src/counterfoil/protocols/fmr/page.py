"""FMR's tables and pages: how much accuracy a model keeps, where it fails, and what the controls and the oracle say of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from counterfoil.core.errors import CounterfoilError, UsageError
from counterfoil.core.naming import part_name, short_name
from counterfoil.core.records import Estimate
from counterfoil.metrics.comparison import Ranking, compare
from counterfoil.metrics.estimate import Mean, estimate
from counterfoil.metrics.observations import unit_of
from counterfoil.metrics.tables import Cell, Column, Link, Table, Value, counted, estimate_text, listed
from counterfoil.protocols.fmr.cautions import (
    about_generators,
    about_records,
    against_random,
    cautions_of,
    curve_of,
    estimate_of,
    no_result,
)
from counterfoil.protocols.fmr.results import AUDIT_MEANINGS, DISTANCES, MEANINGS, MEASURES, observe, read_outcomes, scores
from counterfoil.protocols.fmr.spec import FmrSpec
from counterfoil.protocols.fmr.transfer import transfer_of
from counterfoil.report.gallery import OUTCOMES, Collected, mark, pair_of, strongest
from counterfoil.report.page import STRIP, Block, Caution, Fold, ImagePair, ImagePairs, Lines, Page, Section, Series
from counterfoil.report.provenance import about_parts, how_it_was_made, together
from counterfoil.report.site import Site
from counterfoil.store import Run
from counterfoil.store.later import asked_of

CLASSES = 12  # listed before the rest is folded
MEASURED = 200  # images whose distance from their source is measured
RANKED_BY = "FMR_matched"
CURVES = 8  # runs drawn in one chart


def tables(results: Mapping[str, Any]) -> list[Table]:
    """All numbers with what they say; those that are not defined have the reason in the place of their value."""
    columns = [Column("", "text"), Column("value (95 % interval)"), Column("n"), Column("", "text", wide=True)]
    rows: list[list[Cell]] = []
    for name, meaning in MEANINGS.items():
        if name in results:
            found = Estimate.from_dict(results[name])
            rows.append([name, Value(found, unit_of(name)), found.n, meaning + _unmoved(name, results)])
    moved = [(meaning, _moved(results, arm)) for arm, meaning in DISTANCES.items()]
    far: list[list[Cell]] = [[meaning, found, found.n] for meaning, found in moved if found is not None]
    heads = [Column("", "text"), Column("value (95 % interval)", digits=3), Column("n")]
    return [Table(columns, rows), *([Table(heads, far)] if far else [])]


def pages(runs: Sequence[Run], labels: Sequence[str], site: Site) -> list[Page]:
    """A page for each run and, of several, a comparison before them."""
    every = [
        site.collect(run, number=number, label=label)
        for number, (run, label) in enumerate(zip(runs, labels, strict=True), start=1)
    ]
    if len(every) == 1:
        return [_run_page(every[0], site, "index.html")]
    singles = [_run_page(each, site, f"run-{each.number}.html") for each in every]
    return [_comparison(every, singles, site), *singles]


def _run_page(found: Collected, site: Site, name: str) -> Page:
    results = found.results or {}
    model = short_name(part_name(found.run.spec.get("model")))
    oracle = short_name(part_name(found.run.spec.get("oracle")))
    stopped = [Caution("stop", text) for text in no_result(found)]
    pairs = [pair_of(found, each, site.images) for each in strongest(found.shown, STRIP)]
    gallery = site.gallery([found])
    missing = len(site.images.missing.get(found.run.path, ()))
    cautions = stopped or [*about_parts(found.run), *cautions_of(results, classes=len(found.run.classes))]
    sections = [] if stopped and not results else list(_sections(found, site))
    return Page(
        name=name,
        title=found.label,
        eyebrow=f"FMR · tested model {model} · oracle {oracle}",
        headline=_headline(found.label, results),
        pairs=pairs,
        key_numbers=_key_numbers(results),
        cautions=[*cautions, *(Caution("note", text) for text in about_records(found, missing))],
        sections=sections,
        gallery=gallery,
        last=_last([found], site),
    )


def _headline(model: str, results: Mapping[str, Any]) -> str:
    pa, before = estimate_of(results, "PA"), estimate_of(results, "SA_matched")
    if pa is None or pa.value is None or before is None or before.value is None:
        return f"{model}: no accuracy on images made against it yet"
    number = counted(pa.n, "image")
    return f"{model} keeps {pa.value:.0f} % accuracy on {number} made against it; it has {before.value:.0f} % on their originals."


def _key_numbers(results: Mapping[str, Any]) -> Table | None:
    rows: list[list[Cell]] = []
    for title, name, charged in (
        ("clean images", "SA_matched", ""),
        ("reconstruction", "PA_reconstruction", "the generator"),
        ("random steps", "PA_random", "steps of equal length"),
        ("guided steps", "PA", "the model"),
    ):
        if (found := estimate_of(results, name)) is not None and found.value is not None:
            rows.append([title, found, charged])
    if not rows:
        return None
    matched, published = estimate_of(results, "FMR_matched"), estimate_of(results, "FMR")
    notes = []
    if matched is not None and matched.value is not None and published is not None:
        notes.append(
            f"Matched FMR {estimate_text(matched, unit=' %')}: the share of its accuracy that the model keeps on the accepted "
            f"images. FMR as published: {estimate_text(published, unit=' %')}."
        )
    if unmoved := (results.get("counts") or {}).get("unmoved"):
        notes.append(f"{counted(unmoved, 'accepted image')} kept no step: what counts there is the reconstruction.")
    columns = [
        Column("Accuracy on the accepted images", "text"),
        Column("per cent", axis=(0, 100)),
        Column("loss charged to", "text"),
    ]
    return Table(columns, rows, notes=notes)


def _sections(found: Collected, site: Site) -> Iterator[Section]:
    results = found.results or {}
    if results.get("per_class"):
        yield Section("Where it fails", _by_class(found, site))
    if curve := curve_of(results, "guided"):
        series = [Series("guided", curve, "guided")]
        if random := curve_of(results, "random"):
            series.append(Series("random", random, "random", dashed=True))
        text = "Share of accepted images that the model still gets right after each step, with 95 % intervals."
        yield Section("How fast accuracy falls", [Lines("Accuracy by step", "steps", series, text)])
    ratios = [(name, estimate_of(results, name)) for name in ("FMR", "FMR_matched", "FMR_random")]
    rows: list[list[Cell]] = [
        [name, each, MEANINGS[name]] for name, each in ratios if each is not None and each.value is not None
    ]
    if rows:
        columns = [Column("FMR", "text"), Column("per cent", axis=(0, 100)), Column("", "text", wide=True)]
        yield Section("FMR and its control", [Table(columns, rows, notes=[against_random(results)])])
    if distance := [*_medians([found]), *_distances([found], site)]:
        yield Section("How far images moved", distance)
    if audit := _audit(results):
        yield Section("The oracle under audit", audit)
    if later := _later(found):
        yield Section("Other models and oracles on the same images", later)
    if transfer := _transfer([found]):
        yield Section("Transfer", transfer)
    if found.images:
        yield Section("What became of the images", [_tally(found)])
    yield Section("All numbers", tables(results))


def _by_class(found: Collected, site: Site) -> list[Block]:
    """Classes by accuracy after guided steps, the lowest first, with pairs of the worst one that has any."""
    results = found.results or {}
    audited = (results.get("audit") or {}).get("per_class") or {}
    entries = sorted(results["per_class"].items(), key=lambda item: (item[1]["PA"]["value"] is None, item[1]["PA"]["value"] or 0))
    columns = [
        Column("class", "text"), Column("images"), Column("accuracy after guided steps, %", axis=(0, 100)),
        Column("clean, %"), Column("reconstruction, %"), Column("accepted, %"), Column("steps"), Column("oracle on sources, %"),
    ]  # fmt: skip
    rows: list[list[Cell]] = []
    for name, entry in entries:
        numbers = [Estimate.from_dict(entry[key]) for key in ("PA", "SA", "PA_reconstruction", "VR", "steps")]
        oracle = audited.get(name, {}).get("clean_accuracy")
        rows.append(
            [Link(name, show=_show(name, found)), entry["images"], *numbers, Estimate.from_dict(oracle) if oracle else None]
        )
    lowest = [name for name, entry in entries if entry["PA"]["value"] == entries[0][1]["PA"]["value"]]
    value = entries[0][1]["PA"]["value"]
    blocks: list[Block] = []
    if value is not None and len(entries) > 1:
        blocks.append(f"Lowest accuracy after guided steps: {listed(lowest)}, {value:.1f} %. Single classes rest on few images.")
    blocks.append(Table(columns, rows[:CLASSES]))
    if len(rows) > CLASSES:
        blocks.append(Fold(f"All {len(rows):,} classes", [Table(columns, rows, filter_rows=True)]))
    worst = [each for each in strongest(found.shown, len(found.shown)) if found.class_name(each.trial.label) == entries[0][0]]
    if worst:
        pairs = [pair_of(found, each, site.images) for each in worst[:STRIP]]
        blocks.append(ImagePairs(pairs, title=f"{entries[0][0]}: most confident mistakes"))
    return blocks


def _show(name: str, found: Collected) -> str:
    from urllib.parse import urlencode

    return urlencode({"class": name, "run": found.number})


def _audit(results: Mapping[str, Any]) -> list[Block]:
    found = results.get("audit")
    if not isinstance(found, Mapping):
        return []
    numbers = {name: Estimate.from_dict(found[name]) for name in AUDIT_MEANINGS if name in found}
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


def _later(found: Collected) -> list[Block]:
    """The numbers by other models and oracles; those that answered too little are left out."""
    if found.results is None:
        return []
    seed = int(found.run.spec.get("seed", 0))
    cautions: dict[tuple[str, str], str] = {(each.role, each.name): each.caution for each in asked_of(found.run.path)}
    names = ("SA", "PA", "FMR", "FMR_matched", "VR")
    rows: list[list[Cell]] = []
    for role, others in (("model", found.answers.other_models), ("oracle", found.answers.other_oracles)):
        for name in sorted(others):
            try:
                outcomes = read_outcomes(found.run, **{role: name})
            except CounterfoilError:
                continue
            values = scores(outcomes, seed=seed)
            rows.append([Link(name, note=cautions.get((role, name), "")), role, *(values[each] for each in names)])
    columns = [Column("who", "text"), Column("role", "text"), *(Column(f"{name}, %") for name in names)]
    return [Table(columns, rows)] if rows else []


def _transfer(every: Sequence[Collected]) -> list[Block]:
    finished = [each for each in every if each.results is not None]
    if not any(each.answers.other_models for each in finished):
        return []
    try:
        matrix = transfer_of([each.run for each in finished], names=[each.label for each in finished])
    except CounterfoilError:  # models that answered too little; the page says so where it lists them
        return []
    rows: list[list[Cell]] = []
    for row in matrix.rows:
        cells = [matrix.cell(row, column) for column in matrix.columns]
        rows.append([row, *("not scored" if cell is None else cell.values["FMR"] for cell in cells)])
    columns = [Column("made against", "text"), *(Column(name, shade=(0, 100)) for name in matrix.columns)]
    text = "FMR of each model (columns) on images made against each model (rows), in per cent of its own accuracy."
    return [text, Table(columns, rows)]


def _moved(results: Mapping[str, Any], arm: str) -> Estimate | None:
    """The median distance of an arm from its start; None where there is none."""
    found = estimate_of((results.get("arms") or {}).get("distance"), arm)
    return found if found is not None and found.value is not None else None


def _medians(every: Sequence[Collected]) -> list[Table]:
    """The distance of both arms from where they began, by which it can be judged what the control shows."""
    columns = [Column("run", "text"), *(Column(f"{arm} steps, median", digits=3) for arm in DISTANCES), Column("control", "text")]
    rows: list[list[Cell]] = []
    for each in every:
        cells = [_moved(each.results or {}, arm) for arm in DISTANCES]
        if any(cells):
            rows.append([each.label, *cells, str((each.run.spec.get("search") or {}).get("control", ""))])
    note = (
        "Distance of accepted images from their reconstruction in the generator's scale. The control 'path' takes "
        "as many steps of equal length, which partly undo each other; 'distance' ends as far away as guided steps."
    )
    return [Table(columns, rows, notes=[note])] if rows else []


def _distances(every: Sequence[Collected], site: Site) -> list[Table]:
    """The distance of made images from their sources, in grey levels, over a sample of the accepted images."""
    columns = [Column("run", "text"), *(Column(name, unit="") for name in ("reconstruction", "guided steps", "random steps"))]
    rows: list[list[Cell]] = []
    for found in every:
        values: dict[str, list[float]] = {"reconstruction": [], "guided": [], "random": []}
        seen: set[str] = set()
        for each in found.shown:
            trial = each.trial
            if not trial.image or trial.arm not in ("guided", "random") or (len(seen) >= MEASURED and trial.image_id not in seen):
                continue
            seen.add(trial.image_id)
            distance = site.images.distance(found.run.path, trial.clean, trial.image)
            if distance is not None:
                values[trial.arm].append(distance)
            plain = site.images.distance(found.run.path, trial.clean, trial.reconstruction) if trial.arm == "guided" else None
            if plain is not None:
                values["reconstruction"].append(plain)
        if any(values.values()):
            rows.append([found.label, *(_mean(each) for each in values.values())])
    note = "Root mean square of the difference from the source image, in grey levels of 255, over the images of the gallery."
    return [Table(columns, rows, notes=[note])] if rows else []


def _mean(values: Sequence[float]) -> Estimate:
    columns = {"sum": np.array(values, dtype=np.float64), "all": np.ones(len(values))}
    return estimate(columns, {"": Mean("sum", "all", "no image")})[""]


def _tally(found: Collected) -> Table:
    arms = [arm for arm in ("guided", "random") if arm in found.tally] or ["guided"]
    columns = [Column("outcome", "text"), *(Column(arm) for arm in arms), Column("", "text", wide=True)]
    rows: list[list[Cell]] = [
        [name, *(found.tally.get(arm, {}).get(name, 0) for arm in arms), meaning] for name, meaning in OUTCOMES.items()
    ]
    ended = ", ".join(f"{name} {times:,}" for name, times in sorted(found.endings.items()))
    of = f" of {found.expected:,}" if found.expected and found.expected != found.images else ""
    return Table(columns, rows, notes=[f"{counted(found.images, 'image')} done{of}. Guided searches ended by: {ended}."])


def _last(every: Sequence[Collected], site: Site) -> list[Section]:
    sections = []
    skipped: list[list[Cell]] = [
        [each.label, trial.image_id, each.class_name(trial.label), trial.reason or "no reason recorded"]
        for each in every
        for trial in each.skipped
    ]
    if skipped:
        columns = [Column("run", "text"), Column("image", "text"), Column("class", "text"), Column("reason", "text")]
        sections.append(Section("Images that could not be used", [Table(columns, skipped, filter_rows=True)]))
    made: list[Block] = [
        "Each image is first reconstructed by the generator alone. If the oracle still sees the class, the "
        "search takes steps that "
        "raise the tested model's loss, and keeps the last image the oracle accepts."
    ]
    for each in every:
        facts = how_it_was_made(each.run, FmrSpec)
        made += facts if len(every) == 1 else [Fold(each.label, facts)]
    files = [block for each in every for block in ([each.label] if len(every) > 1 else []) + [site.downloads(each)]]
    return [*sections, Section("How it was made", made), Section("Downloads", files)]


def _comparison(every: Sequence[Collected], singles: Sequence[Page], site: Site) -> Page:
    finished = [each for each in every if (found := estimate_of(each.results, RANKED_BY)) is not None and found.value is not None]
    ranking, why = _ranked(finished)
    order = list(ranking.values) if ranking else [each.label for each in finished]
    by_label = {each.label: each for each in every}
    sections = [Section("Models side by side", [_side_by_side(every, ranking)])]
    curves = [(each.label, curve_of(each.results or {}, "guided")) for each in finished[:CURVES]]
    if any(points for _, points in curves):
        series = [Series(label, points, "") for label, points in curves if points]
        sections.append(Section("How fast accuracy falls", [Lines("Accuracy by step", "steps", series)]))
    if rates := _rates(finished):
        sections.append(Section("Where they fail", [rates]))
    if distance := [*_medians(every), *_distances(every, site)]:
        sections.append(Section("How far images moved", distance))
    if transfer := _transfer(every):
        sections.append(Section("Transfer", transfer))
    audits: list[list[Cell]] = []
    for each in finished:
        audit = (each.results or {}).get("audit") or {}
        audits.append([each.label, *(estimate_of(audit, key) for key in ("clean_accuracy", "lost", "FMR_lost", "FMR_kept"))])
    if audits:
        columns = [
            Column("run", "text"),
            *(Column(f"{key}, %") for key in ("oracle on sources", "lost", "FMR if lost", "FMR if kept")),
        ]
        sections.append(Section("The oracle under audit", [Table(columns, audits)]))
    key: list[list[Cell]] = []
    for label in order[:6]:
        link = Link(label, to=f"run-{by_label[label].number}.html")
        key.append([link, estimate_of(by_label[label].results, RANKED_BY), ranking.rank(label) if ranking else "–"])
    columns = [Column("matched FMR", "text"), Column("per cent", axis=(0, 100)), Column("rank", "rank")]
    cautions = together([(each.label, each.run, list(page.cautions)) for each, page in zip(every, singles, strict=True)])
    return Page(
        title="Comparison",
        eyebrow=f"FMR · {counted(len(every), 'run')} compared",
        headline=_order_text(finished, ranking, why),
        pairs=_same_image(every, site),
        lead=_not_told_apart(ranking),
        key_numbers=Table(columns, key) if key else None,
        cautions=[*about_generators(every), *cautions],
        sections=sections,
        gallery=site.gallery(every),
        last=_last(every, site),
    )


def _ranked(finished: Sequence[Collected]) -> tuple[Ranking | None, str]:
    if len(finished) < 2:
        return None, ""
    try:
        found = compare({each.label: observe(each.run) for each in finished}, [MEASURES[RANKED_BY]])
    except UsageError:
        return None, "These runs have no source image in common, so they cannot be compared image by image."
    return found.rankings[0], ""


def _order_text(finished: Sequence[Collected], ranking: Ranking | None, why: str) -> str:
    if ranking is None:
        return why or f"{counted(len(finished), 'run')} with an FMR so far"
    names = list(ranking.values)
    most, least = names[0], names[-1]
    values = {name: found.value or 0 for name, found in ranking.values.items()}
    alike = [pair for pair in ranking.pairs if not pair.significant(0.05)]
    if len(alike) == len(ranking.pairs):
        return (
            f"No two of these {len(names)} models can be told apart by matched FMR ({values[least]:.0f} to {values[most]:.0f} %)."
        )
    return f"{most} keeps the most accuracy ({values[most]:.0f} % by matched FMR), {least} the least ({values[least]:.0f} %)."


def _not_told_apart(ranking: Ranking | None) -> list[str]:
    """The pairs of models that the images leave open, in a sentence."""
    if ranking is None:
        return []
    alike = [f"{pair.first} and {pair.second}" for pair in ranking.pairs if not pair.significant(0.05)]
    if not alike:
        return ["Compared image by image, all of them can be told apart."]
    return [f"Compared image by image, these can't be told apart: {listed(alike)}."]


def _same_image(every: Sequence[Collected], site: Site) -> list[ImagePair]:
    """One image for all models: the one that fools most of them."""
    by_image: dict[str, dict[int, Any]] = {}
    for found in every:
        for each in found.shown:
            if each.trial.arm == "guided" and each.trial.image and "made" in each.said.model:
                by_image.setdefault(each.trial.image_id, {})[found.number] = each
    if not by_image:
        return []

    def rank(item: tuple[str, dict[int, Any]]) -> tuple[int, int, str]:
        return len(item[1]), sum(each.outcome == "fooled" for each in item[1].values()), mark(item[0])

    chosen = max(by_image.items(), key=rank)[1]
    shown = [found for found in every if found.number in chosen][:STRIP]
    return [pair_of(found, chosen[found.number], site.images, note=found.label) for found in shown]


def _side_by_side(every: Sequence[Collected], ranking: Ranking | None) -> Table:
    names = ("SA", "PA", "FMR", "FMR_matched", "FMR_random", "PA_reconstruction", "PA_random", "VR", "steps")
    columns = [
        Column("run", "text"),
        *([Column("rank", "rank")] if ranking else []),
        *(Column(name) for name in names),
        Column("accepted"),
    ]
    rows: list[list[Cell]] = []
    for each in every:
        rank: list[Cell] = [ranking.rank(each.label) if each.label in ranking.ranks else "–"] if ranking else []
        numbers = [estimate_of(each.results, name) for name in names]
        rows.append([Link(each.label, to=f"run-{each.number}.html"), *rank, *numbers, f"{each.validated:,} of {each.images:,}"])
    notes = ["In per cent, steps as steps. A rank is a range where paired tests on the same images do not tell models apart."]
    return Table(columns, rows, notes=notes)


def _rates(finished: Sequence[Collected]) -> Table | None:
    names = list(dict.fromkeys(name for each in finished for name in (each.results or {}).get("per_class", {})))
    rows: list[list[Cell]] = []
    for name in names:
        entries = [(each.results or {}).get("per_class", {}).get(name) for each in finished]
        rows.append([name, *(Estimate.from_dict(entry["PA"]) if entry else None for entry in entries)])
    columns = [Column("class", "text"), *(Column(each.label, shade=(0, 100)) for each in finished)]
    title = "Accuracy after guided steps by class, in per cent"
    return Table(columns, rows, title=title, filter_rows=True) if rows else None


def _unmoved(name: str, results: Mapping[str, Any]) -> str:
    """The images of PA that kept no step, so that what counts there is their reconstruction."""
    unmoved = (results.get("counts") or {}).get("unmoved")
    return f"; {counted(unmoved, 'of them kept', 'of them kept')} no step" if name == "PA" and unmoved else ""
