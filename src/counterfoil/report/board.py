"""The leaderboard: a static site with one JSON file per result, which opens from disk and can be put on any web server.

index.html               a table for each test that models took
results/ID.json          the results; a submission is such a file
schema.json              what a result file holds, as a JSON schema
reports/ID/              the report of the run behind a result, where the run was given
images/, thumbs/         images of the page
board.json               marks the folder as a board, so that it may be written over
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import yaml

from counterfoil.core.errors import UsageError
from counterfoil.core.naming import without_folders
from counterfoil.metrics.comparison import BoardTest, compare, rank_text, scoreboard
from counterfoil.metrics.observations import models_of
from counterfoil.metrics.slices import slices
from counterfoil.metrics.slices import table_of as slice_table
from counterfoil.metrics.tables import Cell, Column, Link, Table, amount
from counterfoil.report import html
from counterfoil.report.gallery import collect, filter_of, pair_of, strongest
from counterfoil.report.images import ReportImages
from counterfoil.report.page import STRIP, Block, Code, Fold, ImagePair, ImagePairs, Page, PageSection
from counterfoil.report.provenance import text
from counterfoil.report.result_file import ResultFile, read, schema
from counterfoil.report.site import copy_static, take_over, writing
from counterfoil.store import Run, open_run
from counterfoil.store.files import canonical

_OWN = ("results", "reports", "images", "thumbs")  # folders that are rewritten
_SHARED = ("colours.css", "look.css", "tables.js")
_FIRST = ("painter.name", "grid", "data.name", "generator.name", "editor.name", "oracle.name")
APART = 3  # settings named in a heading
SLICES = 6  # listed of each model

MARKS = {
    "surrogate": "The images were made against this model, or kept because it missed them, so it does worse on them than models "
    "that had no part.",
    "shares weights with the oracle": "Where the model fails, the oracle fails too: its numbers are too good.",
}
"""The meaning of each badge."""

Results = Callable[[Run, bool], list[ResultFile]]
"""The results of a run, with those of models that were scored later where that is asked."""
Report = Callable[[Sequence[Run], Path, int], Path]


def write_board(
    sources: Sequence[Path],
    out: Path,
    *,
    results: Results,
    report: Report,
    scored: bool = False,
    images: int = 60,
    title: str = "Leaderboard",
) -> Path:
    """Write a board of runs and result files into the folder `out` and return its page.

    Runs get a report each, with up to `images` images; 0 leaves reports out. A folder that holds an earlier board is written
    over; one that holds anything else is refused.
    """
    if not sources:
        raise UsageError("a board needs at least one result; give run directories or result files")
    runs: list[tuple[Run, list[ResultFile]]] = []
    every: list[ResultFile] = []
    for source in sources:
        if source.is_file():
            every.append(read(source))
            continue
        run = open_run(source)
        runs.append((run, results(run, scored)))
        every += runs[-1][1]
    reports = {each.identity: f"reports/{own[0].identity}/index.html" for _, own in runs for each in own} if images else {}
    _by_test(every)  # refuses results given twice before anything is written
    with writing(out, "board"):
        take_over(out, "board", folders=_OWN)
        copies = ReportImages(out)
        pairs = {
            each.identity: _mistakes(run, each, copies, reports[each.identity]) for run, own in runs for each in own if reports
        }
        (out / "results").mkdir()
        for each in every:
            (out / "results" / f"{each.identity}.json").write_bytes(canonical(each.model_dump(mode="json")))
        (out / "schema.json").write_bytes(canonical(schema()))
        copy_static(out, _SHARED)
        for run, own in runs if images else ():
            report([run], out / "reports" / own[0].identity, images)
        page = board_page(every, reports, pairs, title=title)
        (out / "index.html").write_bytes(html.render(page, brand="leaderboard"))
    return out / "index.html"


def board_page(
    every: Sequence[ResultFile],
    reports: Mapping[str, str],
    pairs: Mapping[str, Sequence[ImagePair]],
    *,
    title: str = "Leaderboard",
) -> Page:
    """The page: a section per test. `reports` gives addresses, and `pairs` mistakes to show, by a result's identity."""
    groups = _by_test(every)
    heads = _headings(groups)
    weights = _weights_of_others(every)
    sections = [_by_tests(groups, heads)] if len(groups) > 1 else []
    sections += [PageSection(heads[group[0].test.identity], _blocks(group, reports, pairs, weights)) for group in groups]
    steps = (
        "Test your model with the settings of one of the tables; every result file holds its specification.",
        "counterfoil export RUN --format result -o result.json writes its result file.",
        "counterfoil board --check result.json says whether its numbers follow from its rows.",
        "Send the file to the keeper of this board; it is built by counterfoil board RUN… result.json… -o SITE.",
    )
    return Page(
        title=title,
        eyebrow=f"{amount(len(every), 'result')} in {amount(len(groups), 'test')}",
        headline=title,
        lead=["How well classifiers do on images made to mislead them, in which an oracle or people still see the class."],
        sections=[*sections, PageSection("How to hand in a result", list(steps))],
    )


def _by_test(every: Sequence[ResultFile]) -> list[list[ResultFile]]:
    """Results of the same test together, those with most results first; UsageError if one is there twice."""
    tests: dict[str, dict[str, ResultFile]] = {}
    for each in every:
        group = tests.setdefault(each.test.identity, {})
        if each.identity in group:
            raise UsageError(f"{each.model.name}: the same result twice ({each.identity}); give each once")
        group[each.identity] = each
    return [list(group.values()) for _, group in sorted(tests.items(), key=lambda item: (-len(item[1]), item[0]))]


def _mistakes(run: Run, result: ResultFile, images: ReportImages, report: str) -> list[ImagePair]:
    """The most confident mistakes of a result's model, which open in the run's report."""
    model = next((name for name in models_of(run) if without_folders(name) == result.model.name), "")
    found = collect(run, number=1, label=result.model.name, most=2 * STRIP, model=model)
    pairs = (pair_of(found, each, images) for each in strongest(found.shown, STRIP))
    return [replace(pair, to=f"{report}{pair.to}") for pair in pairs]


def _by_tests(groups: Sequence[Sequence[ResultFile]], heads: Mapping[str, str]) -> PageSection:
    """All models by all tests, each by the numbers that rank it; a set says nothing of the models that it was made against."""
    found = []
    for group in groups:
        for label, each in _labels(group).items():
            for name in reversed(each.ranked if not each.surrogate else ()):
                test = BoardTest(f"{each.test.identity} {name}", f"{name}, {heads[each.test.identity]}", each.measure(name))
                found.append((test, label, each.observations()))
    table = scoreboard(found).table()
    left_out = ["Results of surrogates are left out."] if any(each.surrogate for group in groups for each in group) else []
    return PageSection("Models by tests", [replace(table, title="", notes=[*table.notes, *left_out])])


def _slices(named: Mapping[str, ResultFile], reports: Mapping[str, str]) -> list[Block]:
    """List where each model fails: groups that are surely worse than the rest, with the way to their images in its report."""
    found: list[Block] = []
    for label, each in named.items():
        report = reports.get(each.identity, "")
        measure = each.measure(each.ranked[0])
        every = slices(each.observations(), measure)
        worse = [one for one in every if one.worse(measure)]
        if worse:
            table = slice_table(worse[:SLICES], measure, among=len(every))
            shown = (filter_of(one.where, 1) if report else "" for one in worse)
            links = (Link(one.name, to=f"{report}#show={text}" if text else "") for one, text in zip(worse, shown, strict=True))
            rows = [[link, *row[1:]] for link, row in zip(links, table.rows, strict=False)]
            found.append(replace(table, rows=rows, title=f"{label}: {measure.name} by slice"))
    return [Fold("Where each model fails", found)] if found else []


def _blocks(
    group: Sequence[ResultFile],
    reports: Mapping[str, str],
    pairs: Mapping[str, Sequence[ImagePair]],
    weights: Mapping[str, set[str]],
) -> list[Block]:
    named, first = _labels(group), group[0]
    ranks: dict[str, dict[str, tuple[int, int]]] = {label: {} for label in named}
    text_above = "One result by itself has no rank."
    if len(named) > 1:
        observed = {label: each.observations() for label, each in named.items()}
        try:
            found = compare(observed, [first.measure(name) for name in first.ranked])
        except UsageError:
            text_above = "These results have no image in common, so they cannot be ranked."
        else:
            text_above = (
                f"Ranks rest on the {found.extent} that all results have in common; a range is what paired tests leave open."
            )
            for ranking in found.rankings:
                for label, rank in ranking.ranks.items():
                    if ranking.values[label].value is not None:
                        ranks[label][ranking.measure.name] = rank
    shown = [*first.ranked, *(name for name in first.shown if name not in first.ranked)]
    best, sizes = first.measures[first.ranked[0]], any(each.parameters for each in group)
    columns = [
        Column("model", "text"),
        *(Column(f"rank by {name}", "rank") for name in first.ranked),
        *(Column(name, axis=(0, 100) if at == 0 and best.higher_is_better else None) for at, name in enumerate(shown)),
        Column("rows"), *([Column("parameters")] if sizes else []),
    ]  # fmt: skip
    rows: list[list[Cell]] = []
    badges: set[str] = set()

    def order(item: tuple[str, ResultFile]) -> tuple[bool, float, str]:
        value = item[1].measures[first.ranked[0]].found.value
        return value is None, (-1 if best.higher_is_better else 1) * (value or 0), item[0]

    for label, each in sorted(named.items(), key=order):
        marks = _marks(each, weights)
        badges |= set(marks)
        address = reports.get(each.identity, each.report)
        files = [("report", address)] if address else []
        link = Link(label, badges=marks, more=(*files, ("JSON", f"results/{each.identity}.json")), note=_about(each))
        places: list[Cell] = [rank_text(ranks[label][name]) if name in ranks[label] else "–" for name in first.ranked]
        numbers: list[Cell] = [each.measures[name].found.estimate if name in each.measures else None for name in shown]
        rows.append([link, *places, *numbers, len(each.keys), *([each.parameters] if sizes else [])])
    notes = [f"{name}: {first.measures[name].meaning}." for name in shown if first.measures[name].meaning]
    notes += [f"{name}: {meaning}" for name, meaning in MARKS.items() if name in badges]
    shots: list[Block] = [
        ImagePairs(pairs[each.identity], title=f"Most confident mistakes of {label}")
        for label, each in named.items()
        if pairs.get(each.identity)
    ]
    settings = [[key, text(value)] for key, value in first.test.settings.items()]
    facts = Table([Column("", "text"), Column("", "text")], settings)
    again = [Fold(label, [Code(yaml.safe_dump(each.spec, sort_keys=False, allow_unicode=True))]) for label, each in named.items()]
    return [
        _eyebrow(first),
        text_above,
        Table(columns, rows, notes=notes, filter_rows=True),
        *(shots if len(shots) <= SLICES else [Fold("The most confident mistakes of each model", shots)]),
        *_slices(named, reports),
        Fold("Settings of this test", [facts]),
        Fold("Specifications, to make a result again", again),
    ]


def _eyebrow(result: ResultFile) -> str:
    if result.test.surrogates:
        return f"One set of images, kept because {', '.join(result.test.surrogates)} missed them."
    if result.test.against:
        return f"One set of images, made against {result.test.against}."
    if result.clusters:  # several images of one source, made whatever the model
        return "One set of images for all models."
    return "New images against each model." if result.ranked else ""


def _about(result: ResultFile) -> str:
    told = [f"handed in by {result.submitter}" if result.submitter else "", result.comment, result.caution]
    return "; ".join(filter(None, told))


def _headings(groups: Sequence[Sequence[ResultFile]]) -> dict[str, str]:
    """A line about each test: protocol and parts, and what tells it from others with the same."""
    lines = {group[0].test.identity: _parts(group[0]) for group in groups}
    for line in {line for line in lines.values() if list(lines.values()).count(line) > 1}:
        alike = [group[0] for group in groups if lines[group[0].test.identity] == line]
        known = [{**each.test.settings, "classes": f"{each.test.classes:,} ({each.test.classes_sha256[:6]})",
                  "against": each.test.against or "none"} for each in alike]  # fmt: skip
        keys = [key for key in dict.fromkeys(key for each in known for key in each)
                if len({str(each.get(key)) for each in known}) > 1][:APART]  # fmt: skip
        for result, each in zip(alike, known, strict=True):
            lines[result.test.identity] = " · ".join([line, *(f"{key} {text(each.get(key))[:40]}" for key in keys)])
    return lines


def _parts(result: ResultFile) -> str:
    values = (text(result.test.settings[key]) for key in _FIRST if result.test.settings.get(key))
    return " · ".join([result.protocol, *values])


def _labels(group: Sequence[ResultFile]) -> dict[str, ResultFile]:
    """Each result under a name of its own: the model, with a piece of its identity where two share one."""
    names = [each.model.name for each in group]
    return {
        name if names.count(name) == 1 else f"{name} · {each.identity.rpartition('-')[2][:6]}": each
        for name, each in zip(names, group, strict=True)
    }


def _weights_of_others(every: Sequence[ResultFile]) -> dict[str, set[str]]:
    """For each hash of weights, the parts that have them: oracles, and models that images were made against."""
    found: dict[str, set[str]] = {}
    for each in every:
        oracle = each.test.settings.get("oracle weights")
        if isinstance(oracle, str):
            found.setdefault(oracle, set()).add("oracle")
        if each.surrogate and each.model.weights:
            found.setdefault(each.model.weights, set()).add("surrogate")
    return found


def _marks(result: ResultFile, weights: Mapping[str, set[str]]) -> tuple[str, ...]:
    """Badges of a row."""
    kin = weights.get(result.model.weights or "", set())
    surrogate = result.surrogate or (bool(result.test.against) and "surrogate" in kin)
    return (
        *(("surrogate",) if surrogate else ()),
        *(("shares weights with the oracle",) if result.caution or "oracle" in kin else ()),
    )
