"""ImageNet-D's tables and page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from counterfoil.core.naming import part_name, short_name
from counterfoil.core.records import Estimate
from counterfoil.metrics.tables import Cell, Column, Link, Mark, Table, counted, minus, p_is
from counterfoil.protocols.imagenet_d.results import FIXED_MODELS, in_order, tested
from counterfoil.protocols.imagenet_d.spec import ImagenetDSpec
from counterfoil.report.gallery import Collected, Entry, pair_of, strongest
from counterfoil.report.page import STRIP, Block, Caution, Fold, ImagePair, ImagePairs, Lines, Page, Section, Series
from counterfoil.report.provenance import about_images, about_parts, how_it_was_made, together
from counterfoil.report.site import Site
from counterfoil.store import Run

STAGE_FILES = (("prompts", "prompts, one per line"), ("paintings", "what was painted"), ("mined", "what was kept, and why not"))
PULLS = 10  # listed per model
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


def pages(runs: Sequence[Run], labels: Sequence[str], site: Site) -> list[Page]:
    """A page for each run and, of several, a comparison before them."""
    every = []
    for number, (run, label) in enumerate(zip(runs, labels, strict=True), start=1):
        names = tested(run)
        every.append(site.collect(run, number=number, label=label, model=names[0] if names else ""))
    names = ["index.html"] if len(every) == 1 else [f"run-{each.number}.html" for each in every]
    singles = [_run_page(each, site, name) for each, name in zip(every, names, strict=True)]
    return singles if len(singles) == 1 else [_comparison(every, singles, site), *singles]


def _run_page(found: Collected, site: Site, name: str) -> Page:
    results = found.results
    cautions = [Caution("stop", "This run is not finished. The same command resumes it.")]
    if results is not None:
        number = int(results["counts"]["validated"])
        text = f"{counted(number, 'image is', 'images are')} in the set"
        missing = len(site.images.missing.get(found.run.path, ()))
        cautions = [*about_parts(found.run), *about_images(number, text, missing=missing)]
    maker = short_name(part_name(found.run.spec.get("painter") or found.run.spec.get("data")))
    return Page(
        name=name,
        title=found.label,
        eyebrow=f"ImageNet-D · {maker} · mistakes of {short_name(found.model) or 'no model'}",
        headline=_headline(results),
        pairs=[_pair(found, each, site) for each in strongest(found.shown, STRIP)],
        key_numbers=_key_numbers(results) if results else None,
        cautions=cautions,
        sections=list(_sections(found, results, site)) if results else [],
        gallery=site.gallery([found]),
        last=_last([found], site),
    )


def _headline(results: Mapping[str, Any] | None) -> str:
    if results is None:
        return "No numbers yet"
    kept = counted(int(results["counts"]["validated"]), "image")
    drop, accuracy = results.get("drop") or {}, results.get("accuracy") or {}
    if drop.get("value") is not None:
        points = minus(f"{drop['value'] + 0.0:.0f}")
        text = f"Models that took no part lose {points} points on the {kept} that all surrogates miss"
        return f"{text} ({p_is(results['drop_p'])})."
    if accuracy.get("value") is not None:
        return f"The models are right on {accuracy['value']:.0f} % of the {kept} of the set, in the mean."
    return f"{kept} in the set; no model that took no part was tested on them."


def _key_numbers(results: Mapping[str, Any]) -> Table | None:
    mined = "leave_one_out" in results
    rows: list[list[Cell]] = []
    for name, entry in in_order(results["models"]):
        if entry["role"] == "surrogate" or len(rows) == 6:
            continue
        marks = []
        if mined and entry["painted"]["value"] is not None:
            marks.append(Mark("painted", Estimate.from_dict(entry["painted"]), "random", hollow=True))
        if entry["mined"]["value"] is not None:
            marks.append(Mark("mined" if mined else "set", Estimate.from_dict(entry["mined"]), "guided"))
        if marks:
            rows.append([name, tuple(marks)])
    columns = [Column("model", "text"), Column("accuracy, %", axis=(0, 100))]
    return Table(columns, rows, notes=[FIXED_MODELS] if mined and "drop" in results else []) if rows else None


def _sections(found: Collected, results: Mapping[str, Any], site: Site) -> Iterator[Section]:
    names = kind_names(results)
    where: list[Block] = []
    if names:
        where.append(kinds(results))
    pulls = _pulls(results)
    if pulls.rows:
        where += ["A nuisance pulls a model if its images are taken for one answer, whatever the object.", pulls]
    for name in names:
        some = [each for each in strongest(found.shown, len(found.shown)) if each.trial.factor == name][:STRIP]
        if some:
            where.append(ImagePairs([_pair(found, each, site) for each in some], title=f"{name}: most confident mistakes"))
    if where:
        yield Section("Where it fails", where)
    yield Section("Models", [models(results)])
    if (chosen := leave_one_out(results)).rows:
        yield Section("Leave one surrogate out", [chosen])
    points = [
        (float(each["surrogates"]), Estimate.from_dict(each["accuracy"]))
        for each in results.get("by_number") or []
        if "accuracy" in each
    ]
    if len(points) > 1:
        text = "Mean accuracy of the models that took no part, on what so many surrogates all miss."
        series = [Series("took no part", points)]
        yield Section(
            "How many surrogates", [Lines("Accuracy by the number of surrogates", "surrogates", series, text), by_number(results)]
        )
    if (modes := failures(results)).rows:
        yield Section("What mistakes follow", [modes, *_confusions(results)])
    if (order := orders(results)).rows:
        yield Section("Two-choice questions", [_unread(found.run), order])
    yield Section("What became of the images", [funnel(results)])


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


def _pair(found: Collected, entry: Entry, site: Site) -> ImagePair:
    about = " ".join(filter(None, (entry.trial.factor, entry.trial.value)))
    return pair_of(found, entry, site.images, note=about)


def _last(every: Sequence[Collected], site: Site) -> list[Section]:
    made: list[Block] = []
    for each in every:
        facts = how_it_was_made(each.run, ImagenetDSpec)
        made += facts if len(every) == 1 else [Fold(each.label, facts)]
    files: list[Block] = []
    for each in every:
        files += [*([each.label] if len(every) > 1 else []), site.downloads(each, stages=STAGE_FILES)]
    return [Section("How it was made", made), Section("Downloads", files)]


def _comparison(every: Sequence[Collected], singles: Sequence[Page], site: Site) -> Page:
    rows: list[list[Cell]] = []
    for found, page in zip(every, singles, strict=True):
        for name, entry in in_order((found.results or {}).get("models") or {}):
            numbers: list[Cell] = [_found(entry, key) for key in ("painted", "mined", "drop", "top5")]
            rows.append([Link(found.label, to=page.name), name, ROLES[entry["role"]], *numbers])
    heads = [Column("set", "text"), Column("model", "text"), Column("role", "text")]
    columns = [*heads, Column("painted, %"), Column("mined, %"), Column("drop, points", sign=True), Column("top-5, %")]
    finished = [each for each in every if (each.results or {}).get("accuracy", {}).get("value") is not None]
    finished.sort(key=lambda each: (each.results or {})["accuracy"]["value"])
    headline = "No run is finished yet"
    if finished:
        hardest, value = finished[0].label, (finished[0].results or {})["accuracy"]["value"]
        headline = f"{hardest} is the hardest of {counted(len(every), 'set')}: models that took no part have {value:.0f} % right."
    key: list[list[Cell]] = [[each.label, Estimate.from_dict((each.results or {})["accuracy"])] for each in finished[:6]]
    cautions = [(each.label, each.run, list(page.cautions)) for each, page in zip(every, singles, strict=True)]
    return Page(
        title="Comparison",
        eyebrow=f"ImageNet-D · {counted(len(every), 'run')} compared",
        headline=headline,
        pairs=[pair for page in singles for pair in page.pairs[:1]][:STRIP],
        key_numbers=Table([Column("mean accuracy on the set", "text"), Column("per cent", axis=(0, 100))], key) if key else None,
        cautions=together(cautions),
        sections=[Section("Models on each set", [Table(columns, rows)])],
        gallery=site.gallery(every),
        last=_last(every, site),
    )
