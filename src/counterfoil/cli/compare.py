"""`counterfoil compare`, which models can be told apart and by how much they differ; `gate`, pass or fail for a pipeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from counterfoil import protocols
from counterfoil.cli.options import Results, Text, output, prints_results
from counterfoil.core.errors import UsageError
from counterfoil.core.naming import part_name
from counterfoil.metrics.comparison import agreement_across, comparison_tables, lines
from counterfoil.metrics.comparison import compare as compare_models
from counterfoil.metrics.gate import MARGIN, check_against, check_bars, junit, parse_bar
from counterfoil.metrics.observations import Measure, Observations, find_measure
from counterfoil.metrics.prediction_files import MEASURES as PREDICTIONS
from counterfoil.metrics.prediction_files import SUFFIXES, read_predictions
from counterfoil.metrics.slices import read_slices
from counterfoil.metrics.slices import slices as find_slices
from counterfoil.metrics.slices import table_of as slice_table
from counterfoil.metrics.tables import Table, as_csv, as_data, as_latex, as_markdown, as_text, tau_text
from counterfoil.protocols.base import Protocol
from counterfoil.protocols.reading import measures_of, protocol_of, scoreboard_of
from counterfoil.report.provenance import check_sources, differences
from counterfoil.store import Run, open_run

Names = list[str] | None
File = Path | None
FORMS: Mapping[str, Callable[[Table], str]] = {
    "text": lambda table: "\n".join(as_text(table)) + "\n",
    "md": as_markdown,
    "csv": as_csv,
    "tex": as_latex,
}


@prints_results
def compare(
    results: Results,
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run directories, or files of predictions.")],
    metric: Annotated[Names, typer.Option(help="A number to compare, as in FMR; may be repeated.")] = None,
    scored: Annotated[bool, typer.Option("--scored", help="Also the other models scored on each run's images.")] = False,
    transfer: Annotated[
        bool, typer.Option("--transfer", help="Print the transfer matrix of the models scored on each run's images, and stop.")
    ] = False,
    alpha: Annotated[float, typer.Option(help="Chance of seeing a difference where there is none.", min=1e-4, max=0.5)] = 0.05,
    by: Annotated[Names, typer.Option(help="Print where each model fails, by class, factor …; may be repeated.")] = None,
    slices: Annotated[File, typer.Option(metavar="FILE", help="A CSV with image_id and slices of your own.")] = None,
    form: Annotated[str, typer.Option("--format", help=f"{', '.join(FORMS)}.")] = "text",
) -> None:
    """Compare models with paired tests.

    Paired by source image, with intervals and corrected p-values. Runs of several protocols give one table, models by tests;
    files of predictions (CSV, Parquet, JSONL, JSON) are compared like runs.

    \b
    counterfoil compare runs/resnet50 runs/convnext
    counterfoil compare resnet50.csv convnext.csv
    """
    if form not in FORMS:
        raise UsageError(f"--format {form}: no such format; there are {', '.join(FORMS)}")

    def write(tables: Sequence[Table], *, text: Sequence[str] = (), notes: Sequence[str] = ()) -> None:
        if form == "text" and text:
            results.text(*text)
        else:
            results.text("\n".join(FORMS[form](table) for table in tables).rstrip("\n"))
        results.data({"tables": [as_data(table) for table in tables], "notes": list(notes)})

    notes: list[str] = []
    orders: list[str] = []
    if any(path.suffix in SUFFIXES for path in runs):
        contenders, measures = _predictions(runs), list(PREDICTIONS.values())
        clean, ranked = None, measures[:1]
    else:
        opened = [open_run(path) for path in runs]
        if len({protocols.of(run).name for run in opened}) > 1:
            return write([scoreboard_of(opened, scored=scored, alpha=alpha).table()])
        protocol, known = protocol_of(opened), measures_of(opened)
        measures = [find_measure(name, known) for name in metric or protocol.compared if metric or name in known]
        if transfer:
            return write(protocol.transfer(opened, [each.name for each in measures] if metric else []))
        ranked = measures if metric else [known[name] for name in protocol.ranked if name in known][:1]
        contenders, clean = _contenders(protocol, opened, scored=scored), protocol.measures[protocol.clean]
        if not by and not slices:
            _check_several(protocol, opened, contenders)
            notes, orders = _notes(protocol, opened, contenders), _orders(protocol, opened, measures)
    if by or slices:
        return write(_slice_tables(contenders, ranked, by or [], slices))
    compared = compare_models(contenders, measures, clean=clean, alpha=alpha)
    for note in notes:
        results.text(f"{note}\n")
    write(comparison_tables(compared), text=[*lines(compared), *orders], notes=[*notes, *filter(None, orders)])


def _predictions(files: Sequence[Path]) -> dict[str, Observations]:
    """Predictions of models, from files, under names that tell them apart."""
    if any(path.suffix not in SUFFIXES for path in files):
        raise UsageError("give run directories or files of predictions, not both; a run's images are not those of a file")
    stems = [path.stem for path in files]
    return {str(path) if stems.count(path.stem) > 1 else path.stem: read_predictions(path) for path in files}


def _contenders(protocol: Protocol, runs: Sequence[Run], *, scored: bool) -> dict[str, Observations]:
    """The rows to compare, under names that tell them apart: the model, with its run's folder or path where needed."""
    found = [(run, name) for run in runs for name in protocol.models(run, scored=scored)]
    named: dict[str, Observations] = {}
    for run, name in found:
        twice = sum(other == name for _, other in found) > 1
        folders = sum(each.path.resolve().name == run.path.resolve().name for each, other in found if other == name)
        label = name if not twice else f"{name} ({run.path.resolve().name if folders == 1 else run.path})"
        if label in named:
            raise UsageError(f"{run.path}: given twice; name each run once")
        named[label] = protocol.observe(run, model=name)
    return named


def _check_several(protocol: Protocol, runs: Sequence[Run], contenders: Mapping[str, Observations]) -> None:
    if len(contenders) > 1:
        return
    if empty := [str(run.path) for run in runs if not protocol.models(run)]:
        raise UsageError(f"{', '.join(empty)}: tests only surrogates, which the set was made against; compare other models")
    raise UsageError(f"{runs[0].path}: one model by itself; give another run, or --scored after 'counterfoil score'")


def _notes(protocol: Protocol, runs: Sequence[Run], contenders: Mapping[str, Observations]) -> list[str]:
    unlike = [*differences(runs), *filter(None, [check_sources(runs)])]
    begun = [str(run.path) for run in runs if run.results is None]
    found = [f"Not the same test, so a difference need not be the model's: {'; '.join(unlike)}."] if unlike else []
    found += [f"Not finished, so that only the images done so far count: {', '.join(begun)}."] if begun else []
    return [*found, *protocol.remarks(runs, {label: each.model for label, each in contenders.items()})]


def _slice_tables(
    contenders: Mapping[str, Observations], measures: Sequence[Measure], by: list[str], file: Path | None
) -> list[Table]:
    """Groups where each model fails: these of images against the rest, the surely worst ones first."""
    found = []
    for name, observed in contenders.items():
        whole = read_slices(file, observed) if file else observed
        groups = by or [each for each in whole.groups if each not in observed.groups]
        for measure in measures:
            table = slice_table(find_slices(whole, measure, by=groups, pairs=len(groups) > 1), measure)
            found.append(replace(table, title=f"{name}, {table.title}"))
    return found


def _orders(protocol: Protocol, runs: Sequence[Run], measures: Sequence[Measure]) -> list[str]:
    """Agreement of the models' order from one generator, or oracle, to another, where the runs can say so."""
    found: list[str] = []
    for role in ("generator", "oracle"):
        settings: dict[str, dict[str, Observations]] = {}
        for run in runs:
            for name in protocol.models(run):
                settings.setdefault(part_name(run.spec.get(role)), {})[name] = protocol.observe(run, model=name)
        complete = len({tuple(sorted(each)) for each in settings.values()}) == 1
        if len(settings) < 2 or not complete or len(next(iter(settings.values()))) < 2:
            continue
        found += ["", f"The same models under another {role}: Kendall's tau between their orders (95 % interval)"]
        for each in measures:
            for (one, two), tau in agreement_across(settings, each).items():
                found.append(f"  {each.name}: {one} against {two}: {tau_text(tau)}")
    return found


@prints_results
def gate(
    results: Results,
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    minimum: Annotated[Names, typer.Option("--min", metavar="NAME=NUMBER", help="What it must reach, as in fmr=60.")] = None,
    maximum: Annotated[Names, typer.Option("--max", metavar="NAME=NUMBER", help="What it must not exceed, as in drop=9.")] = None,
    against: Annotated[File, typer.Option(metavar="RUN", help="A baseline that the run must not fall behind.")] = None,
    margin: Annotated[
        float | None,
        typer.Option(help=f"Against the baseline: points that may be lost at most. [default: {MARGIN:g}]", min=0),
    ] = None,
    allow_unproven: Annotated[
        bool, typer.Option("--allow-unproven", help="Against the baseline: fail only on a loss that a paired test shows.")
    ] = False,
    alpha: Annotated[float, typer.Option(help="Chance of a wrong verdict that is taken.", min=1e-4, max=0.5)] = 0.05,
    point: Annotated[bool, typer.Option("--point", help="Judge bars by the value alone, not by its interval.")] = False,
    model: Annotated[Text, typer.Option(help="Another model that was scored on the run's images.")] = None,
    oracle: Annotated[Text, typer.Option(help="Another oracle that judged them.")] = None,
    slices: Annotated[File, typer.Option(metavar="FILE", help="A CSV with image_id and slices that bars may name.")] = None,
    junit_file: Annotated[File, typer.Option("--junit", metavar="FILE", help="Also write the verdicts as JUnit XML.")] = None,
) -> None:
    """Pass or fail a run, for a pipeline.

    Exit 0 if its numbers clear the bars and do not fall behind the baseline, 1 if not.

    \b
    counterfoil gate runs/new --min fmr=60
    counterfoil gate runs/new --against runs/released --margin 3
    counterfoil gate new.csv --against old.csv --margin 2
    """
    if not minimum and not maximum and against is None:
        raise UsageError("nothing to judge by; give a bar, as in --min fmr=60, or a baseline, as in --against RUN")
    if margin is not None and against is None:
        raise UsageError("--margin is a distance from a baseline; name it with --against RUN")
    if allow_unproven and (margin is not None or against is None):
        raise UsageError("--allow-unproven takes a baseline, as in --against RUN, and no --margin")
    allowed = None if allow_unproven else MARGIN if margin is None else margin
    write_xml = output(junit_file, "--junit")
    files = run.suffix in SUFFIXES
    opened = None if files else _open_finished(run)
    protocol = None if opened is None else protocols.of(opened)
    known = PREDICTIONS if opened is None or protocol is None else protocol.measures_of(opened)
    bars = [parse_bar(text, "min", known) for text in minimum or []] + [parse_bar(text, "max", known) for text in maximum or []]
    held: Sequence[str] = list(PREDICTIONS) if protocol is None else protocol.held
    if opened is None or protocol is None:
        rows = read_predictions(run)
    else:
        rows = protocol.observe(opened, model=model, oracle=oracle)
        if why := protocol.unfair(opened, rows.model, [bar.measure.name for bar in bars] or held):
            raise UsageError(f"{run}: {why}")
    whole = read_slices(slices, rows) if slices else rows
    checks = check_bars(whole, bars, alpha=alpha, point=point)
    undecided = {"run": rows.undecided}
    if against is not None:
        if opened is None:
            theirs = read_predictions(against)
        else:
            theirs = _baseline(opened, _open_finished(against), model=model, oracle=oracle)
        theirs = read_slices(slices, theirs) if slices else theirs
        undecided["baseline"] = theirs.undecided
        asked = list({bar.name: bar for bar in bars}.values())
        checks += check_against(whole, theirs, asked or [known[name] for name in held], alpha=alpha, margin=allowed)
    failed = sum(not check.passed for check in checks)
    notes = [f"{'in the baseline ' if where == 'baseline' else ''}{each}" for where, each in undecided.items() if each.number]
    write_xml(junit(checks, subject=run.resolve().name, notes=notes))
    told = {"checks": [each.to_dict() for each in checks], "undecided": {key: each._asdict() for key, each in undecided.items()}}
    results.text(*(f"{'pass' if check.passed else 'FAIL'}  {check.asked}: {check.answer}" for check in checks))
    results.text(*(f"note  {note}; the verdict may change once they are decided" for note in notes))
    results.text(f"gate: {f'{failed} of {len(checks)} failed' if failed else f'all {len(checks)} passed'}")
    results.data({"run": str(run), "passed": not failed, **told})
    raise typer.Exit(1 if failed else 0)


def _open_finished(path: Path) -> Run:
    """A run whose numbers are there; others would be judged by the images that happen to be done."""
    run = open_run(path)
    if run.results is None:
        raise UsageError(f"{path}: not finished, so there is nothing to judge yet; repeat its command first")
    return run


def _baseline(run: Run, baseline: Run, *, model: str | None, oracle: str | None) -> Observations:
    """The rows of the baseline. Only for the same test."""
    unlike = differences([run, baseline])
    if unlike:
        raise UsageError(f"{baseline.path}: not the same test as {run.path}: {'; '.join(unlike[:4])}; repeat the baseline run")
    protocol = protocols.of(baseline)
    theirs = protocol.observe(baseline, model=model if len(protocol.models(baseline)) > 1 else None, oracle=oracle)
    if pixels := check_sources([run, baseline]):
        raise UsageError(f"{baseline.path}: not the same test as {run.path}: {pixels} differ; repeat the baseline run")
    return theirs
