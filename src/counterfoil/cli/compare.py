"""`counterfoil compare`: which models can be told apart, and by how much they differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from counterfoil import protocols
from counterfoil.cli.options import Results, prints_results
from counterfoil.core.errors import UsageError
from counterfoil.core.naming import part_name
from counterfoil.metrics.comparison import agreement_across, comparison_tables, lines
from counterfoil.metrics.comparison import compare as compare_models
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
    slices: Annotated[Path | None, typer.Option(metavar="FILE", help="A CSV with image_id and slices of your own.")] = None,
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
    """Refuse fewer than two models."""
    if len(contenders) > 1:
        return
    if empty := [str(run.path) for run in runs if not protocol.models(run)]:
        raise UsageError(f"{', '.join(empty)}: tests only surrogates, which the set was made against; compare other models")
    raise UsageError(f"{runs[0].path}: one model by itself; give another run, or --scored after 'counterfoil score'")


def _notes(protocol: Protocol, runs: Sequence[Run], contenders: Mapping[str, Observations]) -> list[str]:
    """Cautions about a comparison."""
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
